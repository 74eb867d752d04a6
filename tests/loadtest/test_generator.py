"""The generators in virtual time, so that expected values are exact.

The time of `VirtualTimeLoop` passes only when every task waits for a timer, so a minute of load takes milliseconds.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

import numpy as np
import pytest

from dragoman.loadtest.clients import GONE, OK, Answer, Client
from dragoman.loadtest.generator import run_closed_loop, run_open_loop
from dragoman.loadtest.plan import LoadPlan, Part
from dragoman.loadtest.results import why_void
from dragoman.loadtest.samples import Book, Percentiles, Samples, percentile
from dragoman.loadtest.scenario import Arrivals, ConstantPhase, LoadRequest

T = TypeVar("T")
START_SECONDS = 5.0


def constant_arrivals(rate: float, seconds: float) -> Arrivals:
    return ConstantPhase(rate=rate, duration_seconds=seconds).draw(np.random.default_rng())


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
    """Answers after a fixed time, except in a stall: requests that arrive during it are answered at its end."""

    def __init__(self, stall_start_seconds: float, stall_seconds: float, answer_seconds: float = 0.0) -> None:
        self._start_seconds = START_SECONDS + stall_start_seconds
        self._end_seconds = self._start_seconds + stall_seconds
        self._answer_seconds = answer_seconds

    async def send(self, request: LoadRequest) -> Answer:
        del request
        now_seconds = asyncio.get_running_loop().time()
        if self._start_seconds <= now_seconds < self._end_seconds:
            await asyncio.sleep(self._end_seconds - now_seconds)
        await asyncio.sleep(self._answer_seconds)
        return Answer(OK)


class BusyClient:
    """Blocks the process for a while in every request, like an overloaded generator."""

    def __init__(self, loop: VirtualTimeLoop, busy_seconds: float) -> None:
        self._loop = loop
        self._busy_seconds = busy_seconds

    async def send(self, request: LoadRequest) -> Answer:
        del request
        self._loop.now_seconds += self._busy_seconds
        return Answer(OK)


def run_virtual(loop: VirtualTimeLoop, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


def make_plan(arrivals: Arrivals, seconds: float, request: LoadRequest | None = None) -> LoadPlan:
    requests = [request or LoadRequest(("A sentence.",))] * len(arrivals)
    return LoadPlan(arrivals, requests, (Part("load", 0.0, seconds),))


def generate(client: Client, plan: LoadPlan, loop: VirtualTimeLoop | None = None, users: int | None = None) -> Samples:
    book = Book()

    async def run() -> None:
        stop = asyncio.Event()
        if users is None:
            await run_open_loop(client, plan, START_SECONDS, book, stop)
        else:
            await run_closed_loop(client, [plan] * users, START_SECONDS, book, stop)

    run_virtual(loop or VirtualTimeLoop(), run())
    return book.take()


def latencies(samples: Samples) -> Percentiles:
    found = Percentiles.of(samples.latency)
    assert found is not None
    return found


def test_a_stall_is_charged_to_every_request_that_arrives_during_it() -> None:
    """2 s of stall in 60 s at 100/s delay 200 of 6,000 requests by 2.00, 1.99, ... s; the p99 (the 61st) is 1.4 s."""
    samples = generate(StallingServer(20.0, 2.0), make_plan(constant_arrivals(100.0, 60.0), 60.0))
    found = latencies(samples)
    assert np.sum(samples.latency > 0.001) == 200
    assert (found.p50, found.p99, found.max) == pytest.approx((0.0, 1.4, 2.0), abs=1e-6)


def test_a_closed_loop_hardly_shows_the_same_stall() -> None:
    """A waiting user sends no requests: one of 5,800 requests is slow, which no percentile shows."""
    found = latencies(generate(StallingServer(20.0, 2.0, 0.01), make_plan(constant_arrivals(1.0, 1.0), 60.0), users=1))
    assert found.p99_9 == pytest.approx(0.01, rel=0.001)
    assert found.max == pytest.approx(2.01, rel=0.01)


def test_each_user_of_a_closed_loop_waits_for_its_own_answer() -> None:
    samples = generate(StallingServer(99.0, 0.0, 0.5), make_plan(constant_arrivals(1.0, 1.0), 10.0), users=3)
    assert samples.lag.tolist() == [0.0] * 60


def test_a_stall_delays_no_send_time() -> None:
    arrivals = constant_arrivals(100.0, 10.0)
    samples = generate(StallingServer(2.0, 5.0), make_plan(arrivals, 10.0))
    assert samples.begun.tolist() == arrivals.tolist()
    assert sorted(samples.answered["sent"]) == pytest.approx(arrivals.tolist())


def test_a_busy_generator_is_late_its_latency_includes_that_and_its_run_is_void() -> None:
    """With 20 ms of work every 10 ms, request i is late by 10 ms times i: the 99th of 100 by 0.98 s."""
    loop = VirtualTimeLoop()
    samples = generate(BusyClient(loop, 0.02), make_plan(constant_arrivals(100.0, 1.0), 1.0), loop)
    lag = samples.lag
    assert percentile(lag, 99) == pytest.approx(0.98)
    problem = why_void(lag, 0.01)
    assert problem is not None
    assert "lag p99 980" in problem
    assert "exceeds 10.0 ms" in problem
    assert samples.latency == pytest.approx(lag + 0.02)


def test_a_canceled_request_has_its_own_outcome() -> None:
    request = LoadRequest(("A sentence.",), cancel_after_seconds=0.25)
    samples = generate(StallingServer(0.0, 5.0), make_plan(constant_arrivals(1.0, 2.0), 2.0, request))
    assert samples.outcomes == {GONE: 2}
    assert samples.ended["ended"] - samples.ended["intended"] == pytest.approx([0.25, 0.25])


def test_a_request_answered_before_its_cancellation_is_ok() -> None:
    request = LoadRequest(("A sentence.",), cancel_after_seconds=9.0)
    assert generate(StallingServer(0.0, 5.0), make_plan(constant_arrivals(1.0, 1.0), 1.0, request)).outcomes == {OK: 1}


def test_nothing_is_sent_after_a_stop() -> None:
    book = Book()

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_at(START_SECONDS + 2.05, stop.set)
        plan = make_plan(constant_arrivals(10.0, 10.0), 10.0)
        await run_open_loop(StallingServer(0.0, 5.0), plan, START_SECONDS, book, stop)

    run_virtual(VirtualTimeLoop(), run())
    samples = book.take()
    assert len(samples.begun) == samples.outcomes.total() == 21
