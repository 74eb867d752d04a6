"""Imports mBART-50 checkpoints in Hugging Face format.

A source is `de_DE text </s>`, a translation begins with the token of its language. The embeddings of both sides are
normalized. mBART-25 has another order of tokens and is refused.

Source: the models `mbart` and `mbart50` of the library `transformers`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from dragoman.export.imports.checkpoint import (
    CONFIG_FILE,
    EXPECTED_MULTILINGUAL_SEARCH,
    TOKENIZER_CONFIG_FILE,
    CheckpointConfig,
    read_config,
    read_layers,
    read_optional_fields,
    read_tensors,
)
from dragoman.export.imports.common import (
    ImportedModelError,
    ImportOptions,
    Parameter,
    SpecialIds,
    build_transformer,
    find_limits,
    find_piece,
    importing,
    read_bytes,
)
from dragoman.export.imports.fairseq import (
    EOS,
    MASK,
    SENTENCEPIECE_FILE,
    embedding_norms,
    fairseq_pieces,
    filled,
    final_norms,
    multilingual_tokenizer,
    shared_embedding,
)
from dragoman.export.imports.multilingual import FROM_SOURCE, MBART50_TOKENS, find_languages, select_directions
from dragoman.export.source_model import Exportable
from dragoman.model.weights import TransformerWeights

MODEL_TYPE = "mbart"
EXPECTED_FIELDS: dict[str, object] = {
    "model_type": MODEL_TYPE,
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "normalize_before": True,
    "normalize_embedding": True,
    "add_final_layer_norm": True,
    "static_position_embeddings": False,
}
TOKENIZERS = ("MBart50Tokenizer", "MBart50TokenizerFast")
# The first rows of the position table are not used.
UNUSED_POSITIONS = 2


class MBartConfig(CheckpointConfig):
    """The fields of config.json; a model into one language forces its token."""

    tokenizer_class: str | None = None
    forced_bos_token_id: int | None = Field(None, ge=0)


def import_mbart(folder: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a checkpoint; raises ImportedModelError if the folder is none, or it is not supported."""
    with importing(folder):
        config = read_config(folder, MBartConfig, EXPECTED_FIELDS, EXPECTED_MULTILINGUAL_SEARCH)
        _check_tokenizer(folder, config)
        path, model_file = folder / SENTENCEPIECE_FILE, read_bytes(folder / SENTENCEPIECE_FILE)
        pieces = filled(path, [*fairseq_pieces(path, model_file), *MBART50_TOKENS, MASK], config.vocab_size)
        languages = find_languages(pieces)
        only = next((name for name, token in languages.items() if token == config.forced_bos_token_id), None)
        if options.target_language is None:
            options = replace(options, target_language=only)
        tokenizer = multilingual_tokenizer(folder, model_file, pieces, languages)
        return Exportable.of_import(
            MODEL_TYPE,
            read_optional_fields(folder / CONFIG_FILE),
            _model(folder, config, options),
            tokenizer,
            select_directions(languages, FROM_SOURCE, options),
            source_suffix=(find_piece(path, tokenizer.source_pieces, EOS),),
        )


def _check_tokenizer(folder: Path, config: MBartConfig) -> None:
    path = folder / TOKENIZER_CONFIG_FILE
    found = read_optional_fields(path).get("tokenizer_class") or config.tokenizer_class
    if found not in TOKENIZERS:
        raise ImportedModelError(f"{path}: tokenizer_class: {found}: expected {TOKENIZERS[0]}, as mBART-50 has")


def _model(folder: Path, config: MBartConfig, options: ImportOptions) -> TransformerWeights:
    limits = find_limits(options, config.max_position_embeddings)
    with read_tensors(folder) as tensors:
        parameters: dict[str, Parameter] = {**dict(read_layers(tensors, config)), **dict(final_norms(tensors))}
        parameters |= embedding_norms(tensors)
        parameters["embedding.weight"] = shared_embedding(tensors, config)
        for side, stack in (("source", "encoder"), ("target", "decoder")):
            table = tensors.take(f"model.{stack}.embed_positions.weight").read()[UNUSED_POSITIONS:]
            parameters[f"{side}_positions.table"] = table[: limits.positions]
        stored = tensors.take_optional("final_logits_bias")
    bias = np.zeros(0, np.float32) if stored is None else stored.read().reshape(-1)
    biased = bool(bias.any())
    if biased:
        parameters["output_bias"] = bias
    fields = {
        **config.transformer_fields,
        "norm_position": "pre",
        "norm_embeddings": True,
        "tie_embeddings": True,
        "output_bias": biased,
        "max_source_tokens": limits.max_source_tokens,
        "max_target_tokens": limits.max_target_tokens,
    }
    special = SpecialIds(pad=config.pad_token_id, bos=config.decoder_start_token_id, eos=config.eos_token_id)
    return build_transformer(fields, config.vocab_size, special, parameters)
