"""Constraints agree with obvious versions, token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.serve.search import constraints
from dragoman.serve.search.options import SearchOptions

EOS_ID = 2
VOCABULARY = 6

# Few different tokens, so that n-grams repeat.
targets = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


def random_logits(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=3.0, size=VOCABULARY).astype(np.float32)


def repeats(target: list[int], token_id: int, size: int) -> bool:
    """Returns whether a token would complete an n-gram that the target already contains."""
    longer = [*target, token_id]
    ngrams = [longer[start : start + size] for start in range(len(longer) - size + 1)]
    return 0 < size <= len(longer) and ngrams.count(longer[-size:]) > 1


@given(target=targets, penalty=st.sampled_from([0.5, 1.0, 1.3]), seed=st.integers(0, 99))
def test_tokens_of_the_hypothesis_are_penalized_once_and_no_other(target: list[int], penalty: float, seed: int) -> None:
    logits, factor = random_logits(seed), np.float32(penalty)
    expected = [
        logit if token_id not in target else logit / factor if logit > 0 else logit * factor
        for token_id, logit in enumerate(logits)
    ]
    constraints.penalize_repetition(logits, target, penalty)
    assert logits.tolist() == np.array(expected, np.float32).tolist()


def test_a_penalty_makes_positive_and_negative_logits_smaller_and_keeps_impossible_ones() -> None:
    logits = np.array([3.0, -3.0, 0.0, -np.inf, np.finfo(np.float32).min, 1.0], np.float32)
    constraints.penalize_repetition(logits, range(5), 2.0)
    assert logits.tolist() == [1.5, -6.0, 0.0, -np.inf, -np.inf, 1.0]


@given(target=targets, size=st.integers(0, 4), seed=st.integers(0, 99))
def test_a_token_is_forbidden_if_it_repeats_an_ngram_and_only_then(target: list[int], size: int, seed: int) -> None:
    logits = random_logits(seed)
    expected = [
        -np.inf if token_id != EOS_ID and repeats(target, token_id, size) else logit
        for token_id, logit in enumerate(logits)
    ]
    constraints.forbid_repeated_ngrams(logits, target, size, EOS_ID)
    assert logits.tolist() == np.array(expected, np.float32).tolist()


@pytest.mark.parametrize("token_id", [0, EOS_ID + 1, VOCABULARY - 1])
def test_the_end_is_postponed_while_any_other_token_is_left(token_id: int) -> None:
    logits = np.full(VOCABULARY, -np.inf, np.float32)
    logits[EOS_ID] = 1.0
    constraints.postpone_end(logits, EOS_ID)
    assert logits[EOS_ID] == 1.0
    logits[token_id] = -7.0
    constraints.postpone_end(logits, EOS_ID)
    assert logits[EOS_ID] == -np.inf


def test_broken_logits_keep_no_end_token() -> None:
    logits = np.full(VOCABULARY, -np.inf, np.float32)
    logits[[EOS_ID, 5]] = 1.0, np.nan
    constraints.postpone_end(logits, EOS_ID)
    assert logits[EOS_ID] == -np.inf


@pytest.mark.parametrize("logit", [np.nan, np.inf])
def test_forbidding_nan_keeps_it_visible(logit: float) -> None:
    logits = np.array([logit, 0.0], np.float32)
    constraints.forbid(logits, [0])
    assert np.isnan(logits[0])


def test_all_constraints_of_the_options_are_applied() -> None:
    options = SearchOptions(
        max_target_tokens=9, min_target_tokens=3, repetition_penalty=2.0, no_repeat_ngram_tokens=2, suppressed_ids=(0,)
    )
    logits = np.full(VOCABULARY, 4.0, np.float32)
    constraints.constrain(logits, [4, 4], options, EOS_ID)
    assert logits.tolist() == [-np.inf, 4.0, -np.inf, 4.0, -np.inf, 4.0]
    logits = np.full(VOCABULARY, 4.0, np.float32)
    constraints.constrain(logits, [4, 4, 5], options, EOS_ID)
    assert logits.tolist() == [-np.inf, 4.0, 4.0, 4.0, 2.0, 2.0]


@pytest.mark.parametrize(("target", "forbidden"), [([4], []), ([4, 5], [1, 3]), ([4, 5, 0], [])])
def test_tokens_that_continue_a_word_are_forbidden_only_after_a_prefix(target: list[int], forbidden: list[int]) -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    options = SearchOptions(max_target_tokens=9, target_prefix=(4, 5), new_word=True)
    constraints.constrain(logits, target, options, EOS_ID, (1, 3))
    assert np.flatnonzero(logits == -np.inf).tolist() == forbidden
