"""Steps that take turns of the event loop."""

import asyncio
import socket
from collections import Counter

from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send

from serve.http.connection import Connection
from serve.http.limits import Connections, HttpLimits
from serve.http.turns import Turns
from serve.observability.connections import ConnectionMetrics
from tests.support.live import WAIT_SECONDS
from tests.support.raw_http import head


def test_a_turn_of_the_event_loop_has_one_step() -> None:
    """Also if a step fails."""

    async def run() -> list[str]:
        turns, events = Turns(), list[str]()

        def step() -> None:
            events.append("step")
            raise OSError

        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(3):
            turns.add(step)
        for _ in range(5):
            events.append("turn")
            await asyncio.sleep(0)
        turns.add(step)
        await asyncio.sleep(0)
        return events

    assert asyncio.run(run()) == ["turn", "step"] * 3 + ["turn"] * 2 + ["step"]


def test_requests_behind_others_start_one_in_each_turn() -> None:
    starts = list[int]()
    turn = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        starts.append(turn)
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    async def run() -> None:
        nonlocal turn
        connections = Connections(HttpLimits(), ConnectionMetrics(CollectorRegistry()))
        pairs = [socket.socketpair() for _ in range(3)]
        for client, accepted in pairs:
            accepted.setblocking(False)
            connection = Connection(app, connections)
            connections.add(connection, "127.0.0.1")
            connection.open(accepted, None)
            client.sendall(head("GET", "/") * 4)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(starts) < 12:
                turn += 1
                await asyncio.sleep(0)
        connections.abort()
        for client, _ in pairs:
            client.close()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert max(Counter(starts[3:]).values()) == 1
