"""A bundle's tokenizer, of either kind, is read as it was written, and equal files are stored once."""

from pathlib import Path

import pytest

from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import Tokenizer, TokenizerError, train_tokenizer
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.tokenizer import load_tokenizer, write_tokenizer
from dragoman.serve.bundle.tokenizer_spec import TokenizerSpec


def reopen(bundle_path: Path, folder: Path, spec: TokenizerSpec) -> Bundle:
    """Writes another tokenizer into a copy of the bundle; returns the opened copy."""
    bundle = Bundle.open(bundle_path)
    return Bundle(folder, bundle.manifest.model_copy(update={"tokenizer": spec}), bundle.golden)


def test_a_tokenizer_is_read_as_written(bundle_path: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    spec = write_tokenizer(tokenizer, tmp_path)
    loaded = load_tokenizer(reopen(bundle_path, tmp_path, spec))
    assert isinstance(loaded, Tokenizer)
    assert loaded.model == tokenizer.model
    assert spec.files == ("tokenizer.model",)


def test_a_word_tokenizer_is_read_as_written(bundle_path: Path, tmp_path: Path) -> None:
    pieces = ("<unk>", "</s>", "a@@", "b")
    written = WordTokenizer(
        b"#version: 0.2\na b</w>\n",
        ("en", "de"),
        pieces,
        (*pieces, "ab"),
        unknown_piece="<unk>",
        special_pieces=("</s>",),
    )
    spec = write_tokenizer(written, tmp_path)
    loaded = load_tokenizer(reopen(bundle_path, tmp_path, spec))
    assert isinstance(loaded, WordTokenizer)
    for name in ("merges", "languages", "source_pieces", "target_pieces", "unknown_piece", "special_pieces"):
        assert getattr(loaded, name) == getattr(written, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(spec.files)


def test_a_piece_tokenizer_is_read_as_written(bundle_path: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = train_tokenizer(["vogel baum mond", "weg licht"] * 9, vocabulary_size=60)
    written = PieceTokenizer(
        tokenizer.model,
        other.model,
        tokenizer.source_pieces,
        (*other.source_pieces, "▁日本", '"\\'),
        unknown_piece="<unk>",
        special_pieces=("</s>",),
    )
    spec = write_tokenizer(written, tmp_path)
    loaded = load_tokenizer(reopen(bundle_path, tmp_path, spec))
    assert isinstance(loaded, PieceTokenizer)
    for name in ("source_model", "target_model", "source_pieces", "target_pieces", "unknown_piece", "special_pieces"):
        assert getattr(loaded, name) == getattr(written, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(spec.files)


def test_files_shared_by_both_sides_are_stored_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pieces = tokenizer.source_pieces
    shared = PieceTokenizer(tokenizer.model, tokenizer.model, pieces, pieces, unknown_piece="<unk>", special_pieces=())
    write_tokenizer(shared, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.model", "vocabulary.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]"])
def test_an_invalid_vocabulary_is_rejected(
    bundle_path: Path, tokenizer: Tokenizer, tmp_path: Path, content: bytes
) -> None:
    pieces = tokenizer.source_pieces
    written = PieceTokenizer(tokenizer.model, tokenizer.model, pieces, pieces, unknown_piece="<unk>", special_pieces=())
    spec = write_tokenizer(written, tmp_path)
    (tmp_path / "vocabulary.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"vocabulary\.json: "):
        load_tokenizer(reopen(bundle_path, tmp_path, spec))
