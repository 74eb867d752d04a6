"""Clients that disconnect, many at once and at any moment, over real connections: nothing of them remains."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import (
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
MAX_PATIENCE_SECONDS = 0.1
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


# Returns a function that sends a request over a new connection; the end of the stack abandons it.
Connect = Callable[[LiveService, ExitStack], Callable[[], None]]


def over_rest(path: str) -> Connect:
    def open_rest(live: LiveService, stack: ExitStack) -> Callable[[], None]:
        connection = stack.enter_context(closing(connect(live)))
        connection.connect()
        return lambda: connection.request("POST", path, BODY, JSON)

    return open_rest


def over_grpc(method: str) -> Connect:
    """The end of the stack cancels the call or disconnects."""

    def open_grpc(live: LiveService, stack: ExitStack) -> Callable[[], None]:
        channel = stack.enter_context(live.grpc_channel())
        call: Any = (channel.unary_stream if method == STREAM_METHOD else channel.unary_unary)(method)

        def send() -> None:
            data = MESSAGE.SerializeToString()
            answer = call(data) if method == STREAM_METHOD else call.future(data)
            # Both keep a reference until then: gRPC cancels a call without references.
            stack.callback(answer.cancel if random.random() < 0.5 else answer.done)

        return send

    return open_grpc


WAYS = pytest.mark.parametrize(
    ("name", "connection"),
    [
        ("REST", over_rest("/v1/translate")),
        ("REST stream", over_rest("/v1/translate/stream")),
        ("gRPC", over_grpc(TRANSLATE_METHOD)),
        ("gRPC stream", over_grpc(STREAM_METHOD)),
    ],
)


@pytest.mark.promise("R18")
@WAYS
def test_many_simultaneous_disconnects_free_everything(
    live: LiveService, models: list[GatedModel], measured: Measured, *, thorough: bool, name: str, connection: Connect
) -> None:
    """All clients leave during one step of the model; after it, no further step follows."""
    crowds, slowest_seconds = 10 if thorough else 1, 0.0
    for _ in range(crowds):
        with ExitStack() as stack:
            sends = [connection(live, stack) for _ in range(CROWD)]
            live.settle()
            for model in models:
                model.gate.clear()
            for send in sends:
                send()
            eventually(lambda: load_of(live) == CROWD)
            eventually(lambda: all(engine._running for engine in live.engines))
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


@pytest.mark.promise("R19")
@WAYS
def test_disconnects_at_any_moment_free_everything(
    live: LiveService, measured: Measured, *, thorough: bool, name: str, connection: Connect
) -> None:
    """The server never sees a gRPC call that is canceled before it is sent."""
    requests = (5_000 if thorough else 160) // CLIENTS
    golden = live.metric("sequences_finished_total")
    submitted = live.count_submitted()

    def leave_at_random(client: int) -> None:
        chance = random.Random(client)
        for _ in range(requests):
            with ExitStack() as stack:
                connection(live, stack)()
                time.sleep(chance.random() * MAX_PATIENCE_SECONDS)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(leave_at_random, range(CLIENTS)))
    if name.startswith("REST"):  # also those that the server has yet to read
        eventually(lambda: live.metric("requests_total") == requests * CLIENTS)
    live.settle()
    eventually(lambda: load_of(live) == 0)
    eventually(lambda: live.metric("sequences_finished_total") - golden == len(submitted))
    sent = requests * CLIENTS
    name, outcomes = "requests_total", ("ok", "cancelled")
    eventually(lambda: live.metric(name) == sum(live.metric(name, outcome=outcome) for outcome in outcomes))
    answered, left = (live.metric(name, outcome=outcome) for outcome in outcomes)
    assert answered + left <= sent
    assert left > 0
    assert live.pipeline.scheduler._reserved_rows == 0
    measured("R19", f"{name}: {sent:,} left at random moments: {answered:,.0f} answered before, {left:,.0f} canceled")


@pytest.mark.promise("R30")
def test_closed_connections_leave_no_file_or_thread(live: LiveService, measured: Measured, *, thorough: bool) -> None:
    """An open connection raises the count, so the measure works."""
    opened = 10_000 if thorough else 300
    live.post({"text": "alpha."})
    before = count_open()
    with closing(connect(live)) as occupied:
        occupied.request("GET", "/healthz")
        assert occupied.getresponse().read()
        assert count_open()[0] > before[0]
    for number in range(opened):
        with closing(connect(live)) as connection:
            connection.request("GET", "/healthz")
            if number % 3 == 0:
                # resets the connection
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, *bytes(7)]))
            elif number % 3 == 1:
                assert connection.getresponse().read()
    eventually(lambda: all(now <= then for now, then in zip(count_open(), before, strict=True)))
    after = count_open()
    measured("R30", f"after {opened:,} connections: files {after[0] - before[0]:+d}, threads {after[1] - before[1]:+d}")


def count_open() -> tuple[int, int]:
    """Returns the number of open files and threads of this process, which holds server and clients."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
