"""The records of `manifest.json` and `golden.json`, and the checks of their consistency. Reads no files.

Records are immutable and reject unknown fields. Every number, text and list has an upper bound, far above those of
known models: a hostile manifest must not take the memory or the time of a server.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, NamedTuple, Self, TypeGuard

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, field_validator, model_validator

from dragoman.serve.bundle.record import FileName, Record
from dragoman.serve.bundle.tokenizer_spec import TokenizerSpec

# A label of metrics, a part of paths and of health checks.
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
MODEL_NAMES = "1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', the first a letter or digit"
_MODEL_NAME = TypeAdapter(ModelName)
# The name of a tensor or a module, a library or a measurement.
Name = Annotated[str, StringConstraints(max_length=256)]
Text = Annotated[str, StringConstraints(max_length=100_000)]
# One line that people read.
Description = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

MAX_TOKENS = 1 << 16
MAX_VOCABULARY = 1 << 20
MAX_BEAM_SIZE = 1000
Tokens = Annotated[int, Field(gt=0, le=MAX_TOKENS)]
TokenId = Annotated[int, Field(ge=0, lt=MAX_VOCABULARY)]
TokenIds = Annotated[tuple[TokenId, ...], Field(max_length=MAX_TOKENS)]
Size = Annotated[int, Field(gt=0, le=1 << 31)]


# ISO 639 code, with a script where a language has several: de, ceb, zh-Hant.
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}(-[A-Z][a-z]{3})?$")]
# The processor of the graphs; cuda: an NVIDIA GPU.
GraphVariant = Literal["cpu", "cuda"]
# The graphs' arithmetic: 32-bit or 16-bit floats, or products of 8-bit integers. Activations have one scale per row.
Precision = Literal["fp32", "fp16", "int8"]
# Lengths that differ between rows, in tokens.
Length = Literal["source", "target"]
Dimension = Size | Length
Element = Literal["float", "int8"]
WeightType = Literal["float32", "int8"]
MAX_AXES = 8
MAX_STATES = 4096

# Graph inputs besides the state, in this order; a graph may lack inputs that it does not use.
ENCODER_INPUTS = ("source_ids", "source_lengths")
DECODER_INPUTS = ("token_ids", "positions", "source_lengths")
LOGITS = "logits"
ALIGNMENTS = "alignments"
# Inputs and outputs of native graphs besides their caches, in this order.
ENCODE_INPUTS = ("source_ids", "source_lengths", "source_slots")
STEP_INPUTS = (
    "token_ids",
    "positions",
    "target_slots",
    "source_slots",
    "source_lengths",
    "scored_rows",
    "best_count",
    "aligned",
)
# Further inputs of the decoder of a model with a shortlist: the ids of all lists, and where each row's begins and ends.
CANDIDATE_INPUTS = ("candidate_ids", "candidate_ranges")
CHOICE = ("log_sums", "best_scores", "best_ids")
STEP_OUTPUTS = (LOGITS, *CHOICE, ALIGNMENTS)
CHOOSE_INPUTS = (LOGITS, "best_count")


class BundleDirection(Record):
    """A source and a target language.

    Attributes:
        source_prefix: tokens before every source, which select languages of a multilingual model.
        start: tokens that every translation starts with, which select its language; they are no part of its text.
    """

    source: Language
    target: Language
    source_prefix: TokenIds = ()
    start: TokenIds = ()

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


class LanguageToken(Record):
    """A language of a multilingual model, and the token that stands for it."""

    language: Language
    token_id: TokenId


class Multilingual(Record):
    """The languages of a model that translates between any two of them.

    Attributes:
        source_prefix: tokens before that of the language.
        before_source: language whose token precedes the source.
        starts: whether the token of the target language starts the translation.
    """

    languages: tuple[LanguageToken, ...] = Field(min_length=2, max_length=1000)
    source_prefix: TokenIds = ()
    before_source: Literal["source", "target"]
    starts: bool

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, languages: tuple[LanguageToken, ...]) -> tuple[LanguageToken, ...]:
        _check_unique(language.language for language in languages)
        return languages


class StateSpec(Record):
    """One tensor of the decoder's state between steps. The kind follows from the shape.

    A *source* state has the length of the source: the encoder writes it once, the decoder reads it. The decoder extends
    a *target* state by one position per step, in place. A *recurrent* state has no length: the encoder initializes it,
    and every step replaces it.

    Attributes:
        name: name of the encoder's output and, for a source state, of the decoder's input.
        shape: shape of one row; a length that differs between rows has a name instead of a number.
        element: floats of the graphs' precision, or 8-bit integers.
    """

    name: Name = Field(pattern=r"^[a-z][a-z0-9_]*$")
    shape: tuple[Dimension, ...] = Field(max_length=MAX_AXES)
    element: Element = "float"

    @field_validator("shape")
    @classmethod
    def _check_shape(cls, shape: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
        if sum(isinstance(dimension, str) for dimension in shape) > 1:
            raise ValueError(f"expected at most one length, got {shape}")
        return shape

    @property
    def kind(self) -> Literal["source", "target", "recurrent"]:
        """Which graph writes the state: see the class."""
        return next((dimension for dimension in self.shape if isinstance(dimension, str)), "recurrent")

    @property
    def decoder_input(self) -> str:
        """Name of the decoder's input for the state."""
        return self.name if self.kind == "source" else f"past_{self.name}"

    @property
    def decoder_output(self) -> str | None:
        """Name of the decoder's output for the next value; None if the decoder only reads the state."""
        return None if self.kind == "source" else present(self.name)


