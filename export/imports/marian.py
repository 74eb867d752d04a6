"""Imports Marian checkpoints in Hugging Face format, for example OPUS-MT.

Reads config.json, generation_config.json, the parameters, vocab.json and the SentencePiece models; does not need the
library `transformers`. Rejects unsupported fields by name.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from export.imports.common import (
    Array,
    ImportedModelError,
    ImportOptions,
    SpecialIds,
    Tensors,
    build_transformer,
    check_pieces,
    find_directions,
    find_limits,
    find_piece,
    grown,
    importing,
    language_pieces,
    read_bytes,
    read_fields,
    read_json,
    tokenizer_refused,
)
from export.imports.pickled import read_pickled
from export.imports.safe import read_safetensors
from export.source_model import Exportable
from model.tokenizer.piece_tokenizer import PieceTokenizer
from model.tokenizer.tokenizer import TokenizerError
from model.weights import TransformerWeights
from serve.bundle.files import open_file
from serve.bundle.manifest import MOST_TOKENS, MOST_VOCABULARY

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}

# Marian variants with another computation are rejected. A missing field has the value listed here.
EXPECTED_FIELDS: dict[str, object] = {
    "model_type": "marian",
    "is_encoder_decoder": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
# Search options that change the tokens and that Dragoman does not support.
EXPECTED_SEARCH: dict[str, object] = {
    "forced_bos_token_id": None,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}


def _first_eos(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class MarianConfig(BaseModel):
    """The fields of config.json that determine the computation of a Marian model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    d_model: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0)
    decoder_ffn_dim: int = Field(gt=0)
    activation_function: str
    vocab_size: int = Field(gt=0, le=MOST_VOCABULARY)
    decoder_vocab_size: int | None = Field(None, gt=0, le=MOST_VOCABULARY)
    max_position_embeddings: int = Field(gt=1, le=MOST_TOKENS)
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: Annotated[int, BeforeValidator(_first_eos)] = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None

    @property
    def target_size(self) -> int:
        """The size of the target vocabulary."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def tied(self) -> bool:
        """True if one matrix embeds source and target and is the output projection."""
        return self.share_encoder_decoder_embeddings and self.tie_word_embeddings


def read_marian_config(folder: Path) -> MarianConfig:
    """Reads and checks the configuration of a checkpoint; raises ImportedModelError naming the field."""
    path = folder / CONFIG_FILE
    fields = read_fields(path)
    generation = read_fields(folder / GENERATION_FILE) if (folder / GENERATION_FILE).exists() else {}
    _expect(path, fields, EXPECTED_FIELDS)
    _expect(path, fields, EXPECTED_SEARCH)
    _expect(folder / GENERATION_FILE, generation, EXPECTED_SEARCH)
    chosen = {name: generation[name] for name in ("bad_words_ids", "decoder_start_token_id") if generation.get(name)}
    try:
        config = MarianConfig.model_validate({**fields, **chosen})
    except ValidationError as error:
        first = error.errors()[0]
        given = "" if first["type"] == "missing" else f" (given: {first['input']!r})"
        raise ImportedModelError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}{given}") from error
    _check(path, config)
    return config


def transformer_fields(config: MarianConfig) -> dict[str, object]:
    """Returns the `TransformerConfig` fields that the configuration determines."""
    return {
        "d_model": config.d_model,
        "d_ff": config.encoder_ffn_dim,
        "heads": config.encoder_attention_heads,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "norm_position": "post",
        "norm": "layer",
        "activation": ACTIVATIONS[config.activation_function],
        "positions": "learned",
        "tie_embeddings": config.tied,
        "scale_embeddings": config.scale_embedding,
        "output_bias": True,
    }


def _expect(path: Path, fields: Mapping[str, object], expected: Mapping[str, object]) -> None:
    for name, value in expected.items():
        actual = fields.get(name)
        if actual is not None and actual != value:
            raise ImportedModelError(f"{path}: {name}: {actual}: expected {value}")


def _check(path: Path, config: MarianConfig) -> None:
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = getattr(config, f"encoder_{name}"), getattr(config, f"decoder_{name}")
        if encoder != decoder:
            raise ImportedModelError(f"{path}: decoder_{name}: {decoder}: expected {encoder} as in the encoder")
    if config.activation_function not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ImportedModelError(f"{path}: activation_function: {config.activation_function}: expected {known}")
    if config.share_encoder_decoder_embeddings and config.target_size != config.vocab_size:
        raise ImportedModelError(
            f"{path}: decoder_vocab_size: {config.target_size}: expected {config.vocab_size},"
            " because share_encoder_decoder_embeddings is true"
        )
    for name, size in (
        ("pad_token_id", config.vocab_size),
        ("eos_token_id", config.target_size),
        ("decoder_start_token_id", config.target_size),
    ):
        if getattr(config, name) >= size:
            raise ImportedModelError(f"{path}: {name}: {getattr(config, name)}: expected an id below {size}")
    for ids in config.bad_words_ids or ():
        if len(ids) != 1 or not 0 <= ids[0] < config.target_size:
            raise ImportedModelError(f"{path}: bad_words_ids: {list(ids)}: expected single token ids of the vocabulary")


TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SHARED, SOURCE, TARGET, OUTPUT = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)


def import_marian(folder: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a checkpoint.

    Raises:
        ImportedModelError: if the folder is no checkpoint, or Dragoman's models do not support it.
    """
    with importing(folder):
        config = read_marian_config(folder)
        settings = read_fields(folder / TOKENIZER_CONFIG_FILE) if (folder / TOKENIZER_CONFIG_FILE).exists() else {}
        tokenizer = _tokenizer(folder, config, settings)
        model = _model(folder, config, options)
        eos = _special_piece(settings, "eos_token", "</s>")
        return Exportable(
            model=model,
            tokenizer=tokenizer,
            directions=find_directions(
                tokenizer.source_pieces,
                options,
                source=_text(settings.get("source_lang")),
                target=_text(settings.get("target_lang")),
            ),
            source_suffix=(find_piece(folder / "vocab.json", tokenizer.source_pieces, eos),),
            unk_id=tokenizer.unk_id,
            training={"imported_from": "marian", "config": read_fields(folder / CONFIG_FILE)},
            steps=0,
        )


