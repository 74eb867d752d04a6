"""Imports T5, mT5 and MADLAD-400 checkpoints in Hugging Face format.

    model       source                                   directions
    T5          translate English to German: text </s>   from the tasks in config.json
    MADLAD-400  <2de> text </s>                          any two languages
    others      text </s>                                from the options

All have relative positions, RMS normalization and attention without a scale. The scale that graphs apply is undone in
the weights of the queries. Source: the model `t5` of the library `transformers`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from pydantic import Field

from dragoman.export.imports import checkpoint, common
from dragoman.export.imports.distances import bias_per_distance
from dragoman.export.imports.fairseq import filled, multilingual_tokenizer
from dragoman.export.imports.multilingual import FROM_TARGET, LanguageRules, find_languages, select_directions
from dragoman.export.source_model import ImportedTokenizer, Languages
from dragoman.model.config import InnerActivation
from dragoman.model.imported_config import attention_fields
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import open_processor
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.files import read_file
from dragoman.serve.bundle.manifest import BundleDirection

SENTENCEPIECE_FILE = "spiece.model"
_PLAIN: dict[str, InnerActivation] = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"}
_GATED = {f"gated-{name}": kind for name, kind in (_PLAIN | {"gelu": "gelu_tanh"}).items()}
# Activation, and whether there is a gate, by `feed_forward_proj`.
ACTIVATIONS = {name: (kind, name in _GATED) for name, kind in (_PLAIN | _GATED).items()}
# The languages into which T5 was trained to translate from English (Raffel et al. 2020, appendix D).
TARGETS = {"de": "German", "fr": "French", "ro": "Romanian"}
TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
SHARED, OUTPUT = "shared.weight", "lm_head.weight"
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# The first checkpoints of T5 have this table; no version of the library reads it.
UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
ATTENTION_PARTS = {"query": "q", "key": "k", "value": "v", "output": "o"}


class T5Config(checkpoint.StoredConfig):
    """The fields of config.json that determine the computation."""

    d_model: int = Field(gt=0)
    d_kv: int = Field(gt=0)
    d_ff: int = Field(gt=0)
    num_heads: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    num_decoder_layers: int | None = Field(None, gt=0)
    feed_forward_proj: str = "relu"
    layer_norm_epsilon: float = Field(1e-6, gt=0)
    relative_attention_num_buckets: int = Field(32, gt=3, le=1 << 16)
    relative_attention_max_distance: int = Field(128, gt=1)
    pad_token_id: int = Field(0, ge=0)
    eos_token_id: int = Field(1, ge=0)
    decoder_start_token_id: int = Field(0, ge=0)
    model_type: str = "t5"
    tie_word_embeddings: bool = True
    task_specific_params: dict[str, object] | None = None

    @property
    def output_scale(self) -> float:
        """Factor of the decoder's result; mT5 has none."""
        return self.d_model**-0.5 if self.tie_word_embeddings and self.model_type == "t5" else 1.0

    def check(self, path: Path) -> None:
        """Checks that the fields fit together; raises ImportedModelError naming the field."""
        if self.feed_forward_proj not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise common.ImportedModelError(
                f"{path}: feed_forward_proj: {self.feed_forward_proj}: expected one of {known}"
            )
        if self.relative_attention_max_distance <= self.relative_attention_num_buckets // 2:
            given, expected = self.relative_attention_max_distance, "more than half of relative_attention_num_buckets"
            raise common.ImportedModelError(f"{path}: relative_attention_max_distance: {given}: expected {expected}")
        super().check(path)


def import_t5(folder: Path, options: common.ImportOptions) -> checkpoint.Imported:
    """Reads a checkpoint; raises ImportedModelError if it is not supported."""
    config = checkpoint.read_config(folder, T5Config, common.EXPECTED["t5"], common.EXPECTED["search"])
    path = folder / SENTENCEPIECE_FILE
    model_file = read_file(path)
    pieces = filled(path, list(common.stored_pieces(path, model_file)), config.vocab_size)
    special = {pieces[config.pad_token_id], pieces[config.eos_token_id]}
    tokenizer = multilingual_tokenizer(model_file, pieces, special, find_languages(pieces))
    languages = _languages(folder, config, tokenizer, options)
    return _model(folder, config, options), tokenizer, languages, (config.eos_token_id,)


def _languages(folder: Path, config: T5Config, tokenizer: PieceTokenizer, options: common.ImportOptions) -> Languages:
    languages = find_languages(tokenizer.source_pieces)
    if languages:
        return select_directions(languages, madlad_rules(folder / SENTENCEPIECE_FILE, tokenizer, languages), options)
    tasks = dict(_tasks(config, tokenizer))
    wanted = options.source_language, options.target_language
    found = tuple(
        BundleDirection(source=source, target=target, source_prefix=prefix)
        for (source, target), prefix in tasks.items()
        if wanted[0] in (None, source) and wanted[1] in (None, target)
    )
    return found or common.find_directions((), options), None


def _tasks(config: T5Config, tokenizer: PieceTokenizer) -> Iterator[tuple[tuple[str, str], tuple[int, ...]]]:
    """Yields the languages of the translation tasks, and the tokens of their instructions."""
    for name, task in (config.task_specific_params or {}).items():
        match = TASK.fullmatch(name)
        prefix = task.get("prefix") if isinstance(task, Mapping) else None
        if match and isinstance(prefix, str):
            yield (match[1], match[2]), tuple(tokenizer.encode(prefix))


