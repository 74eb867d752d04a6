"""One step per iteration of the event loop."""

import asyncio
import socket
from collections import Counter

import pytest
from starlette.types import Receive, Scope, Send

from dragoman.serve.http.connection import Connection
from dragoman.serve.http.limits import Connections, HttpLimits, StepQueue
from dragoman.serve.observability.metrics import ServiceMetrics
from tests.support.live import WAIT_SECONDS
from tests.support.raw_http import head


@pytest.mark.anyio
async def test_an_iteration_of_the_event_loop_has_one_step() -> None:
    """Also if a step fails."""
    steps, events = StepQueue(), list[str]()

    def step() -> None:
        events.append("step")
        raise OSError

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for _ in range(3):
        steps.add(step)
    for _ in range(5):
        events.append("iteration")
        await asyncio.sleep(0)
    steps.add(step)
    await asyncio.sleep(0)
    assert events == ["iteration", "step"] * 3 + ["iteration"] * 2 + ["step"]


def test_requests_behind_others_start_one_in_each_iteration() -> None:
    starts = list[int]()
    iteration = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        starts.append(iteration)
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    async def run() -> None:
        nonlocal iteration
        connections = Connections(HttpLimits(), ServiceMetrics().http_connections)
        pairs = [socket.socketpair() for _ in range(3)]
        for client, accepted in pairs:
            accepted.setblocking(False)
            connection = Connection(app, connections)
            connections.add(connection, "127.0.0.1")
            connection.open(accepted, None)
            client.sendall(head("GET", "/") * 4)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(starts) < 12:
                iteration += 1
                await asyncio.sleep(0)
        connections.abort()
        for client, _ in pairs:
            client.close()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert max(Counter(starts[3:]).values()) == 1
