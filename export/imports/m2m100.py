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
    Array,
    ImportedModelError,
    ImportOptions,
    Parameter,
    SpecialIds,
    build_transformer,
    check_pieces,
    find_limits,
    find_piece,
    importing,
    read_bytes,
    read_json,
)
from dragoman.export.imports.fairseq import (
    EOS,
    MASK,
    SENTENCEPIECE_FILE,
    fairseq_pieces,
    filled,
    final_norms,
    multilingual_tokenizer,
    shared_embedding,
    with_added,
)
from dragoman.export.imports.multilingual import (
    FROM_SOURCE,
    FROM_TARGET,
    LanguageRules,
    find_languages,
    m2m100_languages,
    select_directions,
)
from dragoman.export.source_model import Exportable
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.language_codes import flores_codes

MODEL_TYPE = "m2m_100"
EXPECTED_FIELDS: dict[str, object] = {"model_type": MODEL_TYPE, "is_encoder_decoder": True, "tie_word_embeddings": True}
EXPECTED_TOKENIZER: dict[str, object] = {"legacy_behaviour": False, "language_codes": "m2m100"}
VOCABULARY_FILE = "vocab.json"
SMALL100_FILE, SMALL100_CLASS = "tokenization_small100.py", "SMALL100Tokenizer"
# The first row of the position table is that of the padding token's successor.
FIRST_POSITION = 2


class _Vocabulary(NamedTuple):
    """Pieces in the order of their ids, and the languages' tokens."""

    pieces: list[str]
    languages: dict[str, int]
    rules: LanguageRules


def import_m2m100(folder: Path, options: ImportOptions) -> Exportable:
    """Returns the model of a checkpoint; raises ImportedModelError if the folder is none, or it is not supported."""
    with importing(folder):
        config = read_config(folder, CheckpointConfig, EXPECTED_FIELDS, EXPECTED_MULTILINGUAL_SEARCH)
        model_file = read_bytes(folder / SENTENCEPIECE_FILE)
        vocabulary = _read_vocabulary(folder, config, model_file)
        tokenizer = multilingual_tokenizer(folder, model_file, vocabulary.pieces, vocabulary.languages)
        return Exportable.of_import(
            MODEL_TYPE,
            read_optional_fields(folder / CONFIG_FILE),
            _model(folder, config, options),
            tokenizer,
            select_directions(vocabulary.languages, vocabulary.rules, options),
            source_suffix=(find_piece(folder / SENTENCEPIECE_FILE, tokenizer.source_pieces, EOS),),
        )


def sinusoids(length: int, d_model: int) -> Array:
    """Returns position encodings, float32 [length, d_model]: all sines, then all cosines, in single precision.

    The angles are (position + 2) / 10000^(i / (d_model / 2 - 1)).
    """
    half = d_model // 2
    scales = np.exp(np.arange(half, dtype=np.float32) * -np.float32(np.log(10000) / (half - 1)))
    angles = np.arange(FIRST_POSITION, length + FIRST_POSITION, dtype=np.float32)[:, None] * scales
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1)


def _read_vocabulary(folder: Path, config: CheckpointConfig, model_file: bytes) -> _Vocabulary:
    path, settings = folder / VOCABULARY_FILE, read_optional_fields(folder / TOKENIZER_CONFIG_FILE)
    for name, value in EXPECTED_TOKENIZER.items():
        if settings.get(name, value) != value:
            raise ImportedModelError(f"{folder / TOKENIZER_CONFIG_FILE}: {name}: {settings[name]}: expected {value}")
    if path.exists():
        pieces = list(check_pieces(path, read_json(path)))
        languages = m2m100_languages(pieces)
        small = (folder / SMALL100_FILE).exists() or settings.get("tokenizer_class") == SMALL100_CLASS
        return _Vocabulary(filled(path, pieces, config.vocab_size), languages, FROM_TARGET if small else FROM_SOURCE)
    path = folder / SENTENCEPIECE_FILE
    pieces = [*fairseq_pieces(path, model_file), *flores_codes(), MASK]
    pieces = filled(path, with_added(pieces, settings), config.vocab_size)
    return _Vocabulary(pieces, find_languages(pieces), FROM_SOURCE)


def _model(folder: Path, config: CheckpointConfig, options: ImportOptions) -> TransformerWeights:
    limits = find_limits(options, config.max_position_embeddings)
    with read_tensors(folder) as tensors:
        parameters: dict[str, Parameter] = dict(read_layers(tensors, config))
        parameters |= dict(final_norms(tensors))
        parameters["embedding.weight"] = shared_embedding(tensors, config)
        for name in ("encoder", "decoder"):
            tensors.take_optional(f"model.{name}.embed_positions.weights")  # a table that the library computes
    table = sinusoids(limits.positions, config.d_model)
    parameters |= {f"{side}_positions.table": table for side in ("source", "target")}
    fields = {
        **config.transformer_fields,
        "norm_position": "pre",
        "tie_embeddings": True,
        "max_source_tokens": limits.max_source_tokens,
        "max_target_tokens": limits.max_target_tokens,
    }
    special = SpecialIds(pad=config.pad_token_id, bos=config.decoder_start_token_id, eos=config.eos_token_id)
    return build_transformer(fields, config.vocab_size, special, parameters)
