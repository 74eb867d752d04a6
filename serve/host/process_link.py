"""Messages between the processes of a service: each side asks, the other answers. Both run an event loop.

A message is its length in four bytes, then JSON: [number, name, value] for a question, [number, value] for an answer.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import structlog
from pydantic_core import from_json, to_json

LENGTH_BYTES = 4
# Longer than any message: the metrics of a service with a hundred models.
MAX_BYTES = 64 << 20

log = structlog.get_logger("dragoman")

# Answers a question by its name and value; the answer is of JSON.
Answerer = Callable[[str, Any], Awaitable[Any]]


class LinkClosedError(Exception):
    """The other process has ended or does not answer."""


class ProcessLink:
    """One end of connected sockets; `closed` is set when the other end is closed and everything is read."""

    def __init__(self, end: socket.socket, answer: Answerer) -> None:
        """Takes over the socket. `run` must run; `answer` answers the questions of the other side."""
        self._end = end
        self._answer = answer
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None
        self._opened = asyncio.Event()
        self.closed = asyncio.Event()

    async def run(self) -> None:
        """Exchanges messages until the other side closes its end."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._end)
        self._opened.set()
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                if length > MAX_BYTES:
                    return
                self._take(from_json(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self.closed.set()
            self._writer.close()
            for question in self._asked.values():
                if not question.done():
                    question.set_exception(LinkClosedError("the other process has ended"))

    async def ask(self, name: str, value: Any = None, *, seconds: float | None = None) -> Any:
        """Returns the answer of the other side; raises LinkClosedError if it ends, or is silent for `seconds`."""
        await self._opened.wait()
        number = next(self._numbers)
        question = self._asked[number] = asyncio.get_running_loop().create_future()
        # If sending fails as well, nobody waits for the answer.
        question.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async with asyncio.timeout(seconds):
                await self._send([number, name, value])
                return await question
        except TimeoutError as error:
            raise LinkClosedError(f"no answer to {name} after {seconds} seconds") from error
        finally:
            del self._asked[number]

    def _take(self, message: list[Any]) -> None:
        if len(message) == 2:  # noqa: PLR2004 - see the docstring of the module
            number, value = message
            question = self._asked.get(number)
            if question is not None and not question.done():
                question.set_result(value)
            return
        task = asyncio.create_task(self._reply(*message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, number: int, name: str, value: Any) -> None:
        try:
            answer = await self._answer(name, value)
        except Exception:
            log.exception("question_failed", question=name)
            answer = None
        with suppress(LinkClosedError):
            await self._send([number, answer])

    async def _send(self, message: list[Any]) -> None:
        if self._writer is None or self._writer.is_closing():
            raise LinkClosedError("the other process has ended")
        data = to_json(message)
        self._writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise LinkClosedError("the other process has ended") from error
