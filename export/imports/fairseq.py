"""Imports multilingual checkpoints in Hugging Face format that were trained with fairseq.

They differ in the vocabulary and in the language tokens:

    model      source                target           pieces
    M2M100     __en__ text </s>      __de__ text      vocab.json, then languages
    NLLB-200   eng_Latn text </s>    deu_Latn text    SentencePiece in the order of fairseq, then languages
    SMaLL-100  __de__ text </s>      text             as M2M100
    mBART-50   en_XX text </s>       de_DE text       as NLLB-200

mBART-50 also has learned positions, and normalizes the embeddings of both sides. mBART-25 has another order of tokens
and is refused.

Sources: the models `m2m_100`, `nllb`, `mbart` and `mbart50` of the library `transformers`; tokenization_small100.py of
SMaLL-100.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field

from dragoman.export.imports import checkpoint, common, multilingual
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.files import read_file
from dragoman.serve.bundle.language_codes import flores_codes

VOCABULARY_FILE = "vocab.json"
SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
SMALL100_FILE, SMALL100_CLASS = "tokenization_small100.py", "SMALL100Tokenizer"
MBART50_CLASSES = ("MBart50Tokenizer", "MBart50TokenizerFast")
# The first row of the position table is that of the padding token's successor.
FIRST_POSITION = 2
UNKNOWN, EOS, MASK = "<unk>", "</s>", "<mask>"
# The first ids of fairseq's vocabularies. SentencePiece begins with <unk>, <s> and </s>.
FAIRSEQ_PIECES = ("<s>", "<pad>", EOS, UNKNOWN)
SENTENCEPIECE_SPECIAL = 3


class MBartConfig(checkpoint.CheckpointConfig):
    """The fields of config.json of mBART; a model into one language forces its token."""

    tokenizer_class: str | None = None
    forced_bos_token_id: int | None = Field(None, ge=0)


class _Vocabulary(NamedTuple):
    """Pieces in the order of their ids, and the languages' tokens."""

    pieces: list[str]
    languages: dict[str, int]
    rules: multilingual.LanguageRules


def import_m2m100(folder: Path, options: common.ImportOptions) -> checkpoint.Imported:
    """Reads a checkpoint; raises ImportedModelError if it is not supported."""
    config = _read_config(folder, checkpoint.CheckpointConfig, "m2m100")
    return _imported(folder, config, _m2m100_vocabulary(folder, config), options)


def import_mbart(folder: Path, options: common.ImportOptions) -> checkpoint.Imported:
    """Reads a checkpoint; raises ImportedModelError if it is not supported."""
    config = _read_config(folder, MBartConfig, "mbart")
    path = folder / checkpoint.TOKENIZER_CONFIG_FILE
    settings = checkpoint.read_optional_fields(path)
    found = settings.get("tokenizer_class") or config.tokenizer_class
    if found not in MBART50_CLASSES:
        expected = f"expected {MBART50_CLASSES[0]}, as mBART-50 has"
        raise common.ImportedModelError(f"{path}: tokenizer_class: {found}: {expected}")
    vocabulary = _ordered_vocabulary(folder, config, multilingual.MBART50_TOKENS, {})
    only = next((name for name, token in vocabulary.languages.items() if token == config.forced_bos_token_id), None)
    return _imported(folder, config, vocabulary, replace(options, target_language=options.target_language or only))


def _read_config(folder: Path, kind: type[checkpoint.Config], name: str) -> checkpoint.Config:
    return checkpoint.read_config(folder, kind, common.EXPECTED[name], common.EXPECTED["multilingual search"])


def _imported(
    folder: Path, config: checkpoint.CheckpointConfig, vocabulary: _Vocabulary, options: common.ImportOptions
) -> checkpoint.Imported:
    pieces, languages, rules = vocabulary
    path = folder / SENTENCEPIECE_FILE
    tokenizer = multilingual_tokenizer(read_file(path), pieces, {*FAIRSEQ_PIECES, MASK} - {UNKNOWN}, languages)
    suffix = (common.find_piece(path, pieces, EOS),)
    directions = multilingual.select_directions(languages, rules, options)
    return _model(folder, config, options), tokenizer, directions, suffix


def _m2m100_vocabulary(folder: Path, config: checkpoint.CheckpointConfig) -> _Vocabulary:
    path, settings_path = folder / VOCABULARY_FILE, folder / checkpoint.TOKENIZER_CONFIG_FILE
    settings = checkpoint.read_optional_fields(settings_path)
    for name, value in common.EXPECTED["m2m100 tokenizer"].items():
        if settings.get(name, value) != value:
            raise common.ImportedModelError(f"{settings_path}: {name}: {settings[name]}: expected {value}")
    if not path.exists():
        return _ordered_vocabulary(folder, config, flores_codes(), settings)
    pieces = list(common.check_pieces(path, common.read_json(path)))
    languages = multilingual.m2m100_languages(pieces)
    small = (folder / SMALL100_FILE).exists() or settings.get("tokenizer_class") == SMALL100_CLASS
    rules = multilingual.FROM_TARGET if small else multilingual.FROM_SOURCE
    return _Vocabulary(filled(path, pieces, config.vocab_size), languages, rules)


