"""The generators: open-loop, which sends every request at its intended time however slow the answers are, and closed.

In the open loop latency runs from the intended send time, so a stalled server is charged for the requests that it kept
waiting, even those that had not been sent yet. What the generator itself was late is kept apart, as lag. In the closed
loop users wait for their answers, so a stall holds them back and hardly shows: it tells capacity for so many users, and
nothing of latency under load. Knows no protocol. Time is the event loop's monotonic clock.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from loadtest.client import GONE, Answer, Client
from loadtest.plan import Plan
from loadtest.request import LoadRequest
from loadtest.sample import Sample


class Book(Protocol):
    """Takes down what happens."""

    def begin(self, request: LoadRequest, intended_seconds: float) -> None:
        """A request is being sent."""

    def end(self, sample: Sample) -> None:
        """It has ended."""


async def run_open_loop(client: Client, plan: Plan, start_seconds: float, book: Book, stop: asyncio.Event) -> None:
    """Sends every request of a plan at its time, and returns when all have ended.

    Args:
        client: sends the requests; any number may be in flight.
        plan: which and when.
        start_seconds: the start of the run, by the event loop's clock.
        book: is told of every request.
        stop: when set, no further request is sent.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        for intended_seconds, request in zip(plan.arrivals.tolist(), plan.requests, strict=True):
            # A generator that is behind still yields here, so that what it has scheduled is sent.
            await asyncio.sleep(max(0.0, start_seconds + intended_seconds - loop.time()))
            if stop.is_set():
                return
            book.begin(request, intended_seconds)
            group.create_task(_send(client, request, intended_seconds, start_seconds, book))


async def run_closed_loop(
    client: Client, users: Sequence[Plan], start_seconds: float, book: Book, stop: asyncio.Event
) -> None:
    """Has users send requests, each the next one when the last was answered, and returns when all have ended.

    Args:
        client: sends the requests.
        users: a plan for each, whose requests it sends in turn, over and over, while the plan lasts; when does not
            matter.
        start_seconds: the start of the run, by the event loop's clock.
        book: is told of every request.
        stop: when set, no further request is sent.
    """
    loop = asyncio.get_running_loop()

    async def use(plan: Plan) -> None:
        await asyncio.sleep(start_seconds - loop.time())
        number = 0
        while (now_seconds := loop.time() - start_seconds) < plan.duration_seconds and not stop.is_set():
            request = plan.requests[number % len(plan.requests)]
            book.begin(request, now_seconds)
            await _send(client, request, now_seconds, start_seconds, book)
            number += 1

    async with asyncio.TaskGroup() as group:
        for plan in users:
            group.create_task(use(plan))


async def _send(
    client: Client, request: LoadRequest, intended_seconds: float, start_seconds: float, book: Book
) -> None:
    loop = asyncio.get_running_loop()
    sent_seconds = loop.time() - start_seconds
    try:
        async with asyncio.timeout(request.cancel_after_seconds):
            answer = await client.send(request)
    except TimeoutError:
        answer = Answer(GONE)
    ended_seconds = loop.time() - start_seconds
    first_seconds = None if answer.first_seconds is None else answer.first_seconds - start_seconds
    book.end(Sample(request, intended_seconds, sent_seconds, ended_seconds, answer.outcome, first_seconds))
