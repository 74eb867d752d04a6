"""Clients that disconnect, many at once and at any moment, over real connections: nothing of them remains."""

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from protos.translation_pb2 import TranslateRequest
from tests.support.live import (
    LONG_TEXT,
    STREAM_METHOD,
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    eventually,
    run_service,
)
from tests.support.promises import Measured

# Concurrent clients.
CROWD = 100
CLIENTS = 16
# About the time of a response on a busy machine: some clients leave before the first byte, some after the last.
LONGEST_PATIENCE_SECONDS = 0.1
JSON = {"content-type": "application/json"}
BODY = json.dumps({"text": LONG_TEXT})
MESSAGE = TranslateRequest(text=[LONG_TEXT])


@pytest.fixture
def models() -> list[GatedModel]:
    return [GatedModel(4), GatedModel(4)]


@pytest.fixture
def live(bundle_path: Path, models: list[GatedModel]) -> Iterator[LiveService]:
    with run_service(bundle_path, models, queue_limit=2 * CROWD) as live:
        yield live
        for model in models:
            model.gate.set()


def load_of(live: LiveService) -> float:
    return live.metric("sequences_running") + live.metric("sequences_waiting")


def connect(live: LiveService) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", live.service.http_port, timeout=WAIT_SECONDS)


def open_rest(live: LiveService, stack: ExitStack, path: str) -> Callable[[], None]:
    """Sends one request on a persistent connection, and returns a function that sends the request to abandon."""
    connection = stack.enter_context(closing(connect(live)))
    connection.request("POST", "/v1/translate", json.dumps({"text": "alpha."}), JSON)
    assert connection.getresponse().read()
    return lambda: connection.request("POST", path, BODY, JSON)


def open_grpc(live: LiveService, stack: ExitStack, method: str) -> Callable[[], None]:
    """Returns a function that sends a request, which the end of the stack cancels or disconnects in turn."""
    channel = stack.enter_context(live.grpc_channel())
    call: Any = (channel.unary_stream if method == STREAM_METHOD else channel.unary_unary)(method)

    def send() -> None:
        data = MESSAGE.SerializeToString()
        answer = call(data) if method == STREAM_METHOD else call.future(data)
        # Both keep a reference until then: gRPC cancels a call without references.
        stack.callback(answer.cancel if random.random() < 0.5 else answer.done)

    return send


@pytest.mark.promise("R18")
@pytest.mark.parametrize(
    ("name", "connection", "way"),
    [
        ("REST", open_rest, "/v1/translate"),
        ("REST stream", open_rest, "/v1/translate/stream"),
        ("gRPC", open_grpc, TRANSLATE_METHOD),
        ("gRPC stream", open_grpc, STREAM_METHOD),
    ],
)
def test_many_simultaneous_disconnects_free_everything(
    live: LiveService,
    models: list[GatedModel],
    measured: Measured,
    *,
    thorough: bool,
    name: str,
    connection: Callable[[LiveService, ExitStack, str], Callable[[], None]],
    way: str,
) -> None:
    """All clients leave during one step of the model; after it, no further step follows."""
    crowds, slowest_seconds = 10 if thorough else 1, 0.0
    for _ in range(crowds):
        with ExitStack() as stack:
            sends = [connection(live, stack, way) for _ in range(CROWD)]
            live.settle()
            for model in models:
                model.gate.clear()
            for send in sends:
                send()
            eventually(lambda: load_of(live) == CROWD)
            eventually(lambda: all(engine._rows.sequences for engine in live.engines))
            steps = [len(model.steps) for model in models]
            left_seconds = time.monotonic()
        live.settle()
        slowest_seconds = max(slowest_seconds, time.monotonic() - left_seconds)
        for model in models:
            model.gate.set()
        eventually(lambda: load_of(live) == 0)
        assert [len(model.steps) for model in models] == [before + 1 for before in steps]
    left = crowds * CROWD
    assert live.metric("requests_total", outcome="cancelled") == left
    # The counters of finished sequences change just after the gauges.
    eventually(lambda: live.metric("sequences_finished_total", reason="cancelled") == left)
    assert live.metric("wasted_tokens_total", cause="cancelled") <= crowds * len(models) * models[0].slots
    measured(
        "R18",
        f"{name}: {left:,} of {left:,} free after 1 step; of {CROWD} that left at once, the server knew after "
        f"{slowest_seconds * 1000:.0f} ms at most",
    )


