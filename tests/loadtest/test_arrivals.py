"""Send times: mean, distribution and reproducibility."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.scenario import (
    burst_arrivals,
    constant_arrivals,
    poisson_arrivals,
    ramp_arrivals,
    replayed_arrivals,
)


def test_poisson_arrivals_have_the_given_rate() -> None:
    """20,000 arrivals are expected; six standard deviations are 849."""
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


def test_the_same_seed_gives_the_same_plan() -> None:
    assert np.array_equal(poisson_arrivals(50.0, 10.0, seed=3), poisson_arrivals(50.0, 10.0, seed=3))


def test_another_seed_gives_another_plan() -> None:
    assert not np.array_equal(poisson_arrivals(50.0, 10.0, seed=3), poisson_arrivals(50.0, 10.0, seed=4))


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    assert constant_arrivals(4.0, 1.0).tolist() == [0.0, 0.25, 0.5, 0.75]


def test_bursts_come_at_the_end_of_every_period() -> None:
    """Of 1,000 s, 100 have 50/s and 900 have 5/s: 5,000 and 4,500 arrivals are expected."""
    arrivals = burst_arrivals(5.0, 50.0, 1000.0, seed=1, every_seconds=10.0, burst_seconds=1.0)
    in_burst = arrivals % 10.0 >= 9.0
    assert in_burst.sum() == pytest.approx(5000, abs=6 * 5000**0.5)
    assert (~in_burst).sum() == pytest.approx(4500, abs=6 * 4500**0.5)


def test_a_ramp_has_its_rate_at_both_ends() -> None:
    """From 10/s to 100/s in 1,000 s: 1,450 arrivals in the first 100 s, 9,550 in the last."""
    arrivals = ramp_arrivals(10.0, 100.0, 1000.0, seed=1)
    assert (arrivals < 100.0).sum() == pytest.approx(1450, abs=6 * 1450**0.5)
    assert (arrivals >= 900.0).sum() == pytest.approx(9550, abs=6 * 9550**0.5)


def test_a_ramp_may_lead_down() -> None:
    arrivals = ramp_arrivals(100.0, 10.0, 100.0, seed=1)
    assert (arrivals < 50.0).sum() > 2 * (arrivals >= 50.0).sum()


def test_recorded_times_begin_at_zero_and_keep_their_distances() -> None:
    assert replayed_arrivals([100.0, 101.0, 104.0], speed=2.0).tolist() == [0.0, 0.5, 2.0]
