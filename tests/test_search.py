"""Greedy search against an obvious reference, and the independence of its rows."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from serve.search import greedy, token_scores


def random_logits(rows: int, vocabulary: int, scale: float = 3.0) -> NDArray[np.float32]:
    generator = np.random.default_rng(rows * 100_003 + vocabulary)
    return generator.normal(scale=scale, size=(rows, vocabulary)).astype(np.float32)


def reference(row: NDArray[np.float32]) -> tuple[int, float]:
    """Returns the first most probable token and its log-probability, one plain number at a time."""
    values = [float(value) for value in row]
    best = max(range(len(values)), key=values.__getitem__)
    return best, -math.log(math.fsum(math.exp(value - values[best]) for value in values))


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
@pytest.mark.parametrize("vocabulary", [1, 2, 15, 16, 129, 1000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_greedy_agrees_with_the_reference(rows: int, vocabulary: int, scale: float) -> None:
    logits = random_logits(rows, vocabulary, scale)
    step = greedy(logits)
    expected = [reference(row) for row in logits]
    assert step.token_ids.tolist() == [token_id for token_id, _ in expected]
    np.testing.assert_allclose(step.scores, [score for _, score in expected], rtol=1e-5, atol=1e-6)


def test_results_have_the_promised_types() -> None:
    step = greedy(random_logits(3, 5))
    assert step.token_ids.dtype == np.int64
    assert step.scores.dtype == np.float32
    assert (step.token_ids.shape, step.scores.shape) == ((3,), (3,))


@pytest.mark.parametrize("vocabulary", [1, 37, 1000, 8191, 32_000])
def test_a_row_is_bitwise_the_same_alone_and_among_others(vocabulary: int) -> None:
    logits = random_logits(64, vocabulary)
    alone = [greedy(logits[row : row + 1]) for row in range(64)]
    token_ids = np.concatenate([step.token_ids for step in alone])
    scores = np.concatenate([step.scores for step in alone])
    for rows in range(1, 65):
        step = greedy(logits[:rows])
        assert step.token_ids.tobytes() == token_ids[:rows].tobytes()
        assert step.scores.tobytes() == scores[:rows].tobytes()


def test_a_row_is_bitwise_the_same_wherever_it_lies_in_memory() -> None:
    row = random_logits(1, 1001)
    expected = greedy(row).scores.tobytes()
    for offset in range(32):
        memory = np.zeros(1001 + 32, np.float32)
        memory[offset : offset + 1001] = row
        assert greedy(memory[np.newaxis, offset : offset + 1001]).scores.tobytes() == expected


def test_the_smallest_id_wins_a_tie() -> None:
    assert greedy(np.array([[1.0, 4.0, 4.0]], np.float32)).token_ids.tolist() == [1]


def test_large_logits_do_not_overflow() -> None:
    step = greedy(np.array([[3e38, 3e38], [-3e38, -3e38]], np.float32))
    np.testing.assert_allclose(step.scores, [-math.log(2.0)] * 2, rtol=1e-6)


def test_an_impossible_token_has_no_weight() -> None:
    assert greedy(np.array([[0.0, -np.inf]], np.float32)).scores.tolist() == [0.0]


@pytest.mark.parametrize("broken", [[0.0, np.nan], [np.nan, np.inf], [0.0, np.inf], [-np.inf, -np.inf]])
def test_a_row_without_probabilities_has_score_nan_and_leaves_its_neighbours_alone(broken: list[float]) -> None:
    healthy = random_logits(2, 2)
    among = greedy(np.stack([healthy[0], np.array(broken, np.float32), healthy[1]]))
    alone = greedy(healthy)
    assert np.isnan(among.scores[1])
    assert among.scores[[0, 2]].tobytes() == alone.scores.tobytes()
    assert among.token_ids[[0, 2]].tolist() == alone.token_ids.tolist()


def test_the_logits_are_left_as_they_were() -> None:
    logits = random_logits(4, 9)
    before = logits.copy()
    greedy(logits)
    assert (logits == before).all()


def test_any_token_can_be_scored() -> None:
    logits = np.log(np.array([[0.2, 0.5, 0.3], [0.25, 0.25, 0.5]], np.float32))
    scores = token_scores(logits, np.array([2, 0]), np.array([1, 2]))
    assert np.exp(scores).tolist() == pytest.approx([0.3, 0.25])
