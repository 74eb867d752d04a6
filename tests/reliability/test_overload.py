"""Load beyond capacity: the cost of rejections, the reaction of clients, and the recovery."""

import asyncio
import json
import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.errors import ServiceError
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup
from dragoman.serve.search.options import SearchOptions
from tests.support.engines import Bench
from tests.support.fake_bundles import LONG_TEXT
from tests.support.fakes import ENDLESS_ID, FakeModel
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.promises import Measured

CLIENTS = 32
JSON = {"content-type": "application/json"}
BODY = json.dumps({"text": LONG_TEXT})
LONG = TranslateRequest(text=[LONG_TEXT])


@pytest.fixture
def full(gated: LiveService, model: GatedModel) -> Iterator[LiveService]:
    """A service whose slot and queue place are taken until the gate opens."""
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        occupied = [pool.submit(gated.call, LONG) for _ in range(2)]
        eventually(lambda: gated.metric("sequences_running") + gated.metric("sequences_waiting") == 2)
        yield gated
        model.gate.set()
        assert all(answer.result(WAIT_SECONDS).translations for answer in occupied)


def cpu_seconds(live: LiveService) -> float:
    """Returns the CPU time of the event loop's thread so far."""

    async def look() -> float:
        return time.thread_time()

    return asyncio.run_coroutine_threadsafe(look(), live.loop).result(WAIT_SECONDS)


@pytest.mark.promise("R12")
def test_a_rejection_costs_little_and_never_reaches_the_engine(
    full: LiveService, model: GatedModel, measured: Measured, *, thorough: bool
) -> None:
    """Measures CPU time of the event loop, which does not depend on other load of the machine."""
    refusals, steps = 3_000 if thorough else 200, len(model.steps)
    cpu = [cpu_seconds(full)]
    with closing(HTTPConnection("127.0.0.1", full.service.http_port, timeout=WAIT_SECONDS)) as connection:
        for _ in range(refusals):
            connection.request("POST", "/v1/translate", BODY, JSON)
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["reason"]) == (429, "queue_full")
    cpu.append(cpu_seconds(full))
    with full.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        for _ in range(refusals):
            call = method.future(LONG.SerializeToString(), timeout=WAIT_SECONDS)
            assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    cpu.append(cpu_seconds(full))
    assert len(model.steps) == steps
    for name, seconds in (("REST", cpu[1] - cpu[0]), ("gRPC", cpu[2] - cpu[1])):
        measured("R12", f"{name}: {seconds / refusals * 1000:.2f} ms of one CPU for each of {refusals:,} refusals")