def _tokenizer(folder: Path, config: MarianConfig, settings: dict[str, object]) -> PieceTokenizer:
    source_path, target_path = folder / "vocab.json", folder / "target_vocab.json"
    source = check_pieces(source_path, read_json(source_path))
    separate = bool(settings.get("separate_vocabs"))
    target = check_pieces(target_path, read_json(target_path)) if separate else source
    for path, pieces, size in ((source_path, source, config.vocab_size), (target_path, target, config.target_size)):
        if len(pieces) > size:
            raise ImportedModelError(f"{path}: {len(pieces)} pieces, expected at most {size} as in {CONFIG_FILE}")
    if config.eos_token_id >= len(target):
        raise ImportedModelError(
            f"{folder / CONFIG_FILE}: eos_token_id: {config.eos_token_id}: expected an id of the vocabulary"
        )
    special = {_special_piece(settings, "eos_token", "</s>"), _special_piece(settings, "pad_token", "<pad>")}
    special |= {target[config.eos_token_id], *language_pieces(source)}
    try:
        return PieceTokenizer(
            read_bytes(folder / "source.spm"),
            read_bytes(folder / "target.spm"),
            source,
            target,
            unknown_piece=_special_piece(settings, "unk_token", "<unk>"),
            special_pieces=sorted(special),
        )
    except TokenizerError as error:
        raise tokenizer_refused(folder, error) from error


def _model(folder: Path, config: MarianConfig, options: ImportOptions) -> TransformerWeights:
    limits = find_limits(options, config.max_position_embeddings)
    with read_tensors(folder) as tensors:
        parameters = dict(_layers(tensors, config))
        parameters |= _embeddings(tensors, config)
        for side, name in (("source", "encoder"), ("target", "decoder")):
            table = tensors.take_optional(f"model.{name}.embed_positions.weight")
            if table is None:
                table = marian_positions(limits.positions, parameters["embedding.weight"].shape[-1])
            parameters[f"{side}_positions.table"] = table[: limits.positions]
    size = max(config.vocab_size, config.target_size)
    fields = {
        **transformer_fields(config),
        "max_source_tokens": limits.max_source_tokens,
        "max_target_tokens": limits.max_target_tokens,
    }
    special = SpecialIds(pad=config.pad_token_id, bos=config.decoder_start_token_id, eos=config.eos_token_id)
    return build_transformer(fields, size, special, parameters)


