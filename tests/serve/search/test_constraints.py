"""Constraints agree with versions for one row in plain Python."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.search.constraints import (
    PEEKED_TOKENS,
    forbid_repeated_ngrams,
    penalize_repetition,
    postpone_end,
    suppress,
)

EOS_ID = 2
VOCABULARY = 6


@dataclass(frozen=True)
class Rows:
    """M rows with targets of several lengths; tokens behind them must not be read."""

    logits: NDArray[np.float32]
    target_ids: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def targets(self) -> list[list[int]]:
        return [ids[:length].tolist() for ids, length in zip(self.target_ids, self.lengths, strict=True)]


@st.composite
def rows_of_targets(draw: st.DrawFn) -> Rows:
    """Draws rows with few different tokens, so that n-grams repeat."""
    count, longest = draw(st.integers(1, 5)), draw(st.integers(0, 12))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    return Rows(
        generator.normal(scale=3.0, size=(count, VOCABULARY)).astype(np.float32),
        generator.integers(0, VOCABULARY, (count, longest)),
        generator.integers(0, longest, count, endpoint=True),
    )


def repeats(target: list[int], token_id: int, size: int) -> bool:
    """Returns whether a token would complete an n-gram that the target already contains."""
    longer = [*target, token_id]
    ngrams = [longer[start : start + size] for start in range(len(longer) - size + 1)]
    return 0 < size <= len(longer) and ngrams.count(longer[-size:]) > 1


@given(rows=rows_of_targets(), data=st.data())
def test_tokens_that_a_row_has_are_penalized_once_and_no_others(rows: Rows, data: st.DataObject) -> None:
    count = len(rows.logits)
    penalties = np.array(
        data.draw(st.lists(st.sampled_from([0.5, 1.0, 1.3]), min_size=count, max_size=count)), np.float32
    )
    expected = [
        [
            logit if token_id not in target else logit / penalty if logit > 0 else logit * penalty
            for token_id, logit in enumerate(logits)
        ]
        for logits, target, penalty in zip(rows.logits, rows.targets(), penalties, strict=True)
    ]
    penalize_repetition(rows.logits, rows.target_ids, rows.lengths, penalties)
    assert rows.logits.tolist() == np.array(expected).tolist()


def test_a_penalty_makes_positive_and_negative_logits_smaller_and_keeps_impossible_ones() -> None:
    lowest = np.finfo(np.float32).min
    logits = np.array([[3.0, -3.0, 0.0, -np.inf, lowest, 1.0]], np.float32)
    penalize_repetition(logits, np.arange(5)[np.newaxis], np.array([5]), np.array([2.0], np.float32))
    assert logits.tolist() == [[1.5, -6.0, 0.0, -np.inf, -np.inf, 1.0]]


@given(rows=rows_of_targets(), data=st.data())
def test_a_token_is_forbidden_if_it_would_repeat_an_ngram_and_only_then(rows: Rows, data: st.DataObject) -> None:
    count = len(rows.logits)
    sizes = np.array(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    expected = [
        [
            -np.inf if token_id != EOS_ID and repeats(target, token_id, size) else logit
            for token_id, logit in enumerate(logits)
        ]
        for logits, target, size in zip(rows.logits, rows.targets(), sizes.tolist(), strict=True)
    ]
    forbid_repeated_ngrams(rows.logits, rows.target_ids, rows.lengths, sizes, eos_id=EOS_ID)
    assert rows.logits.tolist() == np.array(expected, np.float32).tolist()


@pytest.mark.parametrize(
    ("size", "forbidden"), [(0, []), (1, [3, 4, 5]), (2, [3, 4, 5]), (3, [5]), (4, [5]), (5, [5]), (6, []), (10, [])]
)
def test_the_size_decides_which_tokens_repeat(size: int, forbidden: list[int]) -> None:
    logits = np.zeros((1, VOCABULARY), np.float32)
    target_ids = np.array([[3, 4, 3, 3, 5, 3, 4, 3, 3]])
    forbid_repeated_ngrams(logits, target_ids, np.array([9]), np.array([size]), eos_id=EOS_ID)
    assert np.flatnonzero(logits[0] == -np.inf).tolist() == forbidden


def test_only_the_given_pairs_are_suppressed() -> None:
    logits = np.zeros((3, 3), np.float32)
    suppress(logits, np.array([0, 2, 2, 0]), np.array([1, 0, 2, 1]))
    assert logits.tolist() == [[0.0, -np.inf, 0.0], [0.0, 0.0, 0.0], [-np.inf, 0.0, -np.inf]]


@pytest.mark.parametrize("token_id", [0, EOS_ID + 1, PEEKED_TOKENS - 1, PEEKED_TOKENS, 2 * PEEKED_TOKENS])
def test_the_end_is_postponed_while_any_other_token_is_left(token_id: int) -> None:
    logits = np.full((3, 2 * PEEKED_TOKENS + 1), -np.inf, np.float32)
    logits[:, EOS_ID] = 1.0
    logits[0, token_id] = -7.0
    postpone_end(logits, np.array([0, 1]), EOS_ID)
    assert logits[:, EOS_ID].tolist() == [-np.inf, 1.0, 1.0]


def test_a_broken_row_keeps_no_end_token() -> None:
    logits = np.full((1, PEEKED_TOKENS + 1), -np.inf, np.float32)
    logits[0, [EOS_ID, PEEKED_TOKENS]] = 1.0, np.nan
    postpone_end(logits, np.array([0]), EOS_ID)
    assert logits[0, EOS_ID] == -np.inf


@pytest.mark.parametrize("logit", [np.nan, np.inf])
def test_suppressing_nan_keeps_it_visible(logit: float) -> None:
    logits = np.array([[logit, 0.0]], np.float32)
    suppress(logits, np.array([0]), np.array([0]))
    assert np.isnan(logits[0, 0])
