"""The engines that the tests of decoding run: the reference in Python, and the native one."""

import time
from collections.abc import Callable

import pytest

from tests.support.engines import Bench
from tests.support.fakes import FakeClock
from tests.support.native_build import needs_compiler
from tests.support.native_loop import NativeBench

MakeBench = type[Bench] | type[NativeBench]
each_engine = pytest.mark.parametrize(
    "make_bench", [pytest.param(Bench, id="python"), pytest.param(NativeBench, id="native", marks=needs_compiler)]
)


class RealClock(FakeClock):
    """The real clock in the place of one that a test sets."""

    def __call__(self) -> float:
        return time.monotonic()


def running_native(slots: int = 4) -> NativeBench:
    """Returns a native engine whose thread may run: its loop has the real clock."""
    return NativeBench(slots, clock=RealClock(), real_clock=True)


# Makes an engine with as many slots, whose thread may run.
MakeRunning = Callable[[int], Bench | NativeBench]
each_running_engine = pytest.mark.parametrize(
    "make_bench", [pytest.param(Bench, id="python"), pytest.param(running_native, id="native", marks=needs_compiler)]
)
