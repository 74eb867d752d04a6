"""The requests of one HTTP/1.1 connection, from its input to their answers.

Requests are answered in order. The next one starts when the system has taken the answers before, which it does only
while the client reads. So a client that does not read gets no further work done. In each iteration of the event loop,
one request starts of all those that waited behind another one on their connection.
"""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import ASGIApp

from dragoman.serve.http.clock import Clock
from dragoman.serve.http.exchange import Exchange, make_scope
from dragoman.serve.http.limits import Connections, LimitedConnection, Wait
from dragoman.serve.http.output import Output
from dragoman.serve.http.parser import MAX_PIPELINED, BoundedParser, HttpRefusalError, Part
from dragoman.serve.http.problem import raw_problem

# Memory of a request that waits for the answer to an earlier one, besides its body.
REQUEST_BYTES = 8 << 10


class PipelinedConnection(LimitedConnection, Protocol):
    """The connection as its requests need it.

    Attributes:
        clock: has the time since when the connection waits for its client.
        lingers: whether the output has ended.
    """

    output: Output
    clock: Clock
    lingers: bool

    def hold(self) -> int:
        """Reports the size of the answers and requests that wait; returns that of the answers."""

    def linger(self) -> None:
        """Ends the output, and discards further input."""


class Pipeline(BoundedParser):
    """The request in progress, and those behind it.

    Attributes:
        serving: the request in progress.
        paused: whether the connection receives no input.
        first: whether no header has been complete yet.
    """

    def __init__(
        self,
        app: ASGIApp,
        connection: PipelinedConnection,
        connections: Connections,
        transport: asyncio.Transport,
        scope: dict[str, Any],
    ) -> None:
        """Creates an empty pipeline; `scope` has what all requests of the connection share."""
        super().__init__()
        self._app = app
        self._connection = connection
        self._all = connections
        self._transport = transport
        self._scope = scope
        self._waiting = deque[Exchange]()
        self._last: Exchange | None = None
        self.serving: Exchange | None = None
        self.first = True
        self._refusal: HttpRefusalError | None = None
        self.paused = self._discards = False

    @property
    def idle(self) -> bool:
        """Whether there is no request."""
        return self.serving is None and not self._waiting

    @property
    def held_bytes(self) -> int:
        """Memory of the requests that wait, and of a header in progress."""
        header_bytes = self.header_bytes if self.part is Part.HEADER else 0
        if not self._waiting:
            return header_bytes
        return header_bytes + sum([REQUEST_BYTES + len(exchange.body) for exchange in self._waiting])

    def release(self) -> None:
        """Informs the application that the client has gone away.

        Breaks reference cycles, so that memory need not wait for the garbage collector.
        """
        if self.serving is not None:
            self.serving.disconnect()
        self._waiting.clear()
        self._last = self.serving = self._refusal = None
        self.stop_parsing()
        del self._connection

    def receive(self, data: bytes) -> None:
        """Parses input, unless the connection is about to close."""
        if self._discards:
            return
        refusal = self.feed(data)
        if refusal is not None:
            self.refuse(refusal)
        self.note_wait()
        if self._waiting or self.part is Part.HEADER:
            self._connection.hold()

    def begin_header(self) -> None:
        """The time of the first header begins with the connection, that of others with their first byte."""
        if not self.first:
            self._connection.clock.restart()

    def begin_request(self, method: bytes, version: str, *, keep_alive: bool) -> None:
        """Starts a request, or queues it behind an earlier one."""
        if len(self._waiting) >= MAX_PIPELINED:
            problem = f"expected at most {MAX_PIPELINED} requests without an answer"
            raise HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "pipelined")
        scope = make_scope(method, self.target, version, self.headers, self._scope)
        output = self._connection.output
        self._last = Exchange(self, output, scope, keep_alive=keep_alive, expects_continue=self.expects_continue)
        self._waiting.append(self._last)
        self._start_next()
        if self._waiting:
            self._pause_reading()
        self.first = False

    def add_body(self, data: bytes) -> None:
        """Takes a part of the body of the last request."""
        if self._last is not None and self._last.add_body(data):
            self._pause_reading()

    def end_request(self) -> None:
        """Ends the last request; its answer may be complete by then."""
        if self._last is not None:
            self._last.end_body()
        if self.idle:
            self._wait()

    def start_later(self) -> None:
        """Starts the next request, if there is one, in its iteration."""
        if self._waiting:
            self._all.pipelined.add(self.start_next)

    def start_next(self) -> None:
        """Starts the next request if the client has read the answers before."""
        self._start_next()
        self.note_wait()

    def _start_next(self) -> None:
        if self.serving is not None or not self._waiting or self._connection.lingers:
            return
        output = self._connection.output
        if output.closing or output.unsent_bytes:
            return
        self.serving = self._waiting.popleft()
        # The function of asyncio would give the task a name, too.
        self._all.tasks[self.serving] = asyncio.get_running_loop().create_task(self.serving.run(self._app))

    def note_wait(self) -> None:
        """Notes for what the request in progress waits."""
        if self.serving is not None:
            self._all.set_waiting(self._connection, Wait.BODY if self.serving.more_body else None)

    def _pause_reading(self) -> None:
        if not self.paused:
            self.paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receives more input."""
        if self.paused:
            self.paused = False
            self._transport.resume_reading()

    def end_run(self, exchange: Exchange) -> None:
        """Takes note that a request runs no longer."""
        del self._all.tasks[exchange]

    def end_answer(self, *, keep_alive: bool) -> None:
        """Starts the next request, or waits for one."""
        self.serving = None
        if not keep_alive and self.part is Part.BODY:  # the rest of the body would reset the connection
            self._connection.linger()
        elif not keep_alive:
            self._discards = True
            self._connection.output.close()
        self._connection.hold()
        if self._connection.lingers or self._connection.output.closing:
            self._all.set_waiting(self._connection, Wait.CLOSE)
            return
        if self._waiting:
            self._all.set_waiting(self._connection, Wait.NEXT_REQUEST)  # until its iteration
            self.start_later()
            return
        self.resume_reading()
        if self._refusal is not None:
            self._answer(self._refusal)
        elif self.part is Part.BODY and self.expects_continue:
            self._connection.linger()  # the client may omit the body, or not
        else:
            self._wait()

    def _wait(self) -> None:
        """Waits for the client: for the next request, or for the rest of an answered one."""
        self._connection.clock.restart()
        if self.part is not Part.BODY:
            self._all.set_waiting(self._connection, Wait.NEXT_REQUEST)

    def refuse(self, refusal: HttpRefusalError) -> None:
        """Answers with a problem document after the answers to earlier requests, then closes."""
        self._discards = True
        self._all.metrics.count_closed(refusal.reason)
        self._refusal = refusal
        if self.part is Part.BODY and self._last is not None:  # of the last request that was parsed
            if self._waiting and self._waiting[-1] is self._last:
                self._waiting.pop()
            else:
                self._last.disconnect()
                self.serving = None
                if self._last.started:
                    self._connection.linger()
                    return
        if self.idle:
            self._answer(refusal)

    def _answer(self, refusal: HttpRefusalError) -> None:
        self._connection.output.write(raw_problem(refusal.status, str(refusal)))
        self._connection.linger()
