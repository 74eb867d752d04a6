"""What a bundle says of itself: the records of `manifest.json` and `golden.json`, and what makes them consistent.

`serve.bundle.bundle` reads and writes them. Knows no files.

What all records of a bundle have in common: nothing changes them, and nothing unknown may stand in them.

Which tokenizer a bundle has, and which of its files make it. `serve.bundle.tokenizer` reads and writes those.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

# A name without a folder: a manifest must not lead out of its bundle.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]


class Record(BaseModel):
    """A part of `manifest.json` or `golden.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SentencePieceSpec(Record):
    """A tokenizer whose ids are those of a SentencePiece model.

    Attributes:
        model: the file of the SentencePiece model.
    """

    kind: Literal["sentencepiece"] = "sentencepiece"
    model: FileName

    @property
    def files(self) -> tuple[str, ...]:
        """The files that make it."""
        return (self.model,)


class PieceSpec(Record):
    """A tokenizer that cuts text into pieces with SentencePiece models and numbers the pieces by a vocabulary.

    Attributes:
        source_model: the file of the SentencePiece model of sources.
        target_model: that of translations; it may be the same one.
        source_vocabulary: a JSON list of the pieces of sources, in the order of their ids.
        target_vocabulary: the same for translations; it may be the same one.
        unknown_piece: stands for pieces that the source vocabulary lacks.
        special_pieces: those that no text contains, and that vanish from a translation.
    """

    kind: Literal["pieces"] = "pieces"
    source_model: FileName
    target_model: FileName
    source_vocabulary: FileName
    target_vocabulary: FileName
    unknown_piece: str
    special_pieces: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that make it."""
        return (self.source_model, self.target_model, self.source_vocabulary, self.target_vocabulary)


TokenizerSpec = Annotated[SentencePieceSpec | PieceSpec, Discriminator("kind")]


Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
# What graphs are made of: ONNX Runtime's fastest operators for a CPU or an NVIDIA GPU, or those of the ONNX standard.
GraphVariant = Literal["cpu", "cuda", "portable"]
# What graphs compute in: 32-bit or 16-bit floats, or products of 8-bit integers. Their activations have a scale for
# each row, which every step computes, or a static one, which was fixed at export.
Precision = Literal["fp32", "fp16", "int8", "int8-static"]
EIGHT_BITS: tuple[Precision, ...] = ("int8", "int8-static")
# What differs from row to row, in tokens.
Length = Literal["source", "target"]
Dimension = Annotated[int, Field(gt=0)] | Length
Element = Literal["float", "int8"]
WeightType = Literal["float32", "int8"]

# What the graphs take beside the state, in this order; a graph that has no use for one of them may lack it.
ENCODER_INPUTS = ("source_ids", "source_lengths")
DECODER_INPUTS = ("token_ids", "positions", "source_lengths")
LOGITS = "logits"
ALIGNMENTS = "alignments"
# What the graphs of search take and give: the one of all tokens, and the one of each row's best.
LOG_PROBABILITIES = "log_probabilities"
TOPK_INPUTS = ("scores", "count")
TOPK_OUTPUTS = ("best_scores", "token_ids")


class BundleDirection(Record):
    """What the model translates from and into, as ISO 639-1 codes.

    Attributes:
        source: language of the source.
        target: language of the translation.
        source_prefix: tokens before every source; they tell a model that writes several languages which one to write.
    """

    source: Language
    target: Language
    source_prefix: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


class StateSpec(Record):
    """One tensor of what the decoder remembers between steps.

    Its kind follows from its shape. A *source* state has the length of the source: the encoder writes it once, the
    decoder reads it. A *target* state grows by a position with every step, which the decoder writes in place. A
    *recurrent* state has no length: the encoder gives its first value, and every step replaces it.

    Attributes:
        name: of the encoder's output and, for a source state, of the decoder's input.
        shape: of one row; a length that differs from row to row has a name instead of a number.
        element: what it is made of: floats as the graphs compute in them, or 8-bit integers.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    shape: tuple[Dimension, ...]
    element: Element = "float"

    @field_validator("shape")
    @classmethod
    def _check_shape(cls, shape: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
        if sum(isinstance(dimension, str) for dimension in shape) > 1:
            raise ValueError(f"{shape} has several lengths, expected at most one")
        return shape

    @property
    def kind(self) -> Literal["source", "target", "recurrent"]:
        """Who writes the state, and when."""
        return next((dimension for dimension in self.shape if isinstance(dimension, str)), "recurrent")

    @property
    def decoder_input(self) -> str:
        """Name of the decoder's input that takes the state."""
        return self.name if self.kind == "source" else f"past_{self.name}"

    @property
    def decoder_output(self) -> str | None:
        """Name of the decoder's output that gives its next value; None if there is none, as the decoder only reads it.

        The operator that attends to integers insists on giving back what it read, even if it added nothing.
        """
        return None if self.kind == "source" and self.element == "float" else f"present_{self.name}"


class AttentionHead(Record):
    """A head of cross-attention in the decoder, both numbers counted from 0."""

    layer: int = Field(ge=0)
    head: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.layer}:{self.head}"


class ActivationRange(Record):
    """Between which values activations lay when the model translated its golden sentences; zero is among them."""

    smallest: float = Field(le=0, allow_inf_nan=False)
    largest: float = Field(ge=0, allow_inf_nan=False)


class GoldenSentence(Record):
    """A sentence and the exact answer of the trained model, computed by PyTorch at export time.

    Attributes:
        source_language: what it is written in.
        target_language: what it is translated into.
        source: the text.
        source_ids: its tokens, the prefix of its direction and the end token included.
        target_ids: tokens of the translation, the end token excluded.
        target: the translation as text.
    """

    source_language: Language
    target_language: Language
    source: str
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    target: str


class GraphSignature(Record):
    """Names of a graph's inputs and outputs, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class SharedWeight(Record):
    """A weight that encoder and decoder both read, so that a server needs it in memory once.

    Attributes:
        encoder_name: of the initializer in the encoder.
        decoder_name: the same in the decoder and the aligned decoder.
        type: of its numbers.
        shape: of the tensor, whose rows lie behind each other.
        offset_bytes: where it begins in the file of weights.
    """

    encoder_name: str
    decoder_name: str
    type: WeightType
    shape: tuple[Annotated[int, Field(gt=0)], ...]
    offset_bytes: int = Field(ge=0)


class Provenance(Record):
    """Where the model comes from: enough to train it again.

    Attributes:
        created: date and time of the export, ISO 8601, UTC.
        versions: version of each library that took part.
        training: the configuration that the model was trained with.
        steps: optimizer steps taken.
        scores: what was measured at export time, for example the share of identical sentences.
    """

    created: str
    versions: dict[str, str]
    training: dict[str, object]
    steps: int
    scores: dict[str, float]


class Manifest(Record):
    """What `manifest.json` holds. Lengths are in tokens; `max_target_tokens` does not count the end token.

    Attributes:
        directions: what the model translates.
        source_suffix: tokens after every source, most often the end token.
        tokenizer: how text becomes tokens, and tokens become text.
        bos_id: the token that every translation starts from.
        states: what the decoder remembers, in the order of the graphs' inputs and outputs.
        alignment_heads: whose weights the aligned decoder gives, in this order; none if there is no such decoder.
        variant: which operators the graphs are made of.
        precision: what they compute in.
        activation_ranges: what the scales of static quantization are made of: the values that linear layers of the
            PyTorch model read, by the name of their module.
        cache_ranges: the same for keys and values that are kept in 8-bit integers: what the linear layers wrote that
            compute them.
        opset: version of the ONNX standard that the graphs follow.
        shared_weights: what both graphs read; a bundle that lists none is served all the same, with two copies.
    """

    format_version: Literal[5] = 5
    name: str
    vocabulary_size: int = Field(gt=0)
    directions: tuple[BundleDirection, ...] = Field(min_length=1)
    source_suffix: tuple[int, ...]
    tokenizer: TokenizerSpec
    states: tuple[StateSpec, ...]
    alignment_heads: tuple[AttentionHead, ...] = ()
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int
    max_source_tokens: int = Field(gt=0)
    max_target_tokens: int = Field(gt=0)
    variant: GraphVariant = "cpu"
    precision: Precision
    activation_ranges: dict[str, ActivationRange] = Field(default_factory=dict)
    cache_ranges: dict[str, ActivationRange] = Field(default_factory=dict)
    opset: int
    encoder: GraphSignature
    decoder: GraphSignature
    shared_weights: tuple[SharedWeight, ...] = ()
    files: dict[FileName, str]
    provenance: Provenance

    @property
    def attends_to_lengths(self) -> bool:
        """Whether the decoder reads states up to each row's length alone, so that what stands behind it costs nothing.

        The operators of the standard compute with the whole capacity, and recurrent models with the longest source.
        """
        return self.variant == "cpu" and all(state.kind != "recurrent" for state in self.states)

    @field_validator("directions")
    @classmethod
    def _check_directions(cls, directions: tuple[BundleDirection, ...]) -> tuple[BundleDirection, ...]:
        _check_unique(map(str, directions))
        return directions

    @field_validator("states")
    @classmethod
    def _check_states(cls, states: tuple[StateSpec, ...]) -> tuple[StateSpec, ...]:
        _check_unique(state.name for state in states)
        return states

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        for direction in self.directions:
            self._check_in_vocabulary(f"directions: {direction}: source_prefix", direction.source_prefix)
        self._check_in_vocabulary("source_suffix", self.source_suffix)
        return self

    def _check_in_vocabulary(self, field: str, ids: tuple[int, ...]) -> None:
        if not all(0 <= token_id < self.vocabulary_size for token_id in ids):
            raise ValueError(f"{field} is {ids}, expected ids below {self.vocabulary_size}")

    @model_validator(mode="after")
    def _check_signatures(self) -> Self:
        written = [state.name for state in self.states if state.kind != "target"]
        read = [state.decoder_input for state in self.states]
        stepped = [state.decoder_output for state in self.states if state.decoder_output is not None]
        for field, actual, optional, states in (
            ("encoder.inputs", self.encoder.inputs, ENCODER_INPUTS, []),
            ("encoder.outputs", self.encoder.outputs, (), written),
            ("decoder.inputs", self.decoder.inputs, DECODER_INPUTS, read),
            ("decoder.outputs", self.decoder.outputs, (), [LOGITS, *stepped]),
        ):
            expected = (*(name for name in optional if name in actual), *states)
            if actual != expected:
                raise ValueError(f"{field}: {', '.join(actual)}: expected {', '.join(expected)} as the states are")
        return self


def first_problem(error: ValidationError) -> str:
    """Returns the first thing that is wrong with a record: the field, if it is one field's fault, and the problem."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return ": ".join(part for part in (field, problem) if part)


def _check_unique(names: Iterable[str]) -> None:
    listed = list(names)
    twice = next((name for name in listed if listed.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is there twice")
