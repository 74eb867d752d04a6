"""A tokenizer of made-up words has the requested size and works like any other."""

import pytest

from benchmarks.systems.compared_model import made_up_tokenizer, made_up_word
from model.tokenizer.tokenizer import UNK_ID


@pytest.mark.parametrize("size", [9, 1000, 32_000])
def test_the_vocabulary_has_the_requested_size(size: int) -> None:
    pieces = made_up_tokenizer(size).source_pieces
    assert len(set(pieces)) == len(pieces) == size


def test_words_become_tokens_and_tokens_words() -> None:
    tokenizer = made_up_tokenizer(1000)
    text = f"{made_up_word(0)} {made_up_word(995)}"
    assert tokenizer.encode(text) == [4, 999]
    assert tokenizer.decode([4, 999]) == text


def test_other_words_are_unknown() -> None:
    assert UNK_ID in made_up_tokenizer(9).encode("!")
