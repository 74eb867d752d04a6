"""Links of words become links of all their tokens, and attention becomes links of words."""

import numpy as np

from dragoman.model.alignment.tokens import starts_of_words, token_links, word_links, words_of_tokens

STARTS = starts_of_words(["<pad>", "▁", "▁a", "b", "c"])


def test_a_token_belongs_to_the_word_that_began_last() -> None:
    assert words_of_tokens([2, 3, 1, 4, 3, 2], STARTS, 3) == [0, 0, 1, 1, 1, 2]


def test_tokens_with_another_number_of_words_have_none() -> None:
    assert words_of_tokens([2, 3, 2], STARTS, 3) == []
    assert words_of_tokens([3, 2, 2], STARTS, 2) == []
    assert words_of_tokens([], STARTS, 0) == []


def test_all_tokens_of_linked_words_are_linked() -> None:
    assert token_links([(0, 1)], [0, 0, 1], [0, 1, 1]) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert token_links([(1, 0)], [0, 0, 1], [0, 1, 1]) == [(2, 0)]
    assert token_links([(5, 0)], [0], [0]) == []


def test_a_word_is_linked_to_the_word_that_its_tokens_attend_to_most() -> None:
    """Neither token of the second target word prefers the second source word, but together they do."""
    weights = np.array([[0.9, 0.05, 0.05], [0.4, 0.3, 0.3], [0.2, 0.35, 0.45]], np.float32)
    assert word_links(weights, [0, 1, 1], [0, 1, 1]) == {(0, 0), (1, 1)}
    assert word_links(weights, [], [0, 1, 1]) == frozenset()
