"""Imports multilingual checkpoints in Hugging Face format: M2M100, NLLB-200 and SMaLL-100.

They differ in the vocabulary and in the language tokens:

    model      source                target           pieces
    M2M100     __en__ text </s>      __de__ text      vocab.json, then languages
    NLLB-200   eng_Latn text </s>    deu_Latn text    SentencePiece in the order of fairseq, then languages
    SMaLL-100  __de__ text </s>      text             as M2M100

Sources: the models `m2m_100` and `nllb` of the library `transformers`; tokenization_small100.py of SMaLL-100.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dragoman.export.imports import checkpoint, common, fairseq, multilingual
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.language_codes import flores_codes

VOCABULARY_FILE = "vocab.json"
SMALL100_FILE, SMALL100_CLASS = "tokenization_small100.py", "SMALL100Tokenizer"
# The first row of the position table is that of the padding token's successor.
FIRST_POSITION = 2


class _Vocabulary(NamedTuple):
    """Pieces in the order of their ids, and the languages' tokens."""

    pieces: list[str]
    languages: dict[str, int]
    rules: multilingual.LanguageRules


def import_m2m100(folder: Path, options: common.ImportOptions) -> checkpoint.Imported:
    """Reads a checkpoint; raises ImportedModelError if it is not supported."""
    expected, expected_search = common.EXPECTED["m2m100"], common.EXPECTED["multilingual search"]
    config = checkpoint.read_config(folder, checkpoint.CheckpointConfig, expected, expected_search)
    path = folder / fairseq.SENTENCEPIECE_FILE
    model_file = common.read_bytes(path)
    vocabulary = _read_vocabulary(folder, config, model_file)
    tokenizer = fairseq.multilingual_tokenizer(model_file, vocabulary.pieces, vocabulary.languages)
    languages = multilingual.select_directions(vocabulary.languages, vocabulary.rules, options)
    suffix = (common.find_piece(path, tokenizer.source_pieces, fairseq.EOS),)
    return _model(folder, config, options), tokenizer, languages, suffix


def _read_vocabulary(folder: Path, config: checkpoint.CheckpointConfig, model_file: bytes) -> _Vocabulary:
    path, settings_path = folder / VOCABULARY_FILE, folder / checkpoint.TOKENIZER_CONFIG_FILE
    settings = checkpoint.read_optional_fields(settings_path)
    for name, value in common.EXPECTED["m2m100 tokenizer"].items():
        if settings.get(name, value) != value:
            raise common.ImportedModelError(f"{settings_path}: {name}: {settings[name]}: expected {value}")
    if path.exists():
        pieces = list(common.check_pieces(path, common.read_json(path)))
        languages = multilingual.m2m100_languages(pieces)
        small = (folder / SMALL100_FILE).exists() or settings.get("tokenizer_class") == SMALL100_CLASS
        return _Vocabulary(
            fairseq.filled(path, pieces, config.vocab_size),
            languages,
            multilingual.FROM_TARGET if small else multilingual.FROM_SOURCE,
        )
    path = folder / fairseq.SENTENCEPIECE_FILE
    pieces = [*fairseq.fairseq_pieces(path, model_file), *flores_codes(), fairseq.MASK]
    pieces = fairseq.filled(path, fairseq.with_added(pieces, settings), config.vocab_size)
    return _Vocabulary(pieces, multilingual.find_languages(pieces), multilingual.FROM_SOURCE)


def _model(folder: Path, config: checkpoint.CheckpointConfig, options: common.ImportOptions) -> TransformerWeights:
    limits = common.find_limits(options, config.max_position_embeddings)
    with checkpoint.read_tensors(folder) as tensors:
        parameters: dict[str, common.Parameter] = dict(checkpoint.read_layers(tensors, config))
        parameters |= dict(fairseq.final_norms(tensors))
        parameters["embedding.weight"] = fairseq.shared_embedding(tensors, config)
        for name in ("encoder", "decoder"):
            tensors.take_optional(f"model.{name}.embed_positions.weights")  # a table that the library computes
    table = common.sinusoids(limits.positions, config.d_model, FIRST_POSITION, np.float32)
    parameters |= {f"{side}_positions.table": table for side in ("source", "target")}
    fields = {**config.transformer_fields, "norm_position": "pre", "tie_embeddings": True}
    return common.build_transformer(fields, limits, config.vocab_size, config.special, parameters)