def storm_rest(live: LiveService, chance: random.Random, requests: int) -> Counter[str]:
    """Sends requests in sequence and abandons half of them; returns their outcomes."""
    seen: Counter[str] = Counter()
    connection = connect(live)
    for _ in range(requests):
        connection.request("POST", chance.choice(["/v1/translate", "/v1/translate/stream"]), BODY, JSON)
        if chance.random() < 0.5:
            time.sleep(chance.random() * LONGEST_PATIENCE_SECONDS)
            connection.close()
            seen["left"] += 1
        else:
            answer = connection.getresponse()
            answer.read()
            seen[str(answer.status)] += 1
    connection.close()
    return seen


def storm_grpc(live: LiveService, chance: random.Random, requests: int) -> Counter[str]:
    """The same over gRPC; the server never sees a request that is canceled before it is sent."""
    seen: Counter[str] = Counter()
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        for _ in range(requests):
            call = method.future(MESSAGE.SerializeToString(), timeout=WAIT_SECONDS)
            if chance.random() < 0.5:
                time.sleep(chance.random() * LONGEST_PATIENCE_SECONDS)
                call.cancel()
                seen["left"] += 1
            else:
                assert call.result()
                seen["200"] += 1
    return seen


@pytest.mark.promise("R19")
@pytest.mark.parametrize(("name", "storm"), [("REST", storm_rest), ("gRPC", storm_grpc)])
def test_a_storm_of_cancellations_frees_everything(
    live: LiveService,
    measured: Measured,
    *,
    thorough: bool,
    name: str,
    storm: Callable[[LiveService, random.Random, int], Counter[str]],
) -> None:
    requests = (10_000 if thorough else 320) // CLIENTS
    golden = live.metric("sequences_finished_total")
    submitted = live.count_submitted()
    with ThreadPoolExecutor(CLIENTS) as pool:
        storms = [pool.submit(storm, live, random.Random(client), requests) for client in range(CLIENTS)]
        seen = sum((each.result() for each in storms), start=Counter[str]())
    live.settle()
    over_seconds = time.monotonic()
    eventually(lambda: load_of(live) == 0)
    idle_seconds = time.monotonic() - over_seconds
    sent, ok, cancelled = (sum(seen.values()), seen["200"], live.metric("requests_total", outcome="cancelled"))
    assert set(seen) <= {"200", "left"}
    counted = live.metric("requests_total")
    assert (counted == sent) if name == "REST" else (ok <= counted <= sent)
    assert counted == live.metric("requests_total", outcome="ok") + cancelled
    assert cancelled > 0
    eventually(lambda: live.metric("sequences_finished_total") - golden == len(submitted))
    assert live.pipeline.scheduler._admission.reserved_rows == 0
    measured(
        "R19",
        f"{name}: of {sent:,} requests {seen['left']:,} left; {counted:,.0f} counted, each once; "
        f"sequences left over: 0; gauges 0 after {idle_seconds * 1000:.0f} ms",
    )


@pytest.mark.promise("R30")
def test_closed_connections_leave_no_file_and_no_thread(
    live: LiveService, measured: Measured, *, thorough: bool
) -> None:
    """An open connection raises the count, so the measure works."""
    connections = 10_000 if thorough else 300
    live.post({"text": "alpha."})
    before = count_open()
    with closing(connect(live)) as occupied:
        occupied.request("GET", "/healthz")
        assert occupied.getresponse().read()
        assert count_open()[0] > before[0]
    for number in range(connections):
        with closing(connect(live)) as connection:
            connection.request("GET", "/healthz")
            if number % 3 == 0:
                # resets the connection
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, *bytes(7)]))
            elif number % 3 == 1:
                assert connection.getresponse().read()
    eventually(lambda: count_open()[0] <= before[0])
    after = count_open()
    assert after[1] <= before[1]
    measured(
        "R30", f"after {connections:,} connections: files {after[0] - before[0]:+d}, threads {after[1] - before[1]:+d}"
    )


def count_open() -> tuple[int, int]:
    """Returns the number of open files and threads of this process, which holds server and clients."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