def _ordered_vocabulary(
    folder: Path, config: checkpoint.CheckpointConfig, tokens: Iterable[str], settings: Mapping[str, object]
) -> _Vocabulary:
    """Returns the pieces in the order of fairseq with language tokens, and those that the settings add by id."""
    path = folder / SENTENCEPIECE_FILE
    pieces = _with_added([*fairseq_pieces(path, read_file(path)), *tokens, MASK], settings)
    pieces = filled(path, pieces, config.vocab_size)
    return _Vocabulary(pieces, multilingual.find_languages(pieces), multilingual.FROM_SOURCE)


def _model(folder: Path, config: checkpoint.CheckpointConfig, options: common.ImportOptions) -> TransformerWeights:
    limits = common.find_limits(options, config.max_position_embeddings)
    is_mbart = isinstance(config, MBartConfig)
    table = common.sinusoids(limits.positions, config.d_model, FIRST_POSITION, np.float32)
    names = (checkpoint.SHARED, checkpoint.SOURCE, checkpoint.TARGET, checkpoint.OUTPUT)
    with checkpoint.read_tensors(folder) as tensors:
        parameters: dict[str, common.Parameter] = dict(checkpoint.read_layers(tensors, config))
        parameters["embedding.weight"] = checkpoint.first_stored(
            tensors, {name: tensors.take_optional(name) for name in names}, config.vocab_size, *names
        )
        for side, stack in (("source", "encoder"), ("target", "decoder")):
            theirs = f"model.{stack}"
            parameters |= checkpoint.read_linear(tensors, f"{stack}_norm", f"{theirs}.layer_norm")
            if is_mbart:
                norm = f"{theirs}.layernorm_embedding"
                parameters |= checkpoint.read_linear(tensors, f"{side}_embedding_norm", norm)
                table = tensors.take(f"{theirs}.embed_positions.weight").read()[FIRST_POSITION:][: limits.positions]
            else:
                tensors.take_optional(f"{theirs}.embed_positions.weights")  # a table that the library computes
            parameters[f"{side}_positions.table"] = table
        bias = tensors.take_optional("final_logits_bias") if is_mbart else None
    biased = bias is not None and bool(bias.read().any())
    if bias is not None and biased:
        parameters["output_bias"] = bias.read().reshape(-1)
    fields = {
        **config.transformer_fields,
        "norm_position": "pre",
        "norm_embeddings": is_mbart,
        "tie_embeddings": True,
        "output_bias": biased,
    }
    return common.build_transformer(fields, limits, config.vocab_size, config.special, parameters)


def fairseq_pieces(path: Path, model_file: bytes) -> list[str]:
    """Returns the pieces of a SentencePiece model in the order of fairseq; raises ImportedModelError if it is none."""
    return [*FAIRSEQ_PIECES, *common.stored_pieces(path, model_file)[SENTENCEPIECE_SPECIAL:]]


def multilingual_tokenizer(
    model_file: bytes, pieces: Sequence[str], special: AbstractSet[str], languages: Mapping[str, int]
) -> PieceTokenizer:
    """Returns a tokenizer that never reads special pieces, language tokens or fillers from a text."""
    hidden = special | {pieces[number] for number in languages.values()}
    hidden |= {piece for piece in pieces if FILLER.fullmatch(piece)}
    special_pieces = sorted(hidden & set(pieces))
    return PieceTokenizer(model_file, model_file, pieces, pieces, unknown_piece=UNKNOWN, special_pieces=special_pieces)


# Rows without a piece, which training has never used.
FILLER = re.compile(r"madeupword\d{4,}")
# Known models have up to a few hundred.
MAX_FILLERS = 5000


def filled(path: Path, pieces: list[str], size: int) -> list[str]:
    """Returns the pieces with names for the other rows; raises ImportedModelError if there are too few or too many."""
    if not size - MAX_FILLERS <= len(pieces) <= size:
        expected = f"{max(0, size - MAX_FILLERS)} to {size} as in {checkpoint.CONFIG_FILE}"
        raise common.ImportedModelError(f"{path}: {len(pieces)} pieces, expected {expected}")
    return [*pieces, *(f"madeupword{number:04}" for number in range(size - len(pieces)))]


def _with_added(pieces: list[str], settings: Mapping[str, object]) -> list[str]:
    """Returns the pieces with those that the tokenizer's configuration lists by id, as new languages."""
    added = settings.get("added_tokens_decoder")
    for number, token in sorted(_added_tokens(added if isinstance(added, dict) else {})):
        if number < len(pieces):
            pieces[number] = token
        elif number == len(pieces):
            pieces.append(token)
    return pieces


def _added_tokens(added: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    for number, token in added.items():
        content = token.get("content") if isinstance(token, dict) else token
        if number.isdecimal() and isinstance(content, str):
            yield int(number), content
