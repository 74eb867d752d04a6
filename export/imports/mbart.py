"""Imports mBART-50 checkpoints in Hugging Face format.

A source is `de_DE text </s>`, a translation begins with the token of its language. The embeddings of both sides are
normalized. mBART-25 has another order of tokens and is refused.

Source: the models `mbart` and `mbart50` of the library `transformers`.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from dragoman.export.imports import checkpoint, common, fairseq
from dragoman.export.imports.multilingual import FROM_SOURCE, MBART50_TOKENS, find_languages, select_directions
from dragoman.model.weights import TransformerWeights

TOKENIZERS = ("MBart50Tokenizer", "MBart50TokenizerFast")
# The first rows of the position table are not used.
UNUSED_POSITIONS = 2


class MBartConfig(checkpoint.CheckpointConfig):
    """The fields of config.json; a model into one language forces its token."""

    tokenizer_class: str | None = None
    forced_bos_token_id: int | None = Field(None, ge=0)


def import_mbart(folder: Path, options: common.ImportOptions) -> checkpoint.Imported:
    """Reads a checkpoint; raises ImportedModelError if it is not supported."""
    expected, expected_search = common.EXPECTED["mbart"], common.EXPECTED["multilingual search"]
    config = checkpoint.read_config(folder, MBartConfig, expected, expected_search)
    path = folder / checkpoint.TOKENIZER_CONFIG_FILE
    found = checkpoint.read_optional_fields(path).get("tokenizer_class") or config.tokenizer_class
    if found not in TOKENIZERS:
        raise common.ImportedModelError(f"{path}: tokenizer_class: {found}: expected {TOKENIZERS[0]}, as mBART-50 has")
    path = folder / fairseq.SENTENCEPIECE_FILE
    model_file = common.read_bytes(path)
    known = [*fairseq.fairseq_pieces(path, model_file), *MBART50_TOKENS, fairseq.MASK]
    pieces = fairseq.filled(path, known, config.vocab_size)
    languages = find_languages(pieces)
    only = next((name for name, token in languages.items() if token == config.forced_bos_token_id), None)
    if options.target_language is None:
        options = replace(options, target_language=only)
    tokenizer = fairseq.multilingual_tokenizer(model_file, pieces, languages)
    suffix = (common.find_piece(path, tokenizer.source_pieces, fairseq.EOS),)
    return _model(folder, config, options), tokenizer, select_directions(languages, FROM_SOURCE, options), suffix


def _model(folder: Path, config: MBartConfig, options: common.ImportOptions) -> TransformerWeights:
    limits = common.find_limits(options, config.max_position_embeddings)
    with checkpoint.read_tensors(folder) as tensors:
        parameters: dict[str, common.Parameter] = {
            **dict(checkpoint.read_layers(tensors, config)),
            **dict(fairseq.final_norms(tensors)),
        }
        parameters |= fairseq.embedding_norms(tensors)
        parameters["embedding.weight"] = fairseq.shared_embedding(tensors, config)
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
    }
    return common.build_transformer(fields, limits, config.vocab_size, config.special, parameters)
