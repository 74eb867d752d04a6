"""Alignments of tokens and words, by characters, and through a pivot text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.serve.protect.alignment import Alignment, Link, Span, align_tokens, align_words, compose, find_words
from tests.support.cases import cases

CASES = cases(__file__)

Spans = list[tuple[int, int]]
TEXTS = st.text(alphabet="ab .,é\u00a0\u200b中文。ไทย$'\n", min_size=1, max_size=20)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, Spans]:
    """Draws a text and a way to cut it into tokens, of which some have no characters."""
    text = draw(TEXTS)
    places = sorted([0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=8))])
    return text, list(pairwise(places))


def random_attention(target: Sequence[object], source: Sequence[object], seed: int = 1) -> NDArray[np.float32]:
    """Returns rows that sum to less than 1: the rest is for special tokens."""
    weights = np.random.default_rng(seed).random((len(target), len(source) + 1))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)[:, :-1]


@pytest.mark.parametrize(("text", "words"), CASES["words are separated by white space and punctuation"])
def test_words_are_separated_by_white_space_and_by_punctuation_at_their_ends(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in find_words(text, [])] == words


def test_tokens_are_the_words_of_scripts_without_spaces() -> None:
    text = "我喜欢cats。ok"
    tokens = [(0, 1), (1, 3), (3, 5), (5, 7), (7, 8), (8, 10)]
    assert [text[start:end] for start, end in find_words(text, tokens)] == ["我", "喜欢", "cats", "。", "ok"]


@given(cut_texts())
def test_words_have_every_visible_character_once_and_in_order(drawn: tuple[str, Spans]) -> None:
    text, tokens = drawn
    words = find_words(text, tokens)
    assert "".join(text[start:end] for start, end in words) == "".join(text.split())
    assert all(not any(map(str.isspace, text[start:end])) and start < end for start, end in words)


def test_a_token_has_its_visible_characters_and_one_without_any_those_of_the_next() -> None:
    """So have a lone word start, the first byte of a character and a part of a character that normalization splits."""
    text = " é 1½"
    tokens = [(0, 1), (1, 1), (1, 2), (2, 4), (4, 4), (4, 5), (5, 5)]
    (source, target) = (((1, 2), (1, 2), (1, 2), (3, 4), (4, 5), (4, 5), (4, 5)), ((0, 1),))
    alignment = align_tokens(text, tokens, "x", [(0, 1)], random_attention(target, source))
    assert alignment.source == tuple(Span(*span) for span in source)


@given(cut_texts(), cut_texts())
def test_token_weights_are_the_attention(source: tuple[str, Spans], target: tuple[str, Spans]) -> None:
    attention = random_attention(target[1], source[1])
    alignment = align_tokens(*source, *target, attention)
    assert list(map(list, alignment.weights)) == attention.tolist()
    assert (len(alignment.source), len(alignment.target)) == (len(source[1]), len(target[1]))


def overlap(one: Span, other: Span) -> int:
    return len(set(range(one.start, one.end)) & set(range(other.start, other.end)))


def shares(one: Span, others: Sequence[Span]) -> list[float]:
    """Returns the share of a unit in each of the other units, by counting characters."""
    counts = [overlap(one, other) for other in others]
    return [count / max(1, sum(counts)) for count in counts]


@given(cut_texts(), cut_texts())
def test_a_word_attends_as_the_mean_of_its_tokens_and_is_attended_as_their_sum(
    source: tuple[str, Spans], target: tuple[str, Spans]
) -> None:
    attention = random_attention(target[1], source[1])
    tokens, words = (align(*source, *target, attention) for align in (align_tokens, align_words))
    for target_word, row in zip(words.target, words.weights, strict=True):
        means = shares(target_word, tokens.target)
        for place, weight in enumerate(row):
            parts = [shares(token, words.source)[place] for token in tokens.source]
            expected = sum(
                mean * attention[j, i] * part for j, mean in enumerate(means) for i, part in enumerate(parts)
            )
            assert weight == pytest.approx(expected, abs=1e-6)


def test_each_target_unit_is_linked_with_the_source_unit_of_most_weight_unless_special_tokens_have_more() -> None:
    units = [(0, 1), (2, 3)]
    weights = np.array([[0.2, 0.7], [0.3, 0.2], [0.5, 0.25], [0.0, 0.0]])
    alignment = Alignment.of(units, [(0, 1), (1, 2), (2, 3), (3, 4)], weights)
    assert alignment.links == (Link(1, 0), Link(0, 2))
    assert str(alignment.shifted(10, 100)) == "12:13-100:101 10:11-102:103"


def test_an_empty_translation_has_no_row() -> None:
    alignment = align_words("a b", [(0, 1), (1, 3)], "", [], np.zeros((0, 2), np.float32))
    assert alignment == Alignment((Span(0, 1), Span(2, 3)), (), (), ())


def alignment_of(source: Spans, target: Spans, seed: int) -> Alignment:
    return Alignment.of(source, target, random_attention(target, source, seed).astype(np.float64))


def composed(first: Sequence[Alignment], last: Alignment, target: int, source: Span) -> float:
    """Returns one weight through the pivot text, unit by unit."""
    between = [(span, row, item.source) for item in first for span, row in zip(item.target, item.weights, strict=True)]
    weight = 0.0
    for unit, attention in zip(last.source, last.weights[target], strict=True):
        for share, (_, row, spans) in zip(shares(unit, [span for span, *_ in between]), between, strict=True):
            weight += attention * share * sum(row[place] for place, span in enumerate(spans) if span == source)
    return weight


def test_an_alignment_through_a_pivot_is_the_product_over_the_characters_of_the_pivot_text() -> None:
    """The second model cuts the pivot text into other tokens, and its second sentence starts inside the first one."""
    first = [alignment_of([(0, 2), (3, 4)], [(0, 3), (3, 5), (6, 8)], 1), alignment_of([(5, 9)], [(9, 12)], 2)]
    last = [alignment_of([(0, 1), (1, 5)], [(0, 1), (1, 3)], 3), alignment_of([(6, 8), (9, 11), (11, 12)], [(4, 5)], 4)]
    result = compose(first, last)
    assert [item.target for item in result] == [item.target for item in last]
    assert [item.source for item in result] == [first[0].source, (*first[0].source, *first[1].source)]
    for one, through in zip(last, result, strict=True):
        for target in range(len(one.target)):
            for place, source in enumerate(through.source):
                expected = composed(first, one, target, source)
                assert through.weights[target][place] == pytest.approx(expected, abs=1e-6)
    assert compose(first, []) == ()
    assert [list(row) for row in compose([], last)[0].weights] == [[], []]


@given(cut_texts())
def test_a_pivot_that_changes_nothing_changes_no_alignment(drawn: tuple[str, Spans]) -> None:
    text, tokens = drawn
    given = align_words(text, tokens, text, tokens, random_attention(tokens, tokens))
    words = [(span.start, span.end) for span in given.source]
    same = Alignment.of(words, words, np.eye(len(words)))
    for through in (compose([given], [same]), compose([same], [given])):
        assert [item.weights for item in through] == [given.weights]
