"""Imports encoder-decoder Transformers of CTranslate2, and Argos Translate packages, which contain one.

Variables have the names of CTranslate2's `TransformerSpec`. Unknown variables, and options that Dragoman's models do
not support, are rejected by name. Special tokens and source prefixes come from the files next to model.bin.
"""

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

import numpy as np

from export.imports.common import (
    Array,
    ImportedModelError,
    ImportOptions,
    SpecialIds,
    Tensors,
    build_transformer,
    find_directions,
    find_limits,
    find_piece,
    grown,
    importing,
    read_fields,
)
from export.imports.ctranslate2_files import (
    CONFIG_FILE,
    FIRST_WITH_CONFIG,
    MODEL_FILE,
    PAD_PIECES,
    Config,
    ModelFile,
    OpenPackage,
    Variable,
    Vocabularies,
    dequantized,
    open_package,
    read_config,
    read_model_file,
    read_tokenizer,
    read_vocabularies,
)
from export.imports.multilingual import (
    FROM_SOURCE,
    FROM_TARGET,
    M2M100_TOKEN,
    LanguageRules,
    find_languages,
    select_directions,
)
from export.source_model import Exportable
from model.weights import TransformerWeights
from serve.bundle.manifest import BundleDirection

SPECIFICATION = "TransformerSpec"
# Names of earlier specifications, which do not store the number of heads.
EARLIER_SPECIFICATIONS = {"": 8, "TransformerBase": 8, "TransformerBig": 16}
# Revision 1 has the names of OpenNMT-tf. From 3 on, the number of heads is stored. From 5 on, each stack has its own
# options.
NAMED_BY_OPENNMT, FIRST_WITH_HEADS, FIRST_PER_STACK, NEWEST_REVISION = 1, 3, 5, 7
# Parts of names of revision 1 and what replaces their first occurrence, in this order.
# Source: CTranslate2's src/models/transformer.cc.
EARLIER_NAMES = (
    ("transformer/", ""),
    (":0", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
)
EARLIER_ENCODER_NAMES = (("multi_head", "self_attention"),)
EARLIER_DECODER_NAMES = (("masked_multi_head", "self_attention"), ("multi_head", "attention"))

ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
ACTIVATION_NAMES = ("ReLU", "GELU by tanh", "Swish", "GELU", "GELU by sigmoid", "tanh", "sigmoid")
# CTranslate2's defaults, used if config.json has none.
USUAL_EPSILON = {"layer": 1e-5, "rms": 1e-6}

# Options without effect on tokens, as long as the REFUSED options are off.
IGNORED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
REFUSED = ("alibi", "multi_query_attention")
WHOLE_MODEL_OPTIONS = ("num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer", "alignment_heads")
ROOT_OPTIONS = (
    "unk_token",
    "bos_token",
    "eos_token",
    "with_source_bos",
    "with_source_eos",
    "with_target_bos",
    "user_decoder_start_tokens",
)


@dataclass(frozen=True, slots=True)
class TransformerVariables:
    """A Transformer as stored by CTranslate2.

    Attributes:
        fields: of `TransformerConfig`, without limits, ties and biases.
        layers: parameters of layers and final norms, by Dragoman's names.
        source_embedding: [V source, d_model].
        target_embedding: [V target, d_model].
        output: [V target, d_model].
        output_bias: [V target].
        positions: of source and target, [positions, d_model]; None if CTranslate2 computes them.
        starts_from_zero: True if the decoder starts from a zero embedding instead of a BOS token.
    """

    fields: dict[str, object]
    layers: dict[str, Array]
    source_embedding: Array
    target_embedding: Array
    output: Array
    output_bias: Array | None
    positions: tuple[Array | None, Array | None]
    starts_from_zero: bool


def read_transformer(path: Path, file: ModelFile, config: Config) -> TransformerVariables:
    """Returns the variables of a model; raises ImportedModelError if one is missing or not supported."""
    if file.specification not in (SPECIFICATION, *EARLIER_SPECIFICATIONS):
        raise ImportedModelError(f"{path}: {file.specification}: expected {SPECIFICATION}, an encoder-decoder")
    if not NAMED_BY_OPENNMT <= file.revision <= NEWEST_REVISION:
        expected = f"expected {NAMED_BY_OPENNMT} to {NEWEST_REVISION}: convert the model again"
        raise ImportedModelError(f"{path}: revision of {SPECIFICATION} is {file.revision}, {expected}")
    variables = file.variables
    if file.revision == NAMED_BY_OPENNMT:
        variables = {_current_name(name): value for name, value in variables.items()}
    variables = dequantized(path, variables)
    if file.revision < FIRST_WITH_HEADS and file.specification in EARLIER_SPECIFICATIONS:
        variables["num_heads"] = np.array(EARLIER_SPECIFICATIONS[file.specification], np.int8)
    if file.revision < FIRST_PER_STACK:
        variables = _per_stack(variables)
    # Strings among the variables are the configuration of earlier versions.
    stored = {name: value for name, value in variables.items() if name not in ROOT_OPTIONS}
    scalars = {name: float(value.reshape(())) for name, value in stored.items() if value.size == 1 and value.ndim == 0}
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise ImportedModelError(f"{path}: {name}: {value}: expected a finite number")
    flags = {name for name, value in stored.items() if value.dtype == np.int8}
    tensors = {name: value for name, value in stored.items() if name not in scalars}
    with Tensors(path, tensors) as weights:
        return _Reader(path, scalars, flags, weights).read(config)


def computed_positions(length: int, d_model: int) -> Array:
    """Returns the position encodings that CTranslate2 computes for models without any, float32 [length, d_model].

    All sines, then all cosines, of angles (position + 1) / 10000^(i / (d_model / 2 - 1)).
    Source: CTranslate2's src/layers/common.cc, which uses the formula of tensor2tensor.
    """
    scales = np.exp(np.arange(d_model // 2) * (-math.log(10000.0) / max(1, d_model // 2 - 1)))
    angles = np.arange(1, length + 1)[:, None] * scales
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1).astype(np.float32)


class _Reader:
    """Converts variables by removing each one that it reads; remaining ones are rejected."""

    def __init__(self, path: Path, scalars: dict[str, float], flags: AbstractSet[str], weights: Tensors) -> None:
        self._path = path
        self._scalars = scalars
        self._flags = flags
        self._weights = weights

    def read(self, config: Config) -> TransformerVariables:
        """Converts all variables."""
        weights = self._weights
        source_embedding, target_embedding = self._embedding("encoder"), self._embedding("decoder")
        starts_from_zero = bool(self._scalars.pop("decoder/start_from_zero_embedding", 0.0))
        d_model = source_embedding.shape[-1]
        fields = self._shape(d_model)
        self._check_left()
        norm = "layer" if weights.has("encoder/layer_0/self_attention/layer_norm/beta") else "rms"
        epsilon = config.layer_norm_epsilon or USUAL_EPSILON[norm]
        fields |= {"norm": norm, "norm_epsilon": epsilon, "positions": "learned"}
        fields["norm_embeddings"] = weights.has("encoder/layernorm_embedding/gamma")
        if weights.has("encoder/layer_0/ffn/linear_0_noact/weight"):
            if fields["activation"] != "silu":
                raise self._refusal("encoder/activation", fields["activation"], "Swish in gated layers")
            fields["activation"] = "swiglu"
        layers = dict(self._stack("encoder", fields)) | dict(self._stack("decoder", fields))
        if not fields["encoder_layers"] or not fields["decoder_layers"]:
            raise self._refusal("encoder and decoder", "no layers", "at least one each")
        fields["d_ff"] = len(layers["encoder.0.feed_forward.inner.weight"])
        output = weights.take("decoder/projection/weight", target_embedding.shape)
        return TransformerVariables(
            fields=fields,
            layers=layers,
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            output=output,
            output_bias=self._output_bias(len(output)),
            positions=(
                weights.take_optional("encoder/position_encodings/encodings"),
                weights.take_optional("decoder/position_encodings/encodings"),
            ),
            starts_from_zero=starts_from_zero,
        )

    def _embedding(self, stack: str) -> Array:
        older, newer = f"{stack}/embeddings/weight", f"{stack}/embeddings_0/weight"
        name = newer if self._weights.has(newer) else older
        return self._weights.take_matrix(name)

    def _output_bias(self, size: int) -> Array | None:
        name = "decoder/projection/bias"
        return self._weights.take(name, (size,)) if self._weights.has(name) else None

    def _shape(self, d_model: int) -> dict[str, object]:
        """Returns the fields that both stacks must share, and the number of layers of each stack."""
        fields: dict[str, object] = {"d_model": d_model}
        for name, read in (
            ("heads", self._heads),
            ("norm_position", self._norm_position),
            ("activation", self._activation),
            ("scale_embeddings", lambda stack: self._scaled(stack, d_model)),
        ):
            encoder, decoder = read("encoder"), read("decoder")
            if encoder != decoder:
                raise self._refusal(f"decoder: {name}", decoder, f"{encoder} as in the encoder")
            fields[name] = encoder
        for stack in ("encoder", "decoder"):
            layers = (f"{stack}/layer_{number}/self_attention/linear_0/weight" for number in count())
            fields[f"{stack}_layers"] = sum(1 for _ in takewhile(self._weights.has, layers))
        return fields

    def _heads(self, stack: str) -> int:
        name = f"{stack}/num_heads"
        if name not in self._scalars:
            raise ImportedModelError(f"{self._path}: {name}: missing tensor")
        return int(self._scalars.pop(name))

    def _norm_position(self, stack: str) -> str:
        return "pre" if self._scalars.pop(f"{stack}/pre_norm", 1.0) else "post"

    def _activation(self, stack: str) -> str:
        name = f"{stack}/activation"
        number = int(self._scalars.pop(name, 0.0))
        if number not in ACTIVATIONS:
            value = ACTIVATION_NAMES[number] if 0 <= number < len(ACTIVATION_NAMES) else number
            raise self._refusal(name, value, ", ".join(ACTIVATION_NAMES[known] for known in ACTIVATIONS))
        return ACTIVATIONS[number]

    def _scaled(self, stack: str, d_model: int) -> bool:
        """Returns True if embeddings are multiplied by sqrt(d_model): stored as a flag, as the factor, or implied."""
        newer, older = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"
        name = newer if newer in self._scalars else older
        if name not in self._scalars:
            return True
        factor = self._scalars.pop(name)
        if name in self._flags:
            return bool(factor)
        if not math.isclose(factor, math.sqrt(d_model), rel_tol=1e-6) and factor != 1:
            raise self._refusal(name, factor, f"1 or {math.sqrt(d_model)}")
        return factor != 1

    def _stack(self, stack: str, fields: dict[str, object]) -> Iterator[tuple[str, Array]]:
        gated = fields["activation"] == "swiglu"
        for number in range(int(str(fields[f"{stack}_layers"]))):
            ours, theirs = f"{stack}.{number}", f"{stack}/layer_{number}"
            yield from self._split(f"{ours}.self_attention", f"{theirs}/self_attention/linear_0", "query key value")
            yield from self._linear(f"{ours}.self_attention.output", f"{theirs}/self_attention/linear_1")
            yield from self._norm(f"{ours}.self_attention_residual.norm", f"{theirs}/self_attention/layer_norm", fields)
            if stack == "decoder":
                yield from self._linear(f"{ours}.cross_attention.query", f"{theirs}/attention/linear_0")
                yield from self._split(f"{ours}.cross_attention", f"{theirs}/attention/linear_1", "key value")
                yield from self._linear(f"{ours}.cross_attention.output", f"{theirs}/attention/linear_2")
                yield from self._norm(f"{ours}.cross_attention_residual.norm", f"{theirs}/attention/layer_norm", fields)
            names = {"gate": "linear_0", "inner": "linear_0_noact"} if gated else {"inner": "linear_0"}
            for part, name in {**names, "outer": "linear_1"}.items():
                yield from self._linear(f"{ours}.feed_forward.{part}", f"{theirs}/ffn/{name}", biased=not gated)
            yield from self._norm(f"{ours}.feed_forward_residual.norm", f"{theirs}/ffn/layer_norm", fields)
        if fields["norm_position"] == "pre":
            yield from self._norm(f"{stack}_norm", f"{stack}/layer_norm", fields)
        if fields["norm_embeddings"]:
            side = {"encoder": "source", "decoder": "target"}[stack]
            yield from self._norm(f"{side}_embedding_norm", f"{stack}/layernorm_embedding", fields)

    def _split(self, ours: str, theirs: str, parts: str) -> Iterator[tuple[str, Array]]:
        """Splits a packed projection into its parts, each with a bias."""
        names = parts.split()
        packed = dict(self._linear("packed", theirs))
        shape = packed["packed.weight"].shape
        if shape[0] % len(names):
            raise self._refusal(f"{theirs}/weight", shape, f"a multiple of {len(names)} rows")
        for kind in ("weight", "bias"):
            for name, part in zip(names, np.split(packed[f"packed.{kind}"], len(names)), strict=True):
                yield f"{ours}.{name}.{kind}", part

    def _linear(self, ours: str, theirs: str, *, biased: bool = True) -> Iterator[tuple[str, Array]]:
        weight = self._weights.take_matrix(f"{theirs}/weight")
        yield f"{ours}.weight", weight
        if biased:
            name = f"{theirs}/bias"
            has_bias = self._weights.has(name)
            yield (
                f"{ours}.bias",
                self._weights.take(name, (len(weight),)) if has_bias else np.zeros(len(weight), np.float32),
            )

    def _norm(self, ours: str, theirs: str, fields: dict[str, object]) -> Iterator[tuple[str, Array]]:
        yield f"{ours}.weight", self._weights.take(f"{theirs}/gamma")
        if fields["norm"] == "layer":
            yield f"{ours}.bias", self._weights.take(f"{theirs}/beta")

    def _check_left(self) -> None:
        """Rejects unknown options that are set."""
        for name, value in sorted(self._scalars.items()):
            option = name.rpartition("/")[2]
            if option in REFUSED and not value:
                continue
            if option not in IGNORED:
                raise self._refusal(name, f"{value:g}", "no such option: it is not supported")

    def _refusal(self, name: str, value: object, expected: object) -> ImportedModelError:
        return ImportedModelError(f"{self._path}: {name}: {value}: expected {expected}")


def _current_name(name: str) -> str:
    """Returns the name that a variable of the first revision has now."""
    side = EARLIER_ENCODER_NAMES if "encoder" in name else EARLIER_DECODER_NAMES
    for earlier, current in (*EARLIER_NAMES, *side):
        name = name.replace(earlier, current, 1)
    return name


def _per_stack(variables: dict[str, Variable]) -> dict[str, Variable]:
    """Copies the options of the whole model to both stacks."""
    handed = {
        f"{stack}/{name}": value
        for name, value in variables.items()
        for stack in ("encoder", "decoder")
        if name in WHOLE_MODEL_OPTIONS
    }
    return {**{name: value for name, value in variables.items() if name not in WHOLE_MODEL_OPTIONS}, **handed}


def import_ctranslate2(path: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a folder or an Argos package.

    Raises:
        ImportedModelError: if the path is no such model, or Dragoman's models do not support it.
    """
    with importing(path), open_package(path, options) as package:
        folder = package.model
        file = read_model_file(folder / MODEL_FILE)
        config = read_config(folder, file)
        variables = read_transformer(folder / MODEL_FILE, file, config)
        vocabularies = read_vocabularies(folder)
        # The target prefix of a package is the only language token that it needs.
        languages = {} if package.target_prefix else find_languages(vocabularies.target)
        tokenizer = read_tokenizer(folder, config, vocabularies, languages.values())
        model = _model(folder, config, vocabularies, variables, options)
        prefix, suffix = _around_sources(config, vocabularies, variables, multilingual=bool(languages))
        if languages:
            rules = _rules(vocabularies, model)
            directions, multilingual = select_directions(languages, rules, package.asked(options))
        else:
            directions, multilingual = _directions(package, vocabularies, options, prefix), None
        config_fields = read_fields(folder / CONFIG_FILE) if file.version >= FIRST_WITH_CONFIG else {}
        return Exportable(
            model=model,
            tokenizer=tokenizer,
            directions=directions,
            multilingual=multilingual,
            source_suffix=suffix,
            unk_id=tokenizer.unk_id,
            training={"imported_from": "ctranslate2", "config": config_fields},
            steps=0,
        )


# SMaLL-100 has the vocabulary of M2M100, and fewer decoder layers than any M2M100.
SMALL100_DECODER_LAYERS = 3


def _rules(vocabularies: Vocabularies, model: TransformerWeights) -> LanguageRules:
    """Returns where a multilingual model expects language tokens."""
    is_m2m100 = any(M2M100_TOKEN.fullmatch(piece) for piece in vocabularies.target)
    return FROM_TARGET if is_m2m100 and model.config.decoder_layers == SMALL100_DECODER_LAYERS else FROM_SOURCE


def _directions(
    package: OpenPackage, vocabularies: Vocabularies, options: ImportOptions, prefix: tuple[int, ...]
) -> tuple[BundleDirection, ...]:
    """Returns the directions; the target prefix of a package starts every translation."""
    found = find_directions(vocabularies.source, options, source=package.source, target=package.target, prefix=prefix)
    if not package.target_prefix:
        return found
    start = find_piece(vocabularies.target_path, vocabularies.target, package.target_prefix)
    return tuple(each.model_copy(update={"start": (start,)}) for each in found)


def _model(
    folder: Path, config: Config, vocabularies: Vocabularies, variables: TransformerVariables, options: ImportOptions
) -> TransformerWeights:
    for path, pieces, embedding in (
        (vocabularies.source_path, vocabularies.source, variables.source_embedding),
        (vocabularies.target_path, vocabularies.target, variables.target_embedding),
    ):
        if len(pieces) != len(embedding):
            raise ImportedModelError(f"{path}: {len(pieces)} pieces, expected {len(embedding)} as in {MODEL_FILE}")
    lengths = [len(table) for table in variables.positions if table is not None]
    limits = find_limits(options, min(lengths) if lengths else None)
    size, special = _special_ids(folder, config, vocabularies, variables)
    fields = {
        **variables.fields,
        "max_source_tokens": limits.max_source_tokens,
        "max_target_tokens": limits.max_target_tokens,
    }
    parameters = dict(variables.layers)
    for side, table in zip(("source", "target"), variables.positions, strict=True):
        width = variables.source_embedding.shape[1]
        known = computed_positions(limits.positions, width) if table is None else table
        parameters[f"{side}_positions.table"] = known[: limits.positions]
    source, target, output = (
        grown(weight, size) for weight in (variables.source_embedding, variables.target_embedding, variables.output)
    )
    parameters["embedding.weight"] = source
    fields["tie_embeddings"] = np.array_equal(source, target) and np.array_equal(source, output)
    if not fields["tie_embeddings"]:
        parameters |= {"target_embedding.weight": target, "output.weight": output}
    fields["output_bias"] = variables.output_bias is not None or len(variables.output) < size
    if fields["output_bias"]:
        parameters["output_bias"] = _output_bias(variables, size)
    return build_transformer(fields, size, special, parameters)


def _output_bias(variables: TransformerVariables, size: int) -> Array:
    """Returns the bias of the logits: -inf for tokens that are not in the target vocabulary."""
    known = len(variables.output)
    bias = np.zeros(known, np.float32) if variables.output_bias is None else variables.output_bias
    return np.concatenate((bias, np.full(size - known, -np.inf, np.float32)))


def _special_ids(
    folder: Path, config: Config, vocabularies: Vocabularies, variables: TransformerVariables
) -> tuple[int, SpecialIds]:
    """Returns the vocabulary size and the special tokens.

    Adds one token with a zero embedding, which is never generated, if the model starts from a zero embedding or its
    vocabulary has no padding token.
    """
    size = max(len(vocabularies.source), len(vocabularies.target))
    pad = next((vocabularies.source.index(piece) for piece in PAD_PIECES if piece in vocabularies.source), None)
    if config.start is None:
        raise ImportedModelError(f"{folder / CONFIG_FILE}: decoder_start_token: null: expected a token")
    bos = size
    if not variables.starts_from_zero:
        bos = find_piece(vocabularies.target_path, vocabularies.target, config.start)
    eos = find_piece(vocabularies.target_path, vocabularies.target, config.eos)
    added = variables.starts_from_zero or pad is None
    return size + added, SpecialIds(pad=size if pad is None else pad, bos=bos, eos=eos)


def _around_sources(
    config: Config, vocabularies: Vocabularies, variables: TransformerVariables, *, multilingual: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the tokens before and after every source."""
    path, pieces = vocabularies.source_path, vocabularies.source
    prefix = (find_piece(path, pieces, config.bos),) if config.add_source_bos else ()
    # Models that start from zeros come from Marian, whose sources end in EOS. Conversions from Hugging Face omit the
    # flag, also of multilingual models.
    ends = config.add_source_eos or variables.starts_from_zero or multilingual
    return prefix, (find_piece(path, pieces, config.eos),) if ends else ()
