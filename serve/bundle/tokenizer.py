"""Writes the tokenizer of a new bundle, and loads the tokenizer that a manifest names. Imports no torch."""

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import TextTokenizer, Tokenizer, TokenizerError
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.files import read_file
from dragoman.serve.bundle.tokenizer_spec import PieceSpec, SentencePieceSpec, TokenizerSpec, WordSpec

TOKENIZER_FILE = "tokenizer.model"
MERGES_FILE = "merges.bpe"

_PIECES = TypeAdapter(tuple[str, ...])


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
    source, target = _read_pieces(folder / spec.source_vocabulary), _read_pieces(folder / spec.target_vocabulary)
    if isinstance(spec, WordSpec):
        return WordTokenizer(
            read_file(folder / spec.merges),
            (spec.source_language, spec.target_language),
            source,
            target,
            unknown_piece=spec.unknown_piece,
            special_pieces=spec.special_pieces,
        )
    return PieceTokenizer(
        read_file(folder / spec.source_model),
        read_file(folder / spec.target_model),
        source,
        target,
        unknown_piece=spec.unknown_piece,
        special_pieces=spec.special_pieces,
    )


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
    try:
        return _PIECES.validate_json(read_file(path))
    except ValidationError as error:
        raise TokenizerError(f"{path}: expected a JSON list of pieces") from error
