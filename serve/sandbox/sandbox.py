"""Calls parsers from an event loop. The loop only moves bytes and decodes small frames; it never waits for a parser."""

import asyncio
import json
import signal
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any, TypeVar

import structlog

from dragoman.serve.errors import DeadlineExceededError, InternalError, NotReadyError, RequestTooLargeError
from dragoman.serve.host.system import without_full_collections
from dragoman.serve.sandbox import frames
from dragoman.serve.sandbox.host import ParserHost
from dragoman.serve.sandbox.worker import MEBIBYTE, MEMORY_STATUS, PROBE, Limits, Purpose, Refusal

# Attempts of a call whose worker dies for a reason that is none of the limits.
MAX_TRIES = 3
# Calls of a purpose and process that have sockets; others wait for them.
MAX_OPEN_CALLS = 4
_STATUS_BYTES = 1024
_PROBE_LIMITS = Limits(memory_bytes=16 * MEBIBYTE, cpu_seconds=5, wall_seconds=30.0, output_bytes=MEBIBYTE)

T = TypeVar("T")
log = structlog.get_logger("dragoman")


class ParserUnavailableError(NotReadyError):
    """No process for parsers can be started."""


class _DiedError(Exception):
    """A worker ended without a result and without a known reason."""


class Sandbox:
    """Calls parsers in limited processes."""

    def __init__(self, calls: socket.socket | None = None) -> None:
        """Creates the sandbox; `calls` is the socket of another process's host. None: it has a host of its own."""
        self._calls = calls
        self._host: ParserHost | None = None
        self._open: defaultdict[Purpose, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_OPEN_CALLS))
        self._closed = False
        # Whether the last call had a process.
        self._proven = False

    async def call(
        self,
        parser: str,
        items: Sequence[frames.Item],
        *,
        purpose: Purpose,
        limits: Limits,
        convert: Callable[[frames.Item], T],
        deadline_seconds: float | None = None,
    ) -> list[T]:
        """Returns the items of a result.

        Args:
            parser: its name in the dictionary PARSERS of its module.
            purpose: calls of one purpose wait for each other.
            deadline_seconds: on the clock of `time.monotonic`; None: the call waits for all before it.
            convert: called with each item of the result; raises LookupError, TypeError or ValueError for a wrong one.

        Raises:
            Refusal: if the parser refuses the input.
            RequestTooLargeError: if the call exceeds a limit, which the message names.
            ParserUnavailableError: if no process can be started.
            InternalError: if the parser fails, or its process dies `MAX_TRIES` times.
            DeadlineExceededError: if the deadline passes before.
        """
        try:
            async with asyncio.timeout_at(deadline_seconds), self._open[purpose]:
                return await self._call(_Call(parser, purpose, limits), items, convert)
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the request was prepared") from None

    async def _call(self, call: "_Call", items: Sequence[frames.Item], convert: Callable[[frames.Item], T]) -> list[T]:
        for _ in range(MAX_TRIES):
            try:
                result = await call.run(self._socket(), items, convert)
            except ParserUnavailableError as error:
                failure: InternalError | ParserUnavailableError = error
            except _DiedError as error:
                log.warning("parser_died", parser=call.parser, problem=str(error))
                failure = InternalError(f"the process of the parser ended {MAX_TRIES} times without a result")
            else:
                self._proven = True
                return result
        self._proven = not isinstance(failure, ParserUnavailableError)
        raise failure

    async def check(self) -> None:
        """Checks by a call, if the last one had no process; raises ParserUnavailableError if none can be started."""
        if not self._proven:
            await self.call(PROBE, (), purpose="probes", limits=_PROBE_LIMITS, convert=str)

    def close(self) -> None:
        """Refuses calls from now on, and ends the processes, unless they belong to the host of another process."""
        self._closed = True
        if self._host is not None:
            self._host.close()
            self._host = None

    def _socket(self) -> socket.socket:
        if self._closed:
            raise ParserUnavailableError("the server stops")
        if self._calls is not None:
            return self._calls
        if self._host is None:
            self._host = ParserHost()
            self._host.watch()
        return self._host.calls


