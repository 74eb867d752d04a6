"""The open-loop generator: sends every request at its intended time, however slow the answers are.

Latency runs from the intended send time, so a stalled server is charged for the requests that it kept waiting, even
those that had not been sent yet. What the generator itself was late is kept apart, as lag. Knows no protocol: it calls
a `Client`. Time is the event loop's monotonic clock.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest.arrivals import Arrivals

OK = "ok"


class Client(Protocol):
    """Sends one request and waits for its answer."""

    async def send(self, texts: Sequence[str]) -> str:
        """Returns OK, or the status and reason of the failure; raises nothing that a server or network can cause."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What became of one request; times are seconds from the start of the run.

    Attributes:
        intended_seconds: when it should have been sent.
        sent_seconds: when it was sent.
        answered_seconds: when its answer, or the failure, was there.
        outcome: OK, or the status and reason of the failure.
    """

    intended_seconds: float
    sent_seconds: float
    answered_seconds: float
    outcome: str

    @property
    def latency_seconds(self) -> float:
        """What a user who arrived on time has waited."""
        return self.answered_seconds - self.intended_seconds

    @property
    def lag_seconds(self) -> float:
        """How late the generator was; not the server's doing."""
        return self.sent_seconds - self.intended_seconds


async def run_open_loop(
    client: Client,
    arrivals: Arrivals,
    requests: Sequence[Sequence[str]],
    on_answer: Callable[[], object],
) -> list[Sample]:
    """Sends request i at `arrivals[i]` and returns one sample per request, in order of arrival.

    Args:
        client: sends the requests; any number may be in flight.
        arrivals: shape (requests,), seconds from the start, ascending.
        requests: the texts of each request.
        on_answer: called after each answer, for a progress bar.
    """
    loop = asyncio.get_running_loop()
    start_seconds = loop.time()

    async def send(intended_seconds: float, texts: Sequence[str]) -> Sample:
        sent_seconds = loop.time() - start_seconds
        outcome = await client.send(texts)
        answered_seconds = loop.time() - start_seconds
        on_answer()
        return Sample(intended_seconds, sent_seconds, answered_seconds, outcome)

    tasks: list[asyncio.Task[Sample]] = []
    async with asyncio.TaskGroup() as group:
        for intended_seconds, texts in zip(arrivals.tolist(), requests, strict=True):
            # A generator that is behind still yields here, so that what it has scheduled is sent.
            await asyncio.sleep(max(0.0, start_seconds + intended_seconds - loop.time()))
            tasks.append(group.create_task(send(intended_seconds, texts)))
    return [task.result() for task in tasks]