@pytest.mark.promise("R13")
def test_a_retrying_grpc_client_waits_as_told(full: LiveService, model: GatedModel, measured: Measured) -> None:
    """Its own policy would retry within 10 ms, the last time within 30 ms."""
    backoff = {"initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1}
    policy = {"maxAttempts": 4, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"], **backoff}
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
    times_seconds, finish = list[float](), full.service.metrics.finish_request

    def finish_and_open(*arguments: Any, **options: Any) -> None:
        finish(*arguments, **options)
        if full.metric("requests_total", outcome="queue_full") > len(times_seconds):
            times_seconds.append(time.monotonic())
            model.gate.set()

    full.service.metrics.finish_request = finish_and_open  # type: ignore[method-assign]
    with grpc.insecure_channel(full.grpc_target, options=[("grpc.service_config", config)]) as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        assert method.future(LONG.SerializeToString(), timeout=WAIT_SECONDS).code() is grpc.StatusCode.OK
        times_seconds.append(time.monotonic())
    full.settle()
    # gRPC varies its own backoff by a fifth (gRFC A6), but obeys the server's time exactly.
    waits_seconds = [later - earlier for earlier, later in pairwise(times_seconds)]
    assert min(waits_seconds) > 0.5
    measured("R13", f"time to retry 1,000 ms, response after {waits_seconds[-1] * 1000:,.0f} ms")


def sequence_of(bench: Bench, tokens: int, key: object, deadline_seconds: float | None = None) -> DecodingSequence:
    options = SearchOptions(max_target_tokens=tokens)
    return DecodingSequence(
        (7, ENDLESS_ID), options, SequenceGroup(bench.finished.extend, deadline_seconds, fairness_key=key)
    )


def steps_of_short_requests(texts: int, *, fair: bool = True) -> list[int]:
    """Returns the steps of each request of one text, next to a client with requests of `texts`, or of none if 0.

    Requests of one text arrive at random moments and use 80 % of four slots; the other client uses the rest.
    """
    bench, chance = Bench(slots=4), np.random.default_rng(1)

    def submit(count: int) -> list[DecodingSequence]:
        key = object() if fair else None
        sequences = [sequence_of(bench, 5, key) for _ in range(count)]
        bench.scheduler.submit(sequences)
        return sequences

    took: list[int] = []
    others: list[DecodingSequence] = []
    requested: list[tuple[int, DecodingSequence]] = []
    for step in range(600):
        if all(sequence.hypotheses for sequence in others):
            others = submit(texts)
        requested += [(step, submit(1)[0]) for _ in range(chance.poisson(0.64))]
        bench.step()
        took += [step + 1 - requested_at for requested_at, sequence in requested if sequence.hypotheses]
        requested = [(requested_at, sequence) for requested_at, sequence in requested if not sequence.hypotheses]
    return took


@pytest.mark.promise("R14")
def test_a_large_request_does_not_block_small_ones(measured: Measured) -> None:
    """In a plain queue they would wait; the goal is at most 1.5 times the 99th percentile without the other client."""
    alone, shared, in_line = (
        float(np.percentile(steps_of_short_requests(texts, fair=fair), 99))
        for texts, fair in ((0, True), (50, True), (50, False))
    )
    assert shared < 2.5 * alone
    assert in_line > 3 * shared
    measured(
        "R14",
        f"p99 of one text at 80 % load: {alone:.0f} steps; {shared:.0f} next to a client with 50 texts "
        f"({shared / alone:.1f} times; goal 1.5); {in_line:.0f} in a plain queue",
    )


def goodput(load: float, steps: int) -> tuple[float, float]:
    """Returns the tokens per step that are completed in time, and the 99th percentile of the latency in seconds.

    Requests of 1 to 20 tokens arrive at random moments, a share `load` of the capacity of eight slots; each has a
    deadline of 0.5 s, and a step takes 0.01 s.
    """
    bench, chance = Bench(slots=8, queue_limit=64), np.random.default_rng(1)
    useful_tokens, asked_seconds, took_seconds = 0, dict[DecodingSequence, float](), list[float]()
    for _ in range(steps):
        bench.clock.seconds += 0.01
        for limit in chance.integers(1, 21, chance.poisson(load * bench.slots / 10.5)):
            deadline_seconds = bench.clock() + 0.5
            with suppress(ServiceError), bench.scheduler.reserve(1, deadline_seconds) as reservation:
                sequence = sequence_of(bench, int(limit), object(), deadline_seconds)
                asked_seconds[sequence] = bench.clock()
                bench.scheduler.submit([sequence], reservation)
        bench.step()
        for sequence in bench.finished:
            if sequence.error is None:
                useful_tokens += sequence.options.max_target_tokens
                took_seconds.append(bench.clock() - asked_seconds[sequence])
        bench.finished.clear()
    return useful_tokens / steps, float(np.percentile(took_seconds, 99))


@pytest.mark.promise("R10")
def test_goodput_at_twice_the_capacity_equals_goodput_at_the_capacity(measured: Measured, *, thorough: bool) -> None:
    """Counted in steps, independent of the machine; docs/loadtest.md describes `dragoman load` for a real one."""
    steps = 30_000 if thorough else 1_000
    (at_capacity, _), (beyond, p99_seconds) = goodput(1.0, steps), goodput(2.0, steps)
    assert beyond >= 0.95 * at_capacity
    assert p99_seconds <= 0.5
    measured(
        "R10",
        f"{steps:,} steps of 8 slots: {beyond:.2f} tokens a step in time at twice the capacity, {at_capacity:.2f} at "
        f"capacity ({beyond / at_capacity:.0%}); p99 {p99_seconds:.2f} s of 0.5",
    )


def latencies(live: LiveService, requests: int) -> list[float]:
    """Returns the latency of some requests in seconds, one after another; none may fail."""
    taken = []
    with live.http() as client:
        for _ in range(requests):
            begun_seconds = time.monotonic()
            assert client.post("/v1/translate", json={"text": LONG_TEXT}).status_code == 200
            taken.append(time.monotonic() - begun_seconds)
    return taken


@pytest.mark.promise("R11")
def test_latency_recovers_after_overload(bundle_path: Path, measured: Measured, *, thorough: bool) -> None:
    model = FakeModel(4, on_step=lambda: time.sleep(0.001))
    seconds, over = 20.0 if thorough else 1.0, threading.Event()
    with run_service(bundle_path, [model], queue_limit=8) as live, ThreadPoolExecutor(CLIENTS) as pool:
        schedule, late = live.scheduler.schedule, list[DecodingSequence]()

        def schedule_and_look(free_rows: int, running_rows: int) -> list[DecodingSequence]:
            scheduled = schedule(free_rows, running_rows)
            late.extend(item for item in scheduled if (item.group.deadline_seconds or math.inf) <= item.started_seconds)
            return scheduled

        live.scheduler.schedule = schedule_and_look  # type: ignore[method-assign]

        def press(client: int) -> Counter[int]:
            timeout_ms = "100" if client % 2 else "60000"  # on a slow machine, only patient clients get answers
            seen: Counter[int] = Counter()
            with closing(HTTPConnection("127.0.0.1", live.service.http_port, timeout=WAIT_SECONDS)) as connection:
                while not over.is_set():
                    connection.request("POST", "/v1/translate", BODY, {**JSON, "x-request-timeout-ms": timeout_ms})
                    answer = connection.getresponse()
                    answer.read()
                    seen[answer.status] += 1
            return seen

        before = latencies(live, 10)
        clients = [pool.submit(press, client) for client in range(CLIENTS)]
        assert not over.wait(seconds)
        over.set()
        seen = sum((client.result(WAIT_SECONDS) for client in clients), start=Counter[int]())
        over_seconds = time.monotonic()
        eventually(lambda: live.pipeline.scheduler.idle)
        idle_seconds = time.monotonic() - over_seconds
        after = latencies(live, 10)
    assert set(seen) <= {200, 429, 504}
    assert seen.total() > seen[200] > 0
    assert late == []
    medians = [1000 * statistics.median(item) for item in (before, after)]
    measured(
        "R11",
        f"{seconds:.0f} s with {CLIENTS} clients on 4 slots and 8 places: {seen[200]:,} answered, {seen[429]:,} "
        f"refused, {seen[504]:,} too late, of which none started then; queue empty {idle_seconds * 1000:.0f} ms later; "
        f"median of a lone request {medians[0]:.0f} ms before, {medians[1]:.0f} ms after",
    )
