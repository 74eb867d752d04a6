"""Schedules of the learning rate and of dropout."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.training.loss import cooldown, cosine, inverse_square_root, linear_rise

WARMUP_STEPS = st.integers(1, 500)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(1, 512**-0.5 * 4000**-1.5), (4000, 512**-0.5 * 4000**-0.5), (16000, 512**-0.5 * 16000**-0.5)],
)
def test_the_rate_of_the_paper(step: int, expected: float) -> None:
    assert 512**-0.5 * 4000**-0.5 * inverse_square_root(step, 4000) == pytest.approx(expected)


@given(warmup_steps=WARMUP_STEPS)
def test_the_rate_peaks_where_the_warm_up_ends(warmup_steps: int) -> None:
    rates = [inverse_square_root(step, warmup_steps) for step in range(1, 3 * warmup_steps + 1)]
    assert all(before < after for before, after in pairwise(rates[:warmup_steps]))
    assert all(before > after for before, after in pairwise(rates[warmup_steps - 1 :]))


@given(warmup_steps=WARMUP_STEPS, step=st.integers(1, 500))
def test_the_warm_up_is_linear(warmup_steps: int, step: int) -> None:
    step = min(step, warmup_steps)
    assert inverse_square_root(step, warmup_steps) == pytest.approx(step * inverse_square_root(1, warmup_steps))


@given(warmup_steps=WARMUP_STEPS, decay_steps=st.integers(1, 1000))
def test_a_cosine_rises_falls_and_ends_at_zero(warmup_steps: int, decay_steps: int) -> None:
    shares = [cosine(step, warmup_steps, warmup_steps + decay_steps) for step in range(warmup_steps + decay_steps + 1)]
    assert shares[warmup_steps] == 1.0
    assert all(before < after for before, after in pairwise(shares[: warmup_steps + 1]))
    assert all(before > after for before, after in pairwise(shares[warmup_steps:]))
    assert shares[-1] == pytest.approx(0.0, abs=1e-12)


def test_a_cosine_is_half_way_down_in_the_middle() -> None:
    assert cosine(600, 200, 1000) == pytest.approx(0.5)


@pytest.mark.parametrize("step", [1, 50, 100])
def test_without_a_cooldown_nothing_is_taken_away(step: int) -> None:
    assert cooldown(step, max_steps=100, cooldown_steps=0) == 1


def test_a_cooldown_falls_linearly_over_the_last_steps_and_would_be_zero_after_them() -> None:
    factors = [cooldown(step, max_steps=10, cooldown_steps=4) for step in range(5, 12)]
    assert factors == pytest.approx([1, 1, 0.8, 0.6, 0.4, 0.2, 0])


def test_dropout_rises_in_a_straight_line_and_stays() -> None:
    assert [linear_rise(step, 4) for step in range(7)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_dropout_is_there_from_the_start_unless_it_is_to_rise() -> None:
    assert [linear_rise(step, 0) for step in (0, 1)] == [1.0, 1.0]