def _model(folder: Path, config: T5Config, options: common.ImportOptions) -> TransformerWeights:
    limits = common.find_limits(options, None)
    with checkpoint.read_tensors(folder) as tensors:
        tensors.take_optional(UNUSED)
        parameters, is_tied = _embeddings(tensors)
        parameters |= _layers(tensors, config, limits)
    zeros = np.zeros((limits.positions, config.d_model), np.float32)
    parameters |= {f"{side}_positions.table": zeros for side in ("source", "target")}
    activation = ACTIVATIONS[config.feed_forward_proj]
    fields = {
        **attention_fields(config.d_model, config.num_heads, config.d_kv, activation, "bias"),
        "d_ff": config.d_ff,
        "encoder_layers": config.num_layers,
        "decoder_layers": config.num_decoder_layers or config.num_layers,
        "norm": "rms",
        "norm_position": "pre",
        "norm_epsilon": config.layer_norm_epsilon,
        "positions": "learned",
        "scale_embeddings": False,
        "tie_embeddings": is_tied,
    }
    return common.build_transformer(fields, limits, config.vocab_size, config.special, parameters)


def _embeddings(tensors: common.Tensors) -> tuple[dict[str, common.Parameter], bool]:
    """Takes the embeddings and the output matrix, and returns whether they are tied."""
    shared, output, *sides = (tensors.take_optional(name) for name in (SHARED, OUTPUT, *EMBEDDINGS))
    source, target = (shared if side is None else side for side in sides)
    if source is None or target is None:
        raise common.ImportedModelError(f"{SHARED}: missing tensor")
    return common.embeddings(source, target, target if output is None else output)


def _layers(tensors: common.Tensors, config: T5Config, limits: common.Limits) -> Iterator[tuple[str, common.Parameter]]:
    """Yields the parameters of all layers; the first one of a stack has the biases of all."""
    for stack, layers in (("encoder", config.num_layers), ("decoder", config.num_decoder_layers or config.num_layers)):
        buckets = tensors.take(
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            (config.relative_attention_num_buckets, config.num_heads),
        )
        farthest, both = config.relative_attention_max_distance, stack == "encoder"
        bias = bias_per_distance(buckets.read(), limits.positions, farthest, bidirectional=both)
        for number in range(layers):
            ours, theirs = f"{stack}.{number}", f"{stack}.block.{number}.layer"
            yield f"{ours}.self_attention.distances.bias", bias
            yield from _attention(tensors, config, f"{ours}.self_attention", f"{theirs}.0", "SelfAttention")
            if stack == "decoder":
                yield from _attention(tensors, config, f"{ours}.cross_attention", f"{theirs}.1", "EncDecAttention")
            last = {"encoder": 1, "decoder": 2}[stack]
            yield from _feed_forward(tensors, config, f"{ours}.feed_forward", f"{theirs}.{last}")
        factor = np.float32(config.output_scale if stack == "decoder" else 1)
        yield f"{stack}_norm.weight", tensors.take(f"{stack}.final_layer_norm.weight").read() * factor


def _attention(
    tensors: common.Tensors, config: T5Config, ours: str, layer: str, kind: str
) -> Iterator[tuple[str, common.Parameter]]:
    for part, name in ATTENTION_PARTS.items():
        weight = tensors.take_matrix(f"{layer}.{kind}.{name}.weight")
        if part == "query":
            weight = weight.then(weight.shape, lambda values: values * np.float32(math.sqrt(config.d_kv)))
        yield f"{ours}.{part}.weight", weight
        yield f"{ours}.{part}.bias", np.zeros(len(weight), np.float32)
    yield f"{ours}_residual.norm.weight", tensors.take(f"{layer}.layer_norm.weight")


def _feed_forward(
    tensors: common.Tensors, config: T5Config, ours: str, layer: str
) -> Iterator[tuple[str, common.Parameter]]:
    _, gated = ACTIVATIONS[config.feed_forward_proj]
    names = {"gate": "wi_0", "inner": "wi_1"} if gated else {"inner": "wi"}
    for part, name in {**names, "outer": "wo"}.items():
        weight = tensors.take_matrix(f"{layer}.DenseReluDense.{name}.weight")
        yield f"{ours}.{part}.weight", weight
        if not gated:
            yield f"{ours}.{part}.bias", np.zeros(len(weight), np.float32)
    yield f"{ours}_residual.norm.weight", tensors.take(f"{layer}.layer_norm.weight")


def instruction(tokenizer: ImportedTokenizer, source: str, target: str) -> tuple[int, ...]:
    """Returns the tokens of T5's instruction for two languages; none if T5 has no such task."""
    if source != "en" or target not in TARGETS:
        return ()
    return tuple(tokenizer.encode(f"translate English to {TARGETS[target]}: "))


def madlad_rules(path: Path, tokenizer: ImportedTokenizer, languages: Mapping[str, int]) -> LanguageRules:
    """Returns the place of MADLAD-400's language tokens: first, or after a space; raises ImportedModelError."""
    piece = tokenizer.source_pieces[min(languages.values())]
    if not isinstance(tokenizer, PieceTokenizer):
        raise common.ImportedModelError(f"{path}: {piece}: expected a SentencePiece model with this piece")
    read = open_processor(tokenizer.source_model).encode(f"{piece} a", out_type=str)
    if piece not in read:
        raise common.ImportedModelError(f"{path}: {piece}: expected one piece, SentencePiece reads {' '.join(read)}")
    prefix = tuple(tokenizer.source_pieces.index(item) for item in read[: read.index(piece)])
    return FROM_TARGET._replace(source_prefix=prefix)
