"""The open-loop generator under a clock that jumps: what is analytic comes out exact, and nothing waits.

`VirtualTimeLoop` is an event loop whose time passes only when every task waits for a timer, so a minute of load takes
as long as its arithmetic.
"""

import asyncio
import selectors
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from loadtest.arrivals import Arrivals, constant_arrivals, poisson_arrivals
from loadtest.generator import OK, Client, Sample, run_open_loop
from loadtest.report import Report, summarize

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now_seconds


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self._loop.now_seconds += timeout
        return super().select(0)


class StallingServer:
    """Answers at once, but for a stall: whoever arrives during it is answered at its end."""

    def __init__(self, stall_start_seconds: float, stall_seconds: float) -> None:
        self._start_seconds = stall_start_seconds
        self._end_seconds = stall_start_seconds + stall_seconds

    async def send(self, texts: Sequence[str]) -> str:
        del texts
        now_seconds = asyncio.get_running_loop().time()
        if self._start_seconds <= now_seconds < self._end_seconds:
            await asyncio.sleep(self._end_seconds - now_seconds)
        return OK


class BusyClient:
    """Keeps the whole process busy for a while in every request, as an overloaded generator would."""

    def __init__(self, loop: VirtualTimeLoop, busy_seconds: float) -> None:
        self._loop = loop
        self._busy_seconds = busy_seconds

    async def send(self, texts: Sequence[str]) -> str:
        del texts
        self._loop.now_seconds += self._busy_seconds
        return OK


def run_virtual(loop: VirtualTimeLoop, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


def generate(client: Client, arrivals: Arrivals, loop: VirtualTimeLoop | None = None) -> list[Sample]:
    requests = [("A sentence.",)] * len(arrivals)
    return run_virtual(loop or VirtualTimeLoop(), run_open_loop(client, arrivals, requests, on_answer=lambda: None))


def report(samples: Sequence[Sample], duration_seconds: float, max_lag_seconds: float = 0.01) -> Report:
    return summarize(
        samples,
        protocol="grpc",
        warm_up_seconds=0.0,
        duration_seconds=duration_seconds,
        texts_per_request=1,
        max_lag_seconds=max_lag_seconds,
    )


def test_a_stall_is_charged_to_every_request_that_arrived_during_it() -> None:
    """2 s of stall in 60 s at 100/s make 200 of 6000 late by 2.00, 1.99, ... s; the p99, the 61st of them, is 1.4 s."""
    samples = generate(StallingServer(20.0, 2.0), constant_arrivals(100.0, 60.0))
    latency = report(samples, 60.0).latency_seconds
    assert latency is not None
    assert sum(sample.latency_seconds > 0.001 for sample in samples) == 200
    assert latency.p99 == pytest.approx(1.4)
    assert latency.max == pytest.approx(2.0)
    assert latency.p50 == pytest.approx(0.0, abs=1e-6)


def test_a_stall_holds_back_no_request() -> None:
    arrivals = constant_arrivals(100.0, 10.0)
    samples = generate(StallingServer(2.0, 5.0), arrivals)
    assert [sample.sent_seconds for sample in samples] == pytest.approx(arrivals.tolist())


def test_requests_keep_the_times_of_a_poisson_plan() -> None:
    arrivals = poisson_arrivals(50.0, 20.0, seed=1)
    samples = generate(StallingServer(5.0, 1.0), arrivals)
    assert np.array_equal([sample.intended_seconds for sample in samples], arrivals)
    assert max(sample.lag_seconds for sample in samples) == pytest.approx(0.0, abs=1e-6)


def test_a_busy_generator_is_late_and_its_run_is_void() -> None:
    """With 20 ms of work every 10 ms, request i is late by 10 ms times i: the 99th of 100 by 0.98 s."""
    loop = VirtualTimeLoop()
    result = report(generate(BusyClient(loop, 0.02), constant_arrivals(100.0, 1.0), loop), 1.0)
    assert result.lag_seconds is not None
    assert result.lag_seconds.p99 == pytest.approx(0.98)
    assert result.void is not None
    assert "lag p99 980.0 ms exceeds 10.0 ms" in result.void


def test_latency_holds_the_lag() -> None:
    """A late request is not counted as fast: its latency runs from the intended time, as the lag does."""
    loop = VirtualTimeLoop()
    samples = generate(BusyClient(loop, 0.02), constant_arrivals(100.0, 1.0), loop)
    assert all(sample.latency_seconds == pytest.approx(sample.lag_seconds + 0.02) for sample in samples)


def test_every_answer_is_reported_to_the_progress_bar() -> None:
    answers: list[None] = []
    arrivals = constant_arrivals(10.0, 1.0)
    requests = [("A sentence.",)] * len(arrivals)
    main = run_open_loop(StallingServer(0.5, 0.2), arrivals, requests, on_answer=lambda: answers.append(None))
    run_virtual(VirtualTimeLoop(), main)
    assert len(answers) == len(arrivals)
