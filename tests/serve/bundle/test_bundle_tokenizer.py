"""A bundle's tokenizer, of either kind, is read as it was written, and equal files are stored once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import Tokenizer, TokenizerError, train_tokenizer
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.tokenizer import load_tokenizer, write_tokenizer
from dragoman.serve.bundle.tokenizer_spec import TokenizerSpec

SPECIAL: dict[str, Any] = {"unknown_piece": "<unk>", "special_pieces": ("</s>",)}


def reopen(bundle_path: Path, folder: Path, spec: TokenizerSpec) -> Bundle:
    """Writes another tokenizer into a copy of the bundle; returns the opened copy."""
    bundle = Bundle.open(bundle_path)
    return Bundle(folder, bundle.manifest.model_copy(update={"tokenizer": spec}), bundle.golden)


def with_words(_: Tokenizer) -> WordTokenizer:
    pieces = ("<unk>", "</s>", "a@@", "b")
    return WordTokenizer(b"#version: 0.2\na b</w>\n", ("en", "de"), pieces, (*pieces, "ab"), **SPECIAL)


def with_pieces(tokenizer: Tokenizer) -> PieceTokenizer:
    other = train_tokenizer(["vogel baum mond", "weg licht"] * 9, vocabulary_size=60)
    pieces = tokenizer.source_pieces, (*other.source_pieces, "▁日本", '"\\')
    return PieceTokenizer(tokenizer.model, other.model, *pieces, **SPECIAL)


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (lambda tokenizer: tokenizer, ("model",)),
        (with_words, ("merges", "languages", "source_pieces", "target_pieces", *SPECIAL)),
        (with_pieces, ("source_model", "target_model", "source_pieces", "target_pieces", *SPECIAL)),
    ],
    ids=["one model", "words", "pieces"],
)
def test_a_tokenizer_is_read_as_written(
    bundle_path: Path, tokenizer: Tokenizer, tmp_path: Path, make: Callable[[Tokenizer], Any], fields: tuple[str, ...]
) -> None:
    written = make(tokenizer)
    spec = write_tokenizer(written, tmp_path)
    loaded = load_tokenizer(reopen(bundle_path, tmp_path, spec))
    assert type(loaded) is type(written)
    assert [getattr(loaded, name) for name in fields] == [getattr(written, name) for name in fields]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(spec.files)
    assert written is not tokenizer or spec.files == ("tokenizer.model",)


def test_files_shared_by_both_sides_are_stored_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pieces = tokenizer.source_pieces
    shared = PieceTokenizer(tokenizer.model, tokenizer.model, pieces, pieces, unknown_piece="<unk>", special_pieces=())
    write_tokenizer(shared, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.model", "vocabulary.json"]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]"])
def test_an_invalid_vocabulary_is_refused(bundle_path: Path, tokenizer: Tokenizer, tmp_path: Path, data: bytes) -> None:
    pieces = tokenizer.source_pieces
    written = PieceTokenizer(tokenizer.model, tokenizer.model, pieces, pieces, unknown_piece="<unk>", special_pieces=())
    spec = write_tokenizer(written, tmp_path)
    (tmp_path / "vocabulary.json").write_bytes(data)
    with pytest.raises(TokenizerError, match=r"vocabulary\.json: "):
        load_tokenizer(reopen(bundle_path, tmp_path, spec))
