"""The search graphs compute what NumPy computes, independent of other rows."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.cpu import Runtime, Sessions
from tests.support.search_reference import log_softmax

ROWS = 40


@pytest.fixture(scope="module")
def runtime(recurrent_bundle: Bundle) -> Runtime:
    """Runs search graphs with a vocabulary other than the bundle's."""
    return Runtime(Sessions.load(recurrent_bundle, threads=1), slots=1)


def random_logits(rows: int, vocabulary: int, scale: float = 3.0) -> NDArray[np.float32]:
    generator = np.random.default_rng(rows * 100_003 + vocabulary)
    return generator.normal(scale=scale, size=(rows, vocabulary)).astype(np.float32)


@pytest.mark.parametrize("vocabulary", [1, 2, 15, 129, 1000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_log_probabilities_are_those_of_the_reference(runtime: Runtime, vocabulary: int, scale: float) -> None:
    logits = random_logits(7, vocabulary, scale)
    actual = runtime.log_probabilities(logits)
    expected = [log_softmax(row) for row in logits.astype(np.float64).tolist()]
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("vocabulary", [1, 2, 37, 1000, 8191])
def test_a_row_is_bitwise_the_same_alone_and_in_a_batch(runtime: Runtime, vocabulary: int) -> None:
    logits = random_logits(ROWS, vocabulary)
    alone = np.concatenate([runtime.log_probabilities(logits[row : row + 1]) for row in range(ROWS)])
    for rows in range(1, ROWS + 1):
        assert runtime.log_probabilities(logits[:rows]).tobytes() == alone[:rows].tobytes()


def test_a_row_is_bitwise_the_same_at_any_place_in_memory(runtime: Runtime) -> None:
    row = random_logits(1, 1001)
    expected = runtime.log_probabilities(row).tobytes()
    for offset in range(32):
        memory = np.zeros(1001 + 32, np.float32)
        memory[offset : offset + 1001] = row
        assert runtime.log_probabilities(memory[np.newaxis, offset : offset + 1001]).tobytes() == expected


def test_the_number_of_threads_changes_nothing(runtime: Runtime, recurrent_bundle: Bundle) -> None:
    logits = random_logits(ROWS, 1001)
    two_threads = Runtime(Sessions.load(recurrent_bundle, threads=2), slots=1)
    assert two_threads.log_probabilities(logits).tobytes() == runtime.log_probabilities(logits).tobytes()


def test_large_logits_do_not_overflow(runtime: Runtime) -> None:
    log_probabilities = runtime.log_probabilities(np.array([[3e38, 3e38], [-3e38, -3e38]], np.float32))
    np.testing.assert_allclose(log_probabilities, np.full((2, 2), -math.log(2.0)), rtol=1e-6)


def test_a_token_without_weight_is_impossible(runtime: Runtime) -> None:
    assert runtime.log_probabilities(np.array([[0.0, -np.inf]], np.float32)).tolist() == [[0.0, -np.inf]]


@pytest.mark.parametrize("vocabulary", [2, 50])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("whole_row", [True, False])
def test_a_row_without_probabilities_is_nan(runtime: Runtime, vocabulary: int, value: float, whole_row: bool) -> None:
    """Other rows do not change; a single impossible token is valid."""
    healthy = random_logits(3, vocabulary)
    broken = healthy.copy()
    broken[1, slice(None) if whole_row else vocabulary - 1] = value
    expected, actual = runtime.log_probabilities(healthy), runtime.log_probabilities(broken)
    fault = whole_row or value != -np.inf
    assert np.isnan(actual[1]).all() if fault else not np.isnan(actual[1]).any()
    assert actual[[0, 2]].tobytes() == expected[[0, 2]].tobytes()


@pytest.mark.parametrize("count", [1, 2, 8, 50])
def test_the_best_tokens_come_first_and_of_equals_the_lower_id(runtime: Runtime, count: int) -> None:
    scores = np.random.default_rng(1).integers(-9, 0, (ROWS, 50)).astype(np.float32)
    best, token_ids = runtime.best(scores, count)
    assert token_ids.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :count].tolist()
    assert best.tobytes() == np.take_along_axis(scores, token_ids, axis=1).tobytes()


def test_the_best_tokens_of_a_row_without_probabilities_have_score_nan(runtime: Runtime) -> None:
    """The search detects a broken beam by these scores."""
    scores = random_logits(3, 50)
    scores[1] = np.nan
    best, _ = runtime.best(scores, 4)
    assert np.isnan(best).tolist() == [[False] * 4, [True] * 4, [False] * 4]
