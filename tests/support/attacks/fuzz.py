"""Fuzzes the gRPC port of a server with damaged conversations, next to a client that checks the health all the time."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.serve.host.server_process import HOST
from tests.support.attacks.damaged import damaged
from tests.support.attacks.http2 import Http2Answers
from tests.support.attacks.link import attempt
from tests.support.floods import Served
from tests.support.live import WAIT_SECONDS

ATTACKERS = 8
PAUSE_SECONDS = 0.01
OK = "OK"


@dataclass(slots=True)
class Fuzzing:
    """What damaged conversations and the health checks of another client got, and exit statuses of servers by seed."""

    conversations: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    crashes: dict[int, int] = field(default_factory=dict)

    async def run(self, served: Served, seed: int, conversations: int) -> None:
        """Fuzzes a server with as many conversations, which `seed` determines."""
        checking = asyncio.create_task(self._check(served))
        numbers = count()

        async def attack() -> None:
            while (number := next(numbers)) < conversations:
                await self._converse(served, Random(f"{seed} {number}"))

        await asyncio.gather(*(attack() for _ in range(ATTACKERS)))
        checking.cancel()
        await asyncio.wait([checking])
        if (status := served.process.exit_status) is not None:
            self.crashes[seed] = status

    async def _converse(self, served: Served, random: Random) -> None:
        self.conversations += 1
        target = served.attack("damaged calls", 0.0).target()
        await attempt(target, Http2Answers(self.answers), partial(damaged, random=random), self.answers)

    async def _check(self, served: Served) -> None:
        """Checks the health, each time over a new connection."""
        while True:
            begun_seconds = time.monotonic()
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(f"{HOST}:{served.ports[1]}", options) as channel:
                stub: Any = health_pb2_grpc.HealthStub(channel)
                try:
                    await stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS)
                    self.statuses[OK] += 1
                except grpc.aio.AioRpcError as error:
                    self.statuses[error.code().name] += 1
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - begun_seconds)
            await asyncio.sleep(PAUSE_SECONDS)

    def report(self) -> str:
        answers, statuses = (
            ", ".join(f"{name}: {number:,}" for name, number in sorted(item.items()))
            for item in (self.answers, self.statuses)
        )
        return (
            f"damaged conversations: {self.conversations:,}; {answers}\nhealth checks: {statuses}; "
            f"slowest {self.slowest_seconds * 1000:.0f} ms\ncrashes by seed: {self.crashes or 'none'}"
        )