# Positions of a block of a native cache.
CACHE_BLOCK_TOKENS = 16


class CacheTensor(NamedTuple):
    """A tensor of a cache: its elements, and the shape of a slot."""

    element: Element
    shape: tuple[int, ...]


class CacheSpec(Record):
    """The KV caches of native graphs: one for sources, written by the encoder, and one for targets.

    Both have blocks of 16 positions: [slots, layers, blocks, 2, heads, 16 * head_size], keys, then values. The graphs
    take the cache of a length as `source_cache` and return the written one as `present_source_cache`.

    Attributes:
        element: floats, or 8-bit integers; a second tensor, `source_scales`, has their scales, float32 [slots, layers,
            blocks, 2, heads, 16].
        recurrent: the decoder has recurrent units. Their states take the place of the target cache, float32 [slots,
            layers, 1, heads * head_size].
    """

    layers: int = Field(gt=0, le=1000)
    heads: int = Field(gt=0, le=1000)
    head_size: int = Field(gt=0, le=1 << 16, multiple_of=4)
    element: Element
    recurrent: bool = False

    def tensors(self, length: Length, tokens: int) -> dict[str, CacheTensor]:
        """Returns the tensors of a cache by name, with room for a length of at most `tokens`."""
        name = f"{length}_cache"
        if self.recurrent and length == "target":
            return {name: CacheTensor("float", (self.layers, 1, self.heads * self.head_size))}
        blocks = (self.layers, -(-tokens // CACHE_BLOCK_TOKENS), 2, self.heads)
        tensors = {name: CacheTensor(self.element, (*blocks, CACHE_BLOCK_TOKENS * self.head_size))}
        if self.element == "int8":
            tensors[f"{length}_scales"] = CacheTensor("float", (*blocks, CACHE_BLOCK_TOKENS))
        return tensors

    def names(self, length: Length) -> tuple[str, ...]:
        """Returns the names of the inputs that hold the cache of a length."""
        return tuple(self.tensors(length, 1))


def present(name: str) -> str:
    """Returns the name of the output that holds the next value of a state or a cache."""
    return f"present_{name}"


class AttentionHead(Record):
    """A head of the decoder's cross-attention; both indices count from 0."""

    layer: int = Field(ge=0, lt=1000)
    head: int = Field(ge=0, lt=1000)

    def __str__(self) -> str:
        return f"{self.layer}:{self.head}"


class GoldenSentence(Record):
    """A sentence and the exact output of the model, computed at the export or import.

    Attributes:
        source_ids: tokens of the source, including the direction's prefix and the end token.
        target_ids: tokens of the translation, without the end token.
    """

    source_language: Language
    target_language: Language
    source: Text
    source_ids: TokenIds
    target_ids: TokenIds
    target: Text

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_language, self.target_language


class GraphSignature(Record):
    """Names of a graph's inputs and outputs, in order."""

    inputs: tuple[Name, ...] = Field(max_length=MAX_STATES)
    outputs: tuple[Name, ...] = Field(max_length=MAX_STATES)


class SharedWeight(Record):
    """A weight that encoder and decoder both read, so that a server loads it once.

    Attributes:
        encoder_name: initializer in the encoder.
        decoder_name: initializer in the decoder and the aligned decoder.
        shape: shape of the tensor, in row-major order.
        offset_bytes: start in the file of weights.
    """

    encoder_name: Name
    decoder_name: Name
    type: WeightType
    shape: tuple[Size, ...] = Field(max_length=MAX_AXES)
    offset_bytes: int = Field(ge=0, lt=1 << 50)


class Provenance(Record):
    """The origin of the model, complete enough to train it again.

    Attributes:
        created: time of the export, ISO 8601, UTC.
        steps: optimizer steps.
        scores: measurements at export, for example the share of identical sentences.
    """

    created: Name
    versions: dict[Name, Name] = Field(max_length=100)
    training: dict[str, object]
    steps: int = Field(ge=0, lt=1 << 50)
    scores: dict[Name, float] = Field(max_length=1000)


# A text has low confidence this many standard deviations below the mean; docs/models.md has the measurement.
LOW_DEVIATIONS = 2.5


class Confidence(Record):
    """Mean log-probabilities per token of the sample translations: their mean and standard deviation."""

    mean: float = Field(le=0, allow_inf_nan=False)
    deviation: float = Field(ge=0, allow_inf_nan=False)

    @property
    def least(self) -> float:
        """The mean log-probability below which a text has low confidence."""
        return self.mean - LOW_DEVIATIONS * self.deviation


class ShortlistSpec(Record):
    """The shortlist of a model, and what a measurement on held-out text found.

    Attributes:
        frequent, best: as of `dragoman.serve.bundle.shortlist.Shortlist`.
        default: whether requests use it that do not choose.
        sentences: measured ones; 0: not measured, and what follows is 0.
        recall: share of the tokens of translations without the shortlist that it has.
        candidates: mean number of candidates of a sentence.
        bleu, chrf: score with the shortlist minus that without it.
        equal: share of sentences with the same translation.
    """

    frequent: int = Field(ge=0, le=MAX_VOCABULARY)
    best: int = Field(ge=0, le=MAX_VOCABULARY)
    default: bool = False
    sentences: int = Field(0, ge=0, le=1 << 31)
    recall: float = Field(0.0, ge=0, le=1)
    candidates: float = Field(0.0, ge=0, le=MAX_VOCABULARY)
    bleu: float = Field(0.0, ge=-100, le=100)
    chrf: float = Field(0.0, ge=-100, le=100)
    equal: float = Field(0.0, ge=0, le=1)


class Manifest(Record):
    """The content of `manifest.json`. Lengths are in tokens; `max_target_tokens` does not count the end token.

    Attributes:
        description: texts that the model is for; empty: unknown.
        license: terms of the weights, an SPDX expression; empty: not stated.
        directions: one or more; none if the model is multilingual.
        multilingual: languages instead of directions.
        confidence: of usual translations; None: unknown.
        beam_size: of requests that choose neither a beam nor sampling; 1: greedy search.
        shortlist: None: the bundle has none.
        source_suffix: tokens after every source, usually the end token.
        context_separator: follows each sentence of a context; empty: the model reads none.
        bos_id: first token of every translation.
        cache: KV caches of native graphs; None for graphs with states.
        states: decoder state, in the order of the graphs' inputs and outputs; empty for native graphs.
        alignment_heads: heads of the alignments that the decoder returns, in this order. If the graphs have states,
            the aligned decoder returns them.
        activation_ranges, cache_ranges: always empty; earlier exports wrote them.
        opset: version of the ONNX standard.
        shared_weights: weights that both graphs read; if empty, a server loads two copies.
    """

    format_version: Literal[6] = 6
    name: ModelName
    description: Description = ""
    license: Description = ""
    vocabulary_size: int = Field(gt=0, le=MAX_VOCABULARY)
    directions: tuple[BundleDirection, ...] = Field(max_length=10_000)
    multilingual: Multilingual | None = None
    confidence: Confidence | None = None
    beam_size: int = Field(1, ge=1, le=MAX_BEAM_SIZE)
    shortlist: ShortlistSpec | None = None
    source_suffix: TokenIds
    context_separator: Description = ""
    tokenizer: TokenizerSpec
    cache: CacheSpec | None = None
    states: tuple[StateSpec, ...] = Field((), max_length=MAX_STATES)
    alignment_heads: tuple[AttentionHead, ...] = Field((), max_length=10_000)
    pad_id: TokenId
    unk_id: TokenId
    bos_id: TokenId
    eos_id: TokenId
    max_source_tokens: Tokens
    max_target_tokens: Tokens
    variant: GraphVariant = "cpu"
    precision: Precision
    activation_ranges: dict[Name, float] = Field(default_factory=dict, max_length=0, exclude=True)
    cache_ranges: dict[Name, float] = Field(default_factory=dict, max_length=0, exclude=True)
    opset: int = Field(gt=0, lt=1000)
    encoder: GraphSignature
    decoder: GraphSignature
    shared_weights: tuple[SharedWeight, ...] = Field((), max_length=10_000)
    files: dict[FileName, Sha256] = Field(max_length=100)
    provenance: Provenance

    @field_validator("directions")
    @classmethod
    def _check_directions(cls, directions: tuple[BundleDirection, ...]) -> tuple[BundleDirection, ...]:
        _check_unique(map(str, directions))
        return directions

    @model_validator(mode="after")
    def _check_languages(self) -> Self:
        if bool(self.directions) == (self.multilingual is not None):
            found = "both" if self.directions else "neither"
            raise ValueError(f"directions: expected directions or multilingual, got {found}")
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        cache = self.cache
        for chosen in self.alignment_heads if cache is not None else ():
            if cache is not None and (chosen.layer >= cache.layers or chosen.head >= cache.heads):
                expected = f"a layer below {cache.layers} and a head below {cache.heads}"
                raise ValueError(f"alignment_heads: expected {expected}, got {chosen}")
        return self

    @field_validator("states")
    @classmethod
    def _check_states(cls, states: tuple[StateSpec, ...]) -> tuple[StateSpec, ...]:
        _check_unique(state.name for state in states)
        integers = next((state.name for state in states if state.element != "float"), None)
        if integers is not None:
            raise ValueError(f"{integers}: element: expected float, got int8")
        return states

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        for direction in self.directions:
            self._check_in_vocabulary(f"directions: {direction}: source_prefix", direction.source_prefix)
            self._check_in_vocabulary(f"directions: {direction}: start", direction.start)
        if self.multilingual is not None:
            self._check_in_vocabulary("multilingual: source_prefix", self.multilingual.source_prefix)
            for language in self.multilingual.languages:
                self._check_in_vocabulary(f"multilingual: {language.language}", (language.token_id,))
        self._check_in_vocabulary("source_suffix", self.source_suffix)
        for name in ("pad_id", "unk_id", "bos_id", "eos_id"):
            self._check_in_vocabulary(name, (getattr(self, name),))
        return self

    def _check_in_vocabulary(self, field: str, ids: tuple[int, ...]) -> None:
        if any(token_id >= self.vocabulary_size for token_id in ids):
            raise ValueError(f"{field}: expected ids below {self.vocabulary_size}, got {ids}")

    def check_golden(self, golden: Iterable[GoldenSentence]) -> None:
        """Checks golden sentences against limits and vocabulary; raises ValueError naming the first wrong field."""
        for number, sentence in enumerate(golden):
            for field, ids, least, most in (
                ("source_ids", sentence.source_ids, 1, self.max_source_tokens),
                ("target_ids", sentence.target_ids, 0, self.max_target_tokens),
            ):
                self._check_in_vocabulary(f"{number}: {field}", ids)
                if not least <= len(ids) <= most:
                    raise ValueError(f"{number}: {field}: expected {least} to {most} ids, got {len(ids)}")

    @model_validator(mode="after")
    def _check_signatures(self) -> Self:
        if (self.cache is None) == (not self.states):
            raise ValueError(f"states: expected states or a cache, got {'both' if self.states else 'neither'}")
        for field, actual, expected in (
            self._signatures() if self.cache is None else self._native_signatures(self.cache)
        ):
            if actual != expected:
                raise ValueError(f"{field}: expected {', '.join(expected)} for the states, got {', '.join(actual)}")
        return self

    def _native_signatures(self, cache: CacheSpec) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        source, target = cache.names("source"), cache.names("target")
        yield "encoder.inputs", self.encoder.inputs, (*ENCODE_INPUTS, *source)
        yield "encoder.outputs", self.encoder.outputs, tuple(map(present, source))
        candidates = CANDIDATE_INPUTS if self.shortlist else ()
        yield "decoder.inputs", self.decoder.inputs, (*STEP_INPUTS, *candidates, *target, *source)
        yield "decoder.outputs", self.decoder.outputs, (*STEP_OUTPUTS, *map(present, target))

    def _signatures(self) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        written = [state.name for state in self.states if state.kind != "target"]
        read = [state.decoder_input for state in self.states]
        stepped = [state.decoder_output for state in self.states if state.decoder_output is not None]
        for field, actual, optional, states in (
            ("encoder.inputs", self.encoder.inputs, ENCODER_INPUTS, []),
            ("encoder.outputs", self.encoder.outputs, (), written),
            ("decoder.inputs", self.decoder.inputs, DECODER_INPUTS, read),
            ("decoder.outputs", self.decoder.outputs, (), [LOGITS, *stepped]),
        ):
            yield field, actual, (*(name for name in optional if name in actual), *states)


def is_model_name(name: object) -> TypeGuard[str]:
    """Returns whether a value is a valid name of a model."""
    try:
        _MODEL_NAME.validate_python(name)
    except ValidationError:
        return False
    return True


def _check_unique(names: Iterable[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"expected distinct names, got {twice} twice")
