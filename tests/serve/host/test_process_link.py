"""Questions and answers between two processes."""

import asyncio
import socket
from typing import Any

import pytest

from dragoman.serve.host.process_link import LinkClosedError, ProcessLink

pytestmark = pytest.mark.anyio


async def never(_: str, __: Any) -> Any:
    """Answers no question."""
    await asyncio.Event().wait()


async def echo(name: str, value: Any) -> Any:
    return [name, value]


async def test_each_side_asks_and_gets_its_own_answers() -> None:
    one, two = (ProcessLink(end, echo) for end in socket.socketpair())
    running = [asyncio.create_task(item.run()) for item in (one, two)]
    answers = await asyncio.gather(*(item.ask("a", number) for item in (one, two) for number in range(5)))
    assert answers == [["a", number] for _ in range(2) for number in range(5)]
    assert await one.ask("large", "x" * 1_000_000) == ["large", "x" * 1_000_000]
    for sequence in running:
        sequence.cancel()


async def test_the_end_of_the_other_side_fails_open_and_later_questions() -> None:
    end, other = socket.socketpair()
    link = ProcessLink(end, never)
    running = asyncio.create_task(link.run())
    requested = asyncio.create_task(link.ask("a"))
    await asyncio.sleep(0)
    other.close()
    with pytest.raises(LinkClosedError):
        await requested
    await running
    assert link.closed.is_set()
    with pytest.raises(LinkClosedError):
        await link.ask("b")


async def test_a_question_without_an_answer_ends_after_its_time() -> None:
    one, two = (ProcessLink(end, never) for end in socket.socketpair())
    running = [asyncio.create_task(item.run()) for item in (one, two)]
    with pytest.raises(LinkClosedError, match=r"no answer to a after 0\.05 seconds"):
        await one.ask("a", seconds=0.05)
    for sequence in running:
        sequence.cancel()
