"""The search for the highest rate that meets an objective, on servers of known capacity."""

import asyncio
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.loadtest.session import find_capacity


def search(capacity: float, first_rate: float = 20.0) -> tuple[float | None, list[float]]:
    tried: list[float] = []

    async def meets(rate: float) -> bool:
        tried.append(rate)
        return rate <= capacity

    return asyncio.run(find_capacity(meets, first_rate, 0.05)), tried


@given(first_rate=st.floats(0.5, 5000), times=st.floats(0.02, 10_000))
def test_the_capacity_is_found_to_the_tolerance_and_never_exceeded(first_rate: float, times: float) -> None:
    capacity = first_rate * times
    found, _ = search(capacity, first_rate)
    assert found is not None
    assert capacity / 1.05 <= found <= capacity


def test_a_failed_trial_is_repeated() -> None:
    """The first try of every rate fails, as on a disturbed machine."""
    luck: Iterator[bool] = cycle([False, True])

    async def meets(rate: float) -> bool:
        return next(luck) and rate <= 100.0

    assert asyncio.run(find_capacity(meets, 20.0, 0.05)) == pytest.approx(100.0, rel=0.06)


def test_a_server_that_never_meets_the_objective_has_no_capacity() -> None:
    found, tried = search(0.0)
    assert found is None
    assert min(tried) == 20.0 / 64


def test_a_search_takes_few_trials() -> None:
    assert len(search(333.0)[1]) <= 20
