"""Pieces that continue a word are those that could change a whole word before them."""

import pytest

from dragoman.serve.protect.word_pieces import continuing_ids

EOS = "</s>"


@pytest.mark.parametrize("piece", ["\u2581der", "\u2581", ".", '?"', "!\u201c", "\u3002", "\u72d7", "\u3068", "\u0e01"])
def test_a_piece_may_follow_a_word(piece: str) -> None:
    assert list(continuing_ids(["\u2581a", EOS, piece], 1)) == []


@pytest.mark.parametrize("piece", ["r", "it", "-", "'", "\u2019", "5", "<unk>", "<0xC3>", "_", "(", ".5"])
def test_a_piece_continues_a_word(piece: str) -> None:
    assert list(continuing_ids(["\u2581a", EOS, piece], 1)) == [2]


def test_pieces_without_word_starts_are_free() -> None:
    assert list(continuing_ids(["ab", "ba@@", EOS], 2)) == []
