"""A stopwatch measures the whole and the own time of nested calls."""

import pytest

from benchmarks.systems.engine import Span, Stopwatch
from tests.support.fakes import FakeClock


class NanosecondClock(FakeClock):
    """A clock that a test advances."""

    def __call__(self) -> int:
        return round(self.seconds)


@pytest.fixture(name="clock")
def _clock() -> NanosecondClock:
    return NanosecondClock()


def test_the_own_time_excludes_only_the_calls_inside(clock: NanosecondClock) -> None:
    stopwatch = Stopwatch(clock)
    with stopwatch.measure("outer"):
        clock.seconds += 1
        with stopwatch.measure("middle"):
            clock.seconds += 10
            with stopwatch.measure("inner"):
                clock.seconds += 100
        clock.seconds += 1000
        with stopwatch.measure("inner"):
            clock.seconds += 10000
    with stopwatch.measure("next"):
        clock.seconds += 5
    assert stopwatch.spans == [
        Span("inner", 11, 111, 100),
        Span("middle", 1, 111, 10),
        Span("inner", 1111, 11111, 10000),
        Span("outer", 0, 11111, 1001),
        Span("next", 11111, 11116, 5),
    ]


def test_a_call_that_fails_is_measured_as_well(clock: NanosecondClock) -> None:
    stopwatch = Stopwatch(clock)

    def fail() -> None:
        with stopwatch.measure("outer"), stopwatch.measure("inner"):
            clock.seconds += 3
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert stopwatch.spans == [Span("inner", 0, 3, 3), Span("outer", 0, 3, 0)]
