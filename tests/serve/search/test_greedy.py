"""Greedy search: the most probable token of each row, and the scores of chosen tokens."""

import numpy as np
import pytest

from serve.search.sampling import greedy, token_scores


def test_the_most_probable_token_of_each_row_is_chosen() -> None:
    token_ids = greedy(np.array([[1.0, 5.0, 4.0], [-1.0, -np.inf, -2.0]], np.float32))
    assert token_ids.tolist() == [1, 0]
    assert token_ids.dtype == np.int64


def test_the_smallest_id_wins_a_tie() -> None:
    assert greedy(np.array([[1.0, 4.0, 4.0]], np.float32)).tolist() == [1]


def test_any_token_can_be_scored() -> None:
    log_probabilities = np.log(np.array([[0.2, 0.5, 0.3], [0.25, 0.25, 0.5]], np.float32))
    scores = token_scores(log_probabilities, np.array([2, 0]))
    assert np.exp(scores).tolist() == pytest.approx([0.3, 0.25])
    assert scores.dtype == np.float32
