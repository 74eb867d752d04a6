"""Early stopping of beam search."""

import pytest

from serve.search.patience import enough_hypotheses


@pytest.mark.parametrize(
    ("patience", "beam_size", "expected"),
    [(1.0, 1, 1), (1.0, 4, 4), (0.5, 4, 2), (2.0, 4, 8), (0.1, 4, 1), (5e-324, 2, 1), (0.6, 4, 2), (0.7, 4, 3)],
)
def test_a_beam_ends_when_its_patience_times_its_size_are_finished(
    patience: float, beam_size: int, expected: int
) -> None:
    assert enough_hypotheses(patience, beam_size) == expected
