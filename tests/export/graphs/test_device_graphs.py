"""The stored device graph matches its text, and handles NaN rows and ties as the server requires."""

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from dragoman.export.graphs.weightless import FILE, choose_graph
from dragoman.serve.runtime.onnx_runtime import open_session, session_options


def test_the_file_equals_the_graph_of_its_text() -> None:
    """To update: python -m dragoman.export.graphs.weightless."""
    stored = onnx.load(FILE)
    onnx.checker.check_model(stored)
    assert stored.SerializeToString() == choose_graph().SerializeToString()


def choose(logits: list[list[float]], count: int) -> list[NDArray[Any]]:
    """Returns log-sums, best scores and best ids of rows of logits."""
    given = np.array(logits, np.float32)
    inputs = {"logits": given, "count": np.array([count]), "last_id": np.array([[given.shape[1] - 1]])}
    found: list[NDArray[Any]] = open_session(FILE, session_options(1)).run(None, inputs)
    return found


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_broken_row_has_score_nan_and_ids_of_the_vocabulary(broken: float) -> None:
    log_sums, scores, ids = choose([[1.0, 2.0, 0.0], [broken] * 3], 2)
    assert ids[0].tolist() == [1, 0]
    assert scores[0] == pytest.approx([-0.4076, -1.4076], abs=1e-4)
    assert ((ids >= 0) & (ids < 3)).all()
    assert np.isnan([*log_sums[1], *scores[1]]).all()


def test_the_lower_id_wins_a_tie_and_scores_are_logits_minus_the_log_sum() -> None:
    log_sums, scores, ids = choose([[0.0, 5.0, 1.0, 5.0]], 3)
    assert ids.tolist() == [[1, 3, 2]]
    assert scores.tolist() == [(np.array([5, 5, 1], np.float32) - log_sums[0]).tolist()]
    assert log_sums[0, 0] == pytest.approx(np.log(2 * np.exp(5) + np.e + 1))