def read_tensors(folder: Path) -> Tensors:
    """Reads the parameters of a checkpoint from model.safetensors, or else from pytorch_model.bin.

    Raises:
        ImportedModelError: if neither exists or can be read.
    """
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    path = safe if safe.exists() else pickled
    if not path.exists():
        raise ImportedModelError(f"{folder}: expected {safe.name} or {pickled.name} in one file")
    try:
        with open_file(path) as file:
            if path == safe:
                return Tensors(path, read_safetensors(file))
            check_compression(path, file)
            return Tensors(path, read_pickled(file))
    except ImportedModelError:
        raise
    except ModuleNotFoundError as error:
        raise ImportedModelError(f"{path}: requires the library safetensors: pip install safetensors") from error
    except Exception as error:  # damaged files raise exceptions of any type
        raise ImportedModelError(f"{path}: cannot be read: {error}") from error


def check_compression(path: Path, file: BufferedReader) -> None:
    """Refuses a checkpoint that is larger in memory than on disk: neither PyTorch nor Marian compresses any."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        size_bytes, most_bytes = sum(each.file_size for each in archive.infolist()), path.stat().st_size
    if size_bytes > most_bytes:
        raise ImportedModelError(f"{path}: unpacks to {size_bytes} bytes, expected at most {most_bytes}")


def marian_positions(length: int, d_model: int) -> Array:
    """Returns Marian's position encodings, float32 [length, d_model]: all sines, then all cosines.

    The angles are those of Vaswani et al. 2017, section 3.5.
    """
    halves = np.arange(0, d_model, 2)
    angles = np.arange(length)[:, None] * np.exp(halves * (-math.log(10000.0) / d_model))
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1).astype(np.float32)


def _layers(tensors: Tensors, config: MarianConfig) -> Iterator[tuple[str, Array]]:
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            ours, theirs = f"{side}.{layer}", f"model.{side}.layers.{layer}"
            attentions = {"self_attention": "self_attn"}
            if side == "decoder":
                attentions["cross_attention"] = "encoder_attn"
            for attention, name in attentions.items():
                for part in ("query", "key", "value"):
                    yield from _linear(tensors, f"{ours}.{attention}.{part}", f"{theirs}.{name}.{part[0]}_proj")
                yield from _linear(tensors, f"{ours}.{attention}.output", f"{theirs}.{name}.out_proj")
                yield from _linear(tensors, f"{ours}.{attention}_residual.norm", f"{theirs}.{name}_layer_norm")
            yield from _linear(tensors, f"{ours}.feed_forward.inner", f"{theirs}.fc1")
            yield from _linear(tensors, f"{ours}.feed_forward.outer", f"{theirs}.fc2")
            yield from _linear(tensors, f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm")


def _linear(tensors: Tensors, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    for part in ("weight", "bias"):
        yield f"{ours}.{part}", tensors.take(f"{theirs}.{part}")


def _embeddings(tensors: Tensors, config: MarianConfig) -> dict[str, Array]:
    """Returns embeddings, output matrix and output bias, all with the size of the larger vocabulary."""
    size = max(config.vocab_size, config.target_size)
    bias = np.full(size, -np.inf, np.float32)
    bias[: config.target_size] = tensors.take("final_logits_bias", (1, config.target_size))[0]
    for (token_id,) in config.bad_words_ids or ():
        bias[token_id] = -np.inf
    # A checkpoint stores a tied matrix under one of its names or under all of them.
    stored = {name: tensors.take_optional(name) for name in (SHARED, SOURCE, TARGET, OUTPUT)}
    if config.tied:
        embedding = _first(tensors, stored, size, SHARED, SOURCE, TARGET, OUTPUT)
        return {"embedding.weight": embedding, "output_bias": bias}
    shared = (SHARED,) if config.share_encoder_decoder_embeddings else ()
    target_names = (TARGET, *shared, OUTPUT) if config.tie_word_embeddings else (TARGET, *shared)
    source = _first(tensors, stored, config.vocab_size, SOURCE, *shared)
    target = _first(tensors, stored, config.target_size, *target_names)
    output = target if config.tie_word_embeddings else _first(tensors, stored, config.target_size, OUTPUT)
    return {
        "embedding.weight": grown(source, size),
        "target_embedding.weight": grown(target, size),
        "output.weight": grown(output, size),
        "output_bias": bias,
    }


def _first(tensors: Tensors, stored: dict[str, Array | None], rows: int, *names: str) -> Array:
    found = next((stored[name] for name in names if stored[name] is not None), None)
    matrix = tensors.take(names[0]) if found is None else found
    if len(matrix) != rows:
        raise ImportedModelError(f"{names[0]}: shape is {matrix.shape}, expected {rows} rows")
    return matrix


def _special_piece(settings: dict[str, object], field: str, usual: str) -> str:
    """Returns a special token of tokenizer_config.json, which is a string or an object with the field `content`."""
    token = settings.get(field, usual)
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else usual


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
