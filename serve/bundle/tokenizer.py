"""Writes the tokenizer of a new bundle, and loads the tokenizer that a manifest names. Imports no torch."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import TextTokenizer, Tokenizer, TokenizerError
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.files import read_file, read_json
from dragoman.serve.bundle.tokenizer_spec import PieceSpec, SentencePieceSpec, TokenizerSpec, WordSpec

TOKENIZER_FILE = "tokenizer.model"
MERGES_FILE = "merges.bpe"


def load_tokenizer(bundle: Bundle) -> TextTokenizer:
    """Returns the tokenizer of a bundle; raises TokenizerError or OSError if a file is wrong or unreadable."""
    tokenizer = _read_tokenizer(bundle)
    size = bundle.manifest.vocabulary_size
    most = max(len(tokenizer.source_pieces), len(tokenizer.target_pieces))
    if most > size:
        raise TokenizerError(f"{bundle.folder}: the tokenizer has {most} tokens, expected at most {size}")
    return tokenizer


def _read_tokenizer(bundle: Bundle) -> Tokenizer | PieceTokenizer | WordTokenizer:
    spec, folder = bundle.manifest.tokenizer, bundle.folder
    if isinstance(spec, SentencePieceSpec):
        return Tokenizer(read_file(folder / spec.model))
    # Both sides may have one file.
    content, pieces = cache(lambda name: read_file(folder / name)), cache(lambda name: _read_pieces(folder / name))
    source, target = pieces(spec.source_vocabulary), pieces(spec.target_vocabulary)
    unknown, special = spec.unknown_piece, spec.special_pieces
    if isinstance(spec, WordSpec):
        merges, languages = content(spec.merges), (spec.source_language, spec.target_language)
        return WordTokenizer(merges, languages, source, target, unknown_piece=unknown, special_pieces=special)
    models = content(spec.source_model), content(spec.target_model)
    return PieceTokenizer(*models, source, target, unknown_piece=unknown, special_pieces=special)


def write_tokenizer(tokenizer: Tokenizer | PieceTokenizer | WordTokenizer, folder: Path) -> TokenizerSpec:
    """Writes a tokenizer into a new bundle; returns its entry for the manifest."""
    if isinstance(tokenizer, Tokenizer):
        (folder / TOKENIZER_FILE).write_bytes(tokenizer.model)
        return SentencePieceSpec(model=TOKENIZER_FILE)
    source_vocabulary, target_vocabulary = _write_sides(
        folder, "vocabulary", "json", _to_json(tokenizer.source_pieces), _to_json(tokenizer.target_pieces)
    )
    if isinstance(tokenizer, WordTokenizer):
        (folder / MERGES_FILE).write_bytes(tokenizer.merges)
        source_language, target_language = tokenizer.languages
        return WordSpec(
            merges=MERGES_FILE,
            source_language=source_language,
            target_language=target_language,
            source_vocabulary=source_vocabulary,
            target_vocabulary=target_vocabulary,
            unknown_piece=tokenizer.unknown_piece,
            special_pieces=tokenizer.special_pieces,
        )
    source_model, target_model = _write_sides(
        folder, "tokenizer", "model", tokenizer.source_model, tokenizer.target_model
    )
    return PieceSpec(
        source_model=source_model,
        target_model=target_model,
        source_vocabulary=source_vocabulary,
        target_vocabulary=target_vocabulary,
        unknown_piece=tokenizer.unknown_piece,
        special_pieces=tokenizer.special_pieces,
    )


def _write_sides(folder: Path, stem: str, suffix: str, source: bytes, target: bytes) -> tuple[str, str]:
    """Writes the files of both sides, or one file if they are equal; returns the names."""
    if source == target:
        (folder / f"{stem}.{suffix}").write_bytes(source)
        return f"{stem}.{suffix}", f"{stem}.{suffix}"
    names = f"source_{stem}.{suffix}", f"target_{stem}.{suffix}"
    for name, content in zip(names, (source, target), strict=True):
        (folder / name).write_bytes(content)
    return names


def _to_json(pieces: tuple[str, ...]) -> bytes:
    return json.dumps(pieces, ensure_ascii=False, indent=0).encode()


def _read_pieces(path: Path) -> tuple[str, ...]:
    with suppress(ValueError):
        pieces = read_json(path)
        # Pydantic would hold the lock of the interpreter several times as long.
        if isinstance(pieces, list) and {str}.issuperset(map(type, pieces)):
            return tuple(pieces)
    raise TokenizerError(f"{path}: expected a JSON list of pieces")
