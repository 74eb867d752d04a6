"""Imports encoder-decoder Transformers of CTranslate2, and Argos Translate packages, which contain one.

Variables have the names of CTranslate2's `TransformerSpec`. Unknown variables, and options that Dragoman's models do
not support, are rejected by name. Special tokens and source prefixes come from the files next to model.bin.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.export.imports import common
from dragoman.export.imports.ctranslate2_files import (
    CONFIG_FILE,
    FIRST_WITH_CONFIG,
    MODEL_FILE,
    Config,
    ModelFile,
    OpenPackage,
    Variable,
    Vocabularies,
    dequantized,
    open_package,
    read_config,
    read_model_file,
    read_vocabularies,
)
from dragoman.export.imports.ctranslate2_layers import Variables, read_shape, read_stack
from dragoman.export.imports.ctranslate2_tokenizer import PAD_PIECES, read_tokenizer
from dragoman.export.imports.multilingual import (
    FROM_SOURCE,
    FROM_TARGET,
    M2M100_TOKEN,
    MADLAD_TOKEN,
    LanguageRules,
    find_languages,
    select_directions,
)
from dragoman.export.imports.stored import StoredArray
from dragoman.export.imports.t5 import instruction, madlad_rules
from dragoman.export.source_model import Exportable, ImportedTokenizer, Languages
from dragoman.model.config import TransformerConfig
from dragoman.model.tokenizer.tokenizer import SpecialIds
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.manifest import AttentionHead, BundleDirection
from dragoman.tables import read_table

SPECIFICATION = "TransformerSpec"
# Names of earlier specifications, which do not store the number of heads.
EARLIER_SPECIFICATIONS = {"": 8, "TransformerBase": 8, "TransformerBig": 16}
# Revision 1 has the names of OpenNMT-tf. From 3 on, the number of heads is stored. From 5 on, each stack has its own
# options.
NAMED_BY_OPENNMT, FIRST_WITH_HEADS, FIRST_PER_STACK, NEWEST_REVISION = 1, 3, 5, 7
_NAMES: dict[str, Any] = read_table(__file__, "ctranslate2.yaml")

# CTranslate2's defaults, used if config.json has none.
USUAL_EPSILON = {"layer": 1e-5, "rms": 1e-6}


@dataclass(frozen=True, slots=True)
class TransformerVariables:
    """A Transformer as stored by CTranslate2.

    Attributes:
        fields: of `TransformerConfig` or `ImportedConfig`, without ties and biases.
        parameters: of layers, final norms and positions, by Dragoman's names.
        source_embedding: [V source, d_model].
        target_embedding: [V target, d_model].
        output: [V target, d_model].
        output_bias: [V target].
        starts_from_zero: True if the decoder starts from a zero embedding instead of a BOS token.
        alignment_heads: those that the file names; empty: none.
    """

    fields: dict[str, object]
    limits: common.Limits
    parameters: dict[str, common.Parameter]
    source_embedding: StoredArray
    target_embedding: StoredArray
    output: StoredArray
    output_bias: common.Array | None
    starts_from_zero: bool
    alignment_heads: tuple[AttentionHead, ...]


def read_transformer(
    path: Path, file: ModelFile, config: Config, options: common.ImportOptions
) -> TransformerVariables:
    """Returns the variables of a model; raises ImportedModelError if one is missing or not supported."""
    if file.specification not in (SPECIFICATION, *EARLIER_SPECIFICATIONS):
        raise common.ImportedModelError(f"{path}: {file.specification}: expected {SPECIFICATION}, an encoder-decoder")
    if not NAMED_BY_OPENNMT <= file.revision <= NEWEST_REVISION:
        expected = f"expected {NAMED_BY_OPENNMT} to {NEWEST_REVISION}: convert the model again"
        raise common.ImportedModelError(f"{path}: revision of {SPECIFICATION} is {file.revision}, {expected}")
    variables = file.variables
    if file.revision == NAMED_BY_OPENNMT:
        variables = {_current_name(name): value for name, value in variables.items()}
    variables = dequantized(path, variables)
    if file.revision < FIRST_WITH_HEADS and file.specification in EARLIER_SPECIFICATIONS:
        variables["num_heads"] = np.array(EARLIER_SPECIFICATIONS[file.specification], np.int8)
    if file.revision < FIRST_PER_STACK:
        variables = _per_stack(variables)
    # Strings among the variables are the configuration of earlier versions.
    stored = {name: value for name, value in variables.items() if name not in _NAMES["root options"]}
    scalars = {name: float(np.asarray(value)) for name, value in stored.items() if value.size == 1 and value.ndim == 0}
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise common.ImportedModelError(f"{path}: {name}: {value}: expected a finite number")
    flags = {name for name, value in stored.items() if value.dtype == np.int8}
    with common.Tensors(path, {name: value for name, value in stored.items() if name not in scalars}) as weights:
        return _read(Variables(path, scalars, flags, weights), config, options)


def _read(variables: Variables, config: Config, options: common.ImportOptions) -> TransformerVariables:
    """Converts variables by removing each one that it reads; remaining ones are rejected."""
    tensors = variables.tensors
    source_embedding, target_embedding = (_embedding(tensors, stack) for stack in ("encoder", "decoder"))
    starts_from_zero = bool(variables.number("decoder/start_from_zero_embedding", 0.0))
    fields = read_shape(variables, source_embedding.shape[-1])
    fields["norm_epsilon"] = config.layer_norm_epsilon or USUAL_EPSILON[str(fields["norm"])]
    stored = [tensors.take_optional(f"{stack}/position_encodings/encodings") for stack in ("encoder", "decoder")]
    limits = common.find_limits(options, min((len(table) for table in stored if table is not None), default=None))
    shape = common.shape_of(fields, limits)
    parameters: dict[str, common.Parameter] = {}
    for side, stack, table in zip(("source", "target"), ("encoder", "decoder"), stored, strict=True):
        parameters |= read_stack(variables, stack, shape, limits.positions)
        parameters[f"{side}_positions.table"] = _positions(table, limits, shape)
    _scale_outputs(variables, shape, parameters)
    alignment_heads = _alignment_heads(variables, shape)
    variables.check_left()
    output = tensors.take("decoder/projection/weight", target_embedding.shape)
    bias = "decoder/projection/bias"
    return TransformerVariables(
        fields=fields,
        limits=limits,
        parameters=parameters,
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        output=output,
        output_bias=tensors.take(bias, (len(output),)).read() if tensors.has(bias) else None,
        starts_from_zero=starts_from_zero,
        alignment_heads=alignment_heads,
    )


def _embedding(tensors: common.Tensors, stack: str) -> StoredArray:
    older, newer = f"{stack}/embeddings/weight", f"{stack}/embeddings_0/weight"
    return tensors.take_matrix(newer if tensors.has(newer) else older)


def _positions(stored: StoredArray | None, limits: common.Limits, shape: TransformerConfig) -> common.Array:
    """Returns position vectors: stored ones, those that CTranslate2 computes, or zeros if distances replace them."""
    if stored is not None:
        return stored.read()[: limits.positions]
    if shape.distances != "none":
        return np.zeros((limits.positions, shape.d_model), np.float32)
    # Source: CTranslate2's src/layers/common.cc.
    return common.sinusoids(limits.positions, shape.d_model, first=1)


def _alignment_heads(variables: Variables, shape: TransformerConfig) -> tuple[AttentionHead, ...]:
    """Returns the heads that the file names for alignments.

    Defaults of CTranslate2 and of training libraries name none: a layer counted from the last one, one head or all.
    """
    layer = int(variables.number("decoder/alignment_layer", -1))
    count = int(variables.number("decoder/alignment_heads", 1))
    if layer < 0 and count <= 1:
        return ()
    layers = shape.decoder_layers
    if not -layers <= layer < layers:
        raise variables.refusal("decoder/alignment_layer", layer, f"-{layers} to {layers - 1}")
    if not 0 <= count <= shape.heads:
        raise variables.refusal("decoder/alignment_heads", count, f"0 to {shape.heads}")
    return tuple(AttentionHead(layer=layer % layers, head=head) for head in range(count or shape.heads))


def _scale_outputs(variables: Variables, shape: TransformerConfig, parameters: dict[str, common.Parameter]) -> None:
    """Multiplies the final normalization of the decoder by the factor of its result, as T5 with tied embeddings has."""
    name = "decoder/scale_outputs"
    factor = variables.number(name, 1.0)
    if factor == 1:
        return
    if shape.norm_position != "pre":
        raise variables.refusal(name, f"{factor:g}", "1 without a final normalization")
    for parameter in ("decoder_norm.weight", "decoder_norm.bias"):
        if parameter in parameters:
            parameters[parameter] = np.asarray(parameters[parameter]) * np.float32(factor)


def _current_name(name: str) -> str:
    """Returns the name that a variable of the first revision has now."""
    stack = "encoder" if "encoder" in name else "decoder"
    for earlier, current in (*_NAMES["earlier names"], *_NAMES[f"earlier {stack} names"]):
        name = name.replace(earlier, current, 1)
    return name


def _per_stack(variables: dict[str, Variable]) -> dict[str, Variable]:
    """Copies the options of the whole model to both stacks."""
    options = _NAMES["whole model options"]
    handed = {
        f"{stack}/{name}": value
        for name, value in variables.items()
        for stack in ("encoder", "decoder")
        if name in options
    }
    return {**{name: value for name, value in variables.items() if name not in options}, **handed}


def import_ctranslate2(path: Path, options: common.ImportOptions) -> Exportable:
    """Returns the model of a folder or an Argos package; raises ImportedModelError if it is none, or not supported."""
    with common.importing(path), open_package(path, options) as package:
        folder = package.model
        file = read_model_file(folder / MODEL_FILE)
        config = read_config(folder, file)
        variables = read_transformer(folder / MODEL_FILE, file, config, options)
        vocabularies = read_vocabularies(folder, config.unk)
        # The target prefix of a package is the only language token that it needs.
        languages = {} if package.target_prefix else find_languages(vocabularies.target)
        tokenizer = read_tokenizer(folder, config, vocabularies, languages.values(), package.complete(options))
        model = _model(folder, config, vocabularies, variables)
        is_t5 = model.config.distances == "bias"
        # Models that start from zeros come from Marian, whose sources end in EOS. Conversions from Hugging Face omit
        # the flag, also of multilingual models and T5.
        ends = config.add_source_eos or variables.starts_from_zero or is_t5 or bool(languages)
        source_path, pieces = vocabularies.source_path, vocabularies.source
        prefix = (common.find_piece(source_path, pieces, config.bos),) if config.add_source_bos else ()
        suffix = (common.find_piece(source_path, pieces, config.eos),) if ends else ()
        found: Languages
        if languages:
            rules = _rules(vocabularies, model, tokenizer, languages)
            found = select_directions(languages, rules, package.complete(options))
        else:
            directions = _directions(package, vocabularies, options, prefix)
            found = (_instructed(directions, tokenizer) if is_t5 else directions), None
        config_fields = common.read_fields(folder / CONFIG_FILE) if file.version >= FIRST_WITH_CONFIG else {}
        exportable = Exportable.of_import("ctranslate2", config_fields, model, tokenizer, found, source_suffix=suffix)
        return replace(exportable, alignment_heads=variables.alignment_heads)


# SMaLL-100 has the vocabulary of M2M100, and fewer decoder layers than any M2M100.
SMALL100_DECODER_LAYERS = 3


def _rules(
    vocabularies: Vocabularies, model: TransformerWeights, tokenizer: ImportedTokenizer, languages: Mapping[str, int]
) -> LanguageRules:
    """Returns where a multilingual model expects language tokens."""
    first = vocabularies.target[min(languages.values())]
    if MADLAD_TOKEN.fullmatch(first):
        return madlad_rules(vocabularies.source_path, tokenizer, languages)
    is_small100 = M2M100_TOKEN.fullmatch(first) and model.config.decoder_layers == SMALL100_DECODER_LAYERS
    return FROM_TARGET if is_small100 else FROM_SOURCE


def _instructed(directions: tuple[BundleDirection, ...], tokenizer: ImportedTokenizer) -> tuple[BundleDirection, ...]:
    """Returns the directions of T5 with its instructions before the sources."""
    return tuple(
        direction.model_copy(
            update={
                "source_prefix": (*direction.source_prefix, *instruction(tokenizer, direction.source, direction.target))
            }
        )
        for direction in directions
    )


def _directions(
    package: OpenPackage, vocabularies: Vocabularies, options: common.ImportOptions, prefix: tuple[int, ...]
) -> tuple[BundleDirection, ...]:
    """Returns the directions; the target prefix of a package starts every translation."""
    found = common.find_directions(vocabularies.source, options, package.source, package.target, prefix)
    if not package.target_prefix:
        return found
    start = common.find_piece(vocabularies.target_path, vocabularies.target, package.target_prefix)
    return tuple(result.model_copy(update={"start": (start,)}) for result in found)


def _model(
    folder: Path, config: Config, vocabularies: Vocabularies, variables: TransformerVariables
) -> TransformerWeights:
    for path, pieces, embedding in (
        (vocabularies.source_path, vocabularies.source, variables.source_embedding),
        (vocabularies.target_path, vocabularies.target, variables.target_embedding),
    ):
        # An unknown piece that was appended may have no row.
        without_unknown = len(pieces) - (pieces[-1] == config.unk)
        if len(embedding) not in (len(pieces), without_unknown):
            raise common.ImportedModelError(
                f"{path}: {len(pieces)} pieces, expected {len(embedding)} as in {MODEL_FILE}"
            )
    size, special = _special_ids(folder, config, vocabularies, variables)
    matrices, is_tied = common.embeddings(
        variables.source_embedding, variables.target_embedding, variables.output, size
    )
    is_biased = variables.output_bias is not None or len(variables.output) < size
    fields = {**variables.fields, "tie_embeddings": is_tied, "output_bias": is_biased}
    parameters = variables.parameters | matrices
    if is_biased:
        parameters["output_bias"] = _output_bias(variables, size)
    return common.build_transformer(fields, variables.limits, size, special, parameters)


def _output_bias(variables: TransformerVariables, size: int) -> common.Array:
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
        raise common.ImportedModelError(f"{folder / CONFIG_FILE}: decoder_start_token: null: expected a token")
    bos = size
    if not variables.starts_from_zero:
        bos = common.find_piece(vocabularies.target_path, vocabularies.target, config.start)
    eos = common.find_piece(vocabularies.target_path, vocabularies.target, config.eos)
    added = variables.starts_from_zero or pad is None
    return size + added, SpecialIds(pad=size if pad is None else pad, bos=bos, eos=eos)