class _Call:
    """A call, which may be tried several times."""

    def __init__(self, parser: str, purpose: Purpose, limits: Limits) -> None:
        self._message = json.dumps([parser, purpose, asdict(limits)]).encode()
        self.parser = parser
        self._limits = limits

    async def run(
        self, calls: socket.socket, items: Iterable[frames.Item], convert: Callable[[frames.Item], T]
    ) -> list[T]:
        """Returns the result; to cancel the call ends the worker."""
        end, status = self._send(calls)
        with status:
            reader, writer = await asyncio.open_unix_connection(sock=end)
            try:
                with suppress(OSError):  # the worker may have ended
                    for frame in frames.encode(items):
                        writer.write(frame)
                        await writer.drain()
                result = await self._read(reader, convert)
            finally:
                writer.transport.abort()
            return result if result is not None else await self._explain(status)

    def _send(self, calls: socket.socket) -> tuple[socket.socket, socket.socket]:
        """Sends the call, and returns the sockets of items and status; raises ParserUnavailableError if that fails."""
        try:
            with ExitStack() as opened:
                (end, worker_end), (status, worker_status) = (_open_pair(opened) for _ in range(2))
                socket.send_fds(calls, [self._message], [worker_end.fileno(), worker_status.fileno()])
                opened.pop_all()
                worker_end.close()
                worker_status.close()
                status.setblocking(False)
                return end, status
        except OSError as error:
            raise ParserUnavailableError(f"the parsers cannot be reached: {error.strerror}") from error

    async def _read(self, reader: asyncio.StreamReader, convert: Callable[[frames.Item], T]) -> list[T] | None:
        """Returns the result; None: the worker ended before."""
        try:
            header = await reader.readexactly(frames.HEADER_BYTES)
            # Full collections would traverse the objects of the result again and again.
            with without_full_collections():
                return await self._read_frames(header, reader, convert)
        except (asyncio.IncompleteReadError, OSError):
            return None
        except (frames.FrameError, LookupError, TypeError, ValueError) as error:
            log.warning("parser_answered_nonsense", parser=self.parser, problem=type(error).__name__)
            raise InternalError("the parser gave no valid result") from error

    async def _read_frames(
        self, header: bytes, reader: asyncio.StreamReader, convert: Callable[[frames.Item], T]
    ) -> list[T]:
        decoder, result, size = frames.Decoder(), list[T](), 0
        while True:
            kind, length = frames.read_header(header)
            size += frames.HEADER_BYTES + length
            if size > self._limits.output_bytes:
                raise _excess(f"a result of more than {self._limits.output_bytes // MEBIBYTE} MiB")
            content = await reader.readexactly(length)
            if kind in (frames.END, frames.REFUSAL, frames.FAILURE):
                with suppress(OSError):
                    await reader.read(1)  # the worker closes the socket when it can take a further call
            if kind == frames.END:
                return result
            if kind == frames.REFUSAL:
                raise Refusal(*frames.decode_json(content))
            if kind == frames.FAILURE:
                log.error("parser_failed", parser=self.parser, problem=str(frames.decode_json(content)))
                raise InternalError("internal error, see the log of the server")
            result += map(convert, decoder.decode(kind, content))
            header = await reader.readexactly(frames.HEADER_BYTES)

    async def _explain(self, status: socket.socket) -> Any:
        """Raises why the worker ended, as the template reports."""
        try:
            message = await asyncio.get_running_loop().sock_recv(status, _STATUS_BYTES)
        except OSError:
            message = b""
        kind, value = json.loads(message) if message else ("ended", None)
        if kind == "unavailable":
            raise ParserUnavailableError(str(value))
        if kind == "killed":
            raise _excess(f"more than {self._limits.wall_seconds:g} s")
        if value == -signal.SIGXCPU:
            raise _excess(f"more than {self._limits.cpu_seconds} s of CPU time")
        if value in (MEMORY_STATUS, -signal.SIGABRT):  # native code aborts
            raise _excess(f"more than {self._limits.memory_bytes // MEBIBYTE} MiB of memory")
        raise _DiedError(f"status {value}")


def _open_pair(opened: ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    return opened.enter_context(ours), opened.enter_context(theirs)


def _excess(limit: str) -> RequestTooLargeError:
    return RequestTooLargeError(f"parsing takes {limit}, expected less")
