"""Plans of send times: right mean, right shape, reproducible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.arrivals import constant_arrivals, poisson_arrivals


def test_poisson_arrivals_come_at_the_asked_rate() -> None:
    """20 000 arrivals are expected; six standard deviations are 849."""
    assert abs(len(poisson_arrivals(200.0, 100.0, seed=1)) - 20_000) < 849


def test_poisson_gaps_are_exponential() -> None:
    """An exponential distribution's standard deviation equals its mean; evenly spaced arrivals would have none."""
    gaps = np.diff(poisson_arrivals(200.0, 100.0, seed=2))
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.05)
    assert gaps.std() == pytest.approx(1 / 200, rel=0.05)


@given(rate=st.floats(0.1, 500.0), duration_seconds=st.floats(0.1, 5.0), seed=st.integers(0, 2**32))
def test_poisson_arrivals_ascend_within_the_run(rate: float, duration_seconds: float, seed: int) -> None:
    arrivals = poisson_arrivals(rate, duration_seconds, seed)
    assert np.all(np.diff(arrivals) >= 0)
    assert np.all((arrivals >= 0) & (arrivals <= duration_seconds))


def test_a_seed_gives_one_plan() -> None:
    assert np.array_equal(poisson_arrivals(50.0, 10.0, seed=3), poisson_arrivals(50.0, 10.0, seed=3))


def test_another_seed_gives_another_plan() -> None:
    assert not np.array_equal(poisson_arrivals(50.0, 10.0, seed=3), poisson_arrivals(50.0, 10.0, seed=4))


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    assert constant_arrivals(4.0, 1.0).tolist() == [0.0, 0.25, 0.5, 0.75]
