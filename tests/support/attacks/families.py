"""The families of attacks, and floods: many connections of a family at once, opened again when they end."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.support.attacks import damaged, http1, http2
from tests.support.attacks.link import Answers, Behavior, Http1Answers, Link, Target, attempt

# All connections open within a second: at once, their requests alone would exceed the capacity.
OPEN_SECONDS = 1.0
REOPEN_SECONDS = 0.05
CANCEL_SECONDS = 1.0
JOIN_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Family:
    """What one client does on one connection, and how many of them a flood has.

    Attributes:
        reads: whether clients read the answers.
        handshake: whether clients complete the TLS handshake, if the server has TLS.
        kept_bytes: memory that the allocator keeps for the next large bodies.
    """

    attack: Behavior
    port: Literal["rest", "grpc"]
    connections: int
    reads: bool = True
    handshake: bool = True
    kept_bytes: int = 0

    def answers(self, counts: Counter[str]) -> Answers:
        """Returns what reads the answers on a connection and adds them to `counts`."""
        return Http1Answers(counts) if self.port == "rest" else http2.Http2Answers(counts)


FAMILIES = {
    "idle": Family(http1.idle, "rest", 500),
    "idle after an answer": Family(http1.idle_after_answer, "rest", 500),
    "opened and closed": Family(http1.open_and_close, "rest", 50),
    "half headers": Family(http1.half_header, "rest", 500),
    "slow headers": Family(http1.slow_header, "rest", 500),
    "missing bodies": Family(http1.missing_body, "rest", 400),
    "slow bodies": Family(http1.slow_body, "rest", 400),
    "slow chunks": Family(http1.slow_chunks, "rest", 400),
    "unread answers": Family(http1.large_answers, "rest", 400, reads=False),
    "unread events": Family(http1.events, "rest", 40, reads=False),
    "unread pipelining": Family(http1.pipelined, "rest", 50, reads=False),
    "pipelining": Family(http1.pipelined, "rest", 4),
    "refused requests": Family(http1.refused, "rest", 4),
    "long characters": Family(http1.long_characters, "rest", 4),
    "many sentences": Family(http1.many_sentences, "rest", 4),
    "nested JSON": Family(http1.nested_json, "rest", 4),
    "compressed bombs": Family(http1.bombs, "rest", 4),
    "waiting bombs": Family(http1.waiting_bombs, "rest", 100, kept_bytes=96 << 20),
    "glossary bombs": Family(http1.stored_bombs, "rest", 4, kept_bytes=32 << 20),
    "scrapes": Family(http1.scrapes, "rest", 50),
    "documents": Family(http1.documents, "rest", 4),
    "half handshakes": Family(http1.half_handshake, "rest", 300, handshake=False),
    "unfinished handshakes": Family(http1.unfinished_handshake, "rest", 300, handshake=False),
    "gRPC idle": Family(http1.idle, "grpc", 500, reads=False),
    "gRPC idle after the preface": Family(http2.idle, "grpc", 500),
    "gRPC half handshakes": Family(http1.half_handshake, "grpc", 300, handshake=False),
    "gRPC unfinished handshakes": Family(http1.unfinished_handshake, "grpc", 300, handshake=False),
    "streams left": Family(http2.streams_left, "grpc", 2),
    "streams reset": Family(http2.streams_reset, "grpc", 2),
    "continuations": Family(http2.continuations, "grpc", 4),
    "pings": Family(http2.pings, "grpc", 4),
    "unread pings": Family(http2.pings, "grpc", 20, reads=False),
    "settings": Family(http2.settings, "grpc", 4),
    "empty data": Family(http2.empty_data, "grpc", 4),
    "windows": Family(http2.windows, "grpc", 4),
    "slow messages": Family(http2.slow_message, "grpc", 300),
    "closed windows": Family(http2.closed_window, "grpc", 20),
    "unread calls": Family(http2.closed_window, "grpc", 20, reads=False),
    "idle TranslateMany": Family(http2.many_idle, "grpc", 10),
    "health watches": Family(http2.watches, "grpc", 10),
    "reflection": Family(http2.reflections, "grpc", 10),
    "invalid calls": Family(http2.calls, "grpc", 2),
    "damaged calls": Family(damaged.damaged, "grpc", 4),
}


@dataclass(slots=True)
class Flood:
    """Attackers of one family at work; `answers` are what connections got, and how they ended, see `attempt`."""

    family: Family
    target: Target
    answers: Counter[str] = field(default_factory=Counter)
    open: int = 0
    most_open: int = 0

    async def run(self, seconds: float) -> None:
        pause_seconds = OPEN_SECONDS / self.family.connections
        tasks = [asyncio.create_task(self._client(pause_seconds * number)) for number in range(self.family.connections)]
        try:
            await asyncio.sleep(seconds)
        finally:
            pending = set(tasks)
            while pending:  # `asyncio.wait_for` may swallow a cancellation
                for task in pending:
                    task.cancel()
                _, pending = await asyncio.wait(pending, timeout=CANCEL_SECONDS)

    async def _client(self, begin_seconds: float) -> None:
        await asyncio.sleep(begin_seconds)
        target = self.target if self.family.handshake else replace(self.target, context=None)
        while True:
            answers = self.family.answers(self.answers)
            await attempt(target, answers, self._attack, self.answers, reads=self.family.reads)
            await asyncio.sleep(REOPEN_SECONDS)

    async def _attack(self, link: Link) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self.family.attack(link)
        finally:
            self.open -= 1


@contextmanager
def flooding(name: str, target: Target, connections: int | None = None) -> Iterator[Flood]:
    """Attacks from a thread while the block runs, with as many connections as the family states by default."""
    family = FAMILIES[name] if connections is None else replace(FAMILIES[name], connections=connections)
    flood, loop = Flood(family, target), asyncio.new_event_loop()
    task = loop.create_task(flood.run(float(threading.TIMEOUT_MAX)))
    thread = threading.Thread(target=_run, args=(loop, task), name="attackers", daemon=True)
    thread.start()
    try:
        yield flood
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(JOIN_SECONDS)


def _run(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    try:
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    finally:
        loop.close()
