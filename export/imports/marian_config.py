"""The configuration of a Marian checkpoint: what is imported, and what is refused by name.

Knows config.json and generation_config.json, no tensors. Called by `export.imports.marian`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from export.imports.common import ImportedModelError, read_fields

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}

# Variants that Marian checkpoints can name and that compute something else. A field that is not there says the same.
EXPECTED_FIELDS: dict[str, object] = {
    "model_type": "marian",
    "is_encoder_decoder": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
# What changes the tokens that a search finds, apart from the beam: no search of ours does it.
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
    """The fields of config.json that decide what a Marian model computes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    d_model: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0)
    decoder_ffn_dim: int = Field(gt=0)
    activation_function: str
    vocab_size: int = Field(gt=0)
    decoder_vocab_size: int | None = None
    max_position_embeddings: int = Field(gt=1)
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: Annotated[int, BeforeValidator(_first_eos)] = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None

    @property
    def target_size(self) -> int:
        """The number of tokens that the decoder knows."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def tied(self) -> bool:
        """Whether one matrix embeds source and target and projects to the output."""
        return self.share_encoder_decoder_embeddings and self.tie_word_embeddings


def read_marian_config(folder: Path) -> MarianConfig:
    """Reads and checks the configuration of a checkpoint.

    Raises:
        ImportedModelError: naming the field, its value and what was expected.
    """
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
    """Returns the fields of `TransformerConfig` that the configuration decides."""
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
            " for share_encoder_decoder_embeddings is true"
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
            raise ImportedModelError(f"{path}: bad_words_ids: {list(ids)}: expected single tokens of the vocabulary")
