"""Busy servers: new requests come before the work of earlier ones, and none begins work that would be late."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.edge.load_shedding import MAX_SECONDS, Arrivals
from dragoman.serve.grpc.call import answer
from tests.support.conversation import converse
from tests.support.fakes import FakeModel
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, LiveService, eventually, keep_busy, run_service

pytestmark = pytest.mark.anyio
ITERATIONS = 6
CALLS = 60
SECONDS_OF_WORK = 0.05
LONG_SECONDS = 0.8


async def iterations_until(calls: Arrivals, notes: list[int]) -> int:
    """Returns after how many iterations `come_first` returns, if calls come in the iterations of `notes`."""
    waiting = asyncio.create_task(calls.come_first())
    for iteration in range(10_000):
        if waiting.done():
            return iteration
        if iteration in notes:
            calls.note()
        await asyncio.sleep(0)
    raise AssertionError("it never returned")


@pytest.mark.parametrize("last", [0, ITERATIONS // 2, 2 * ITERATIONS])
async def test_work_waits_while_new_calls_come_and_no_longer(last: int) -> None:
    iterations = await iterations_until(Arrivals(ITERATIONS, lambda: True), list(range(0, last + 1, ITERATIONS // 2)))
    assert last + 1 < iterations <= last + 2 * ITERATIONS + 2


async def test_endless_new_calls_stop_the_work_for_a_bounded_time() -> None:
    calls, loop = Arrivals(ITERATIONS, lambda: True), asyncio.get_running_loop()
    started_seconds = loop.time()
    waiting = asyncio.create_task(calls.come_first())
    while not waiting.done() and loop.time() < started_seconds + WAIT_SECONDS:
        calls.note()
        await asyncio.sleep(0)
    assert waiting.done()
    assert loop.time() >= started_seconds + MAX_SECONDS


async def test_the_work_of_calls_that_wait_begins_in_one_iteration_but_for_a_canceled_call() -> None:
    calls = Arrivals(ITERATIONS, lambda: True)
    first, canceled, *others = (asyncio.create_task(calls.come_first()) for _ in range(4))
    await asyncio.sleep(0)
    canceled.cancel()
    await asyncio.wait_for(first, WAIT_SECONDS)
    assert [other.done() for other in others] == [True, True]


async def test_without_load_nothing_waits() -> None:
    assert await iterations_until(Arrivals(ITERATIONS, lambda: False), list(range(10_000))) <= 2


async def test_a_call_after_the_wait_of_others_waits_itself() -> None:
    calls = Arrivals(ITERATIONS, lambda: True)
    await calls.come_first()
    assert await iterations_until(calls, []) > ITERATIONS


@pytest.fixture
def live(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveService]:
    """A busy service with few places, where each call takes time of the event loop: `long` ones much."""

    def answer_slowly(*arguments: Any) -> Any:
        time.sleep(LONG_SECONDS if arguments[0].text == ["long"] else SECONDS_OF_WORK)
        return answer(*arguments)

    monkeypatch.setattr("dragoman.serve.grpc.api.answer", answer_slowly)
    keep_busy(monkeypatch, busy=True)
    # A slow machine hands over few calls in the usual time.
    monkeypatch.setattr("dragoman.serve.edge.load_shedding.MAX_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr("dragoman.serve.grpc.api.GRPC_SECONDS", SECONDS_OF_WORK)
    with run_service(bundle_path, [FakeModel(slots=2)], queue_limit=3) as live:
        eventually(lambda: live.service.core.load_shedder.busy)
        yield live


def test_under_load_calls_beyond_the_places_are_rejected_instead_of_waiting_in_grpc(live: LiveService) -> None:
    """In the order of their arrival, each call would find a place: the work of the calls before it has ended."""
    request = TranslateRequest(text=["a"])
    with live.grpc_channel() as channel:
        call: Any = channel.unary_unary(TRANSLATE_METHOD, TranslateRequest.SerializeToString)
        call(request, timeout=WAIT_SECONDS)  # connects
        answers = [call.future(request, timeout=WAIT_SECONDS) for _ in range(CALLS)]
        codes = Counter(item.code().name for item in answers)
    assert set(codes) == {"OK", "RESOURCE_EXHAUSTED"}
    assert codes["RESOURCE_EXHAUSTED"] > CALLS / 6


def test_under_load_a_call_that_would_be_late_is_rejected_at_once(live: LiveService) -> None:
    with live.grpc_channel() as channel:
        call: Any = channel.unary_unary(TRANSLATE_METHOD, TranslateRequest.SerializeToString)
        for _ in range(2):
            call(TranslateRequest(text=["long"]), timeout=WAIT_SECONDS)
        short: Any = call.future(TranslateRequest(text=["a"]), timeout=0.9 * LONG_SECONDS)
        assert short.code().name == "RESOURCE_EXHAUSTED"
        call(TranslateRequest(text=["a"]), timeout=WAIT_SECONDS)


def test_work_of_every_interface_waits_for_arrivals_once(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    noted, waited = Counter[int](), Counter[int]()
    note, come_first = Arrivals.note, Arrivals.come_first

    def count_note(arrivals: Arrivals) -> None:
        noted[id(arrivals)] += 1
        note(arrivals)

    async def count_wait(arrivals: Arrivals) -> None:
        waited[id(arrivals)] += 1
        await come_first(arrivals)

    monkeypatch.setattr(Arrivals, "note", count_note)
    monkeypatch.setattr(Arrivals, "come_first", count_wait)
    assert live.post({"text": ["a"]}).is_success
    assert (list(noted.values()), list(waited.values())) == ([1], [1])
    live.call(TranslateRequest(text=["a"]))
    with converse(live) as many:
        many.send("1", "a")
        assert many.receive().id == "1"
        many.send("2", "a")
        assert many.rest().keys() == {"2"}
    # Two calls and three messages: the stream's work is that of its messages. Those that arrive together wait together.
    assert (sorted(noted.values()), sorted(waited.values())) == ([1, 5], [1, 3])
