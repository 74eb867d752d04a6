"""One HTTP/1.1 connection: the times of `HttpLimits`, the order of answers, and the end of the connection.

Requests on a connection are answered in order. The next one starts when the system has taken the answers before, which
it does only while the client reads. So a client that does not read gets no further work done. In each turn of the event
loop, one request starts of all those that waited behind another one on their connection.
"""

import asyncio
import socket
import ssl
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp

from serve.host.tcp_sockets import count_unread_bytes
from serve.http.exchange import Exchange, make_scope
from serve.http.limits import Connections, Wait
from serve.http.output import Output
from serve.http.parser import MAX_PIPELINED, BoundedParser, HttpRefusalError, Part
from serve.http.problem import raw_problem
from serve.http.tls import ANY_TLS_WRITE, ANY_WRITE, TlsLayer
from serve.observability.connections import CloseReason

# Keys of the request state: whether the client presented a certificate of a trusted authority, a `Sending`, and the
# transport.
CERTIFIED = "certified"
FLOW = "flow"
TRANSPORT = "transport"

# Input that is discarded before a connection closes.
MAX_LINGER_BYTES = 8 << 20
# A request that waits for the answer to an earlier one takes so much, besides its body.
REQUEST_BYTES = 8 << 10
# A client that reads less than this in one sweep does not read.
LEAST_READ_BYTES = 1 << 10


class Sending:
    """Whether the client reads."""

    def __init__(self) -> None:
        self._reads = asyncio.Event()
        self._reads.set()

    @property
    def write_paused(self) -> bool:
        """Whether an answer waits for the client."""
        return not self._reads.is_set()

    def pause_writing(self) -> None:
        """Makes `drain` wait."""
        self._reads.clear()

    def resume_writing(self) -> None:
        """Ends the waits."""
        self._reads.set()

    async def drain(self) -> None:
        """Waits until the client has read, or is gone."""
        await self._reads.wait()


class Connection(BoundedParser, asyncio.BufferedProtocol):
    """A connection from its acceptance to its end."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        super().__init__()
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._unsent_bytes = 0
        self._all = connections
        self._limits = connections.limits
        self._since_seconds = self._sent_seconds = self._loop.time()
        self._lingered_bytes = 0
        self._waiting = deque[Exchange]()
        self._last: Exchange | None = None
        self._serving: Exchange | None = None
        self._paused = False
        self._refusal: HttpRefusalError | None = None
        self._tls: TlsLayer | None = None
        self._connected = self._proven = False
        self._discards = self._lingers = False

    def open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Starts to serve an accepted socket, after the TLS handshake if there is one."""
        self._accepted = accepted
        self._opening = self._loop.create_task(self._open(accepted, tls))
        self._opening.add_done_callback(lambda opening: self._end_opening(opening, accepted))

    async def _open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        if tls is None:
            await self._loop.connect_accepted_socket(lambda: self, accepted)
            return
        self._tls = layer = TlsLayer(self, tls, self._limits, self._all.handshakes)
        with suppress(OSError):  # includes errors of TLS and its timeout
            await self._loop.connect_accepted_socket(lambda: layer, accepted)
            await layer.handshake()

    def _end_opening(self, opening: asyncio.Task[None], accepted: socket.socket) -> None:
        if not self._connected:
            if not opening.cancelled():
                self._all.metrics.count_closed("handshake")
            self._all.remove(self)
            self._release()
            accepted.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Prepares the state of the requests; after a handshake, the time of the header begins."""
        self._transport = transport
        self._connected = True
        self._sending = Sending()
        self._output = Output(transport, self._tls)
        transport.set_write_buffer_limits(**(ANY_WRITE if self._tls is None else ANY_TLS_WRITE))
        self._since_seconds = self._loop.time()
        # The handshake has verified the certificate.
        certified = bool(transport.get_extra_info("peercert"))
        self._scope = {
            "scheme": "http" if self._tls is None else "https",
            "client": _address(transport.get_extra_info("peername")),
            "server": _address(transport.get_extra_info("sockname")),
            "state": {CERTIFIED: certified, FLOW: self._sending, TRANSPORT: transport},
        }

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - defined by asyncio
        """Informs the application, also if further requests have arrived since."""
        self._all.remove(self)
        self._output.clear()
        self._sending.resume_writing()
        if self._serving is not None:
            self._serving.disconnect()
        self._release()

    def _release(self) -> None:
        """Breaks reference cycles, so that memory need not wait for the garbage collector."""
        self._waiting.clear()
        self._last = self._serving = self._refusal = self._tls = None
        self.stop_parsing()

    def abort(self, reason: CloseReason) -> None:
        """Closes the connection at once; drops what is not sent."""
        self._all.metrics.count_closed(reason)
        if self._connected:
            self._transport.abort()
        else:
            self._opening.cancel()

    def has_unread_input(self) -> bool:
        """Returns whether input has arrived that the server has not read."""
        return count_unread_bytes(self._accepted) > 0

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - defined by asyncio
        """Returns where to write input."""
        return self._all.input_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Takes input from the buffer, which the next connection overwrites."""
        self.data_received(bytes(self._all.input_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Parses input, or discards it if the connection is about to close."""
        if not self._discards:
            refusal = self.feed(data)
            if refusal is not None:
                self._refuse(refusal)
            if self._waiting or self.part is Part.HEADER:
                self._hold()
        elif self._lingers:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > MAX_LINGER_BYTES:
                self._transport.abort()

    def begin_header(self) -> None:
        """The time of the first header begins with the connection, that of others with their first byte."""
        if self._proven:
            self._since_seconds = self._loop.time()

    def begin_request(self, method: bytes, version: str, *, keep_alive: bool) -> None:
        """Starts a request, or queues it behind an earlier one."""
        if len(self._waiting) >= MAX_PIPELINED:
            problem = f"expected at most {MAX_PIPELINED} requests without an answer"
            raise HttpRefusalError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "pipelined")
        scope = make_scope(method, self.target, version, self.headers, self._scope)
        self._last = Exchange(self, scope, keep_alive=keep_alive, expects_continue=self.expects_continue)
        self._waiting.append(self._last)
        self._start_next()
        if self._waiting:
            self._pause_reading()
        self._proven = True

    def add_body(self, data: bytes) -> None:
        """Takes a part of the body of the last request."""
        if self._last is not None and self._last.add_body(data):
            self._pause_reading()

    def end_request(self) -> None:
        """Ends the last request; its answer may be complete by then."""
        if self._last is not None:
            self._last.end_body()
            self._set_waiting()
        if self._serving is None and not self._waiting:
            self._wait()

    def _start_next(self) -> None:
        """Starts the next request if the client has read the answers before."""
        if self._serving is not None or not self._waiting or self._lingers or self._output.closing:
            return
        if self._output.unsent_bytes:
            return
        self._serving = self._waiting.popleft()
        self._set_waiting()
        self._all.run(self._serving.run(self._app))

    def _set_waiting(self) -> None:
        """Notes for what the request in progress waits."""
        if self._serving is not None:
            self._all.set_waiting(self, Wait.BODY if self._serving.more_body else None)

    def _pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receives more input."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Sends a part of an answer."""
        self._output.write(data)

    def close(self) -> None:
        """Closes the connection once all data is sent."""
        self._output.close()

    @property
    def closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._output.closing

    def eof_received(self) -> bool:
        """Closes the connection once all data is sent; returns True if asyncio must leave it open until then."""
        if self._tls is not None:  # asyncio closes it in any case
            self._output.flush()
            return False
        self._output.close()
        return True

    def _hold(self) -> int:
        """Reports the size of the answers and requests that wait; returns that of the answers."""
        unsent_bytes = self._output.unsent_bytes
        header_bytes = self.header_bytes if self.part is Part.HEADER else 0
        requests_bytes = sum([REQUEST_BYTES + len(exchange.body) for exchange in self._waiting])
        self._all.hold(self, self._output.held_bytes + header_bytes + requests_bytes)
        return unsent_bytes

    def pause_writing(self) -> None:
        """Makes streams wait until the client has read."""
        if self._connected:
            self._sending.pause_writing()
            self._hold()

    def resume_writing(self) -> None:
        """Goes on, or starts the request that waited until the client read earlier answers."""
        if not self._connected:
            return
        self._output.proceed()
        if not self._hold():
            self._sending.resume_writing()
            if self._waiting:
                self._all.pipelined.add(self._start_next)

    def end_answer(self, *, keep_alive: bool) -> None:
        """Starts the next request, or waits for one."""
        self._serving = None
        if not keep_alive:
            self._close_after_answer()
        self._hold()
        if self._lingers or self._output.closing:
            self._all.set_waiting(self, Wait.CLOSE)
            return
        if self._waiting:
            self._all.set_waiting(self, Wait.NEXT_REQUEST)  # until its turn
            self._all.pipelined.add(self._start_next)
            return
        self.resume_reading()
        if self._refusal is not None:
            self._answer(self._refusal)
        elif self.part is Part.BODY and self.expects_continue:
            self._linger()  # the client may omit the body, or not
        else:
            self._wait()

    def _close_after_answer(self) -> None:
        if self.part is Part.BODY:  # the rest of the body would reset the connection
            self._linger()
        else:
            self._discards = True
            self._output.close()

    def _wait(self) -> None:
        """Waits for the client: for the next request, or for the rest of an answered one."""
        self._since_seconds = self._loop.time()
        if self.part is not Part.BODY:
            self._all.set_waiting(self, Wait.NEXT_REQUEST)

    def _refuse(self, refusal: HttpRefusalError) -> None:
        """Answers with a problem document after the answers to earlier requests, then closes."""
        self._discards = True
        self._all.metrics.count_closed(refusal.reason)
        self._refusal = refusal
        if self.part is Part.BODY and self._last is not None:  # of the last request that was parsed
            if self._waiting and self._waiting[-1] is self._last:
                self._waiting.pop()
            else:
                self._last.disconnect()
                self._serving = None
                if self._last.started:
                    self._linger()
                    return
        if self._serving is None and not self._waiting:
            self._answer(refusal)

    def _answer(self, refusal: HttpRefusalError) -> None:
        self._output.write(raw_problem(refusal.status, str(refusal)))
        self._linger()

    def _linger(self) -> None:
        """Ends the output, then discards input until the client closes the connection or the time is over."""
        self._discards = self._lingers = True
        self._all.set_waiting(self, Wait.CLOSE)
        self._since_seconds = self._loop.time()
        self.resume_reading()
        self._output.write_eof()

    def shutdown(self) -> None:
        """Closes the connection after the answer to its request, if it has one."""
        if not self._connected:
            self._opening.cancel()
        elif self._serving is not None:
            self._serving.keep_alive = False
        elif not self._lingers:
            self._linger()

    def sweep(self, now_seconds: float) -> None:
        """Closes the connection if its client is too late. A TLS handshake has its own timer."""
        if not self._connected:
            return
        if self._stalls(now_seconds):
            self.abort("send_timeout")
            return
        if self._unsent_bytes:
            self._since_seconds = now_seconds
        waited_seconds = now_seconds - self._since_seconds
        if self._lingers:
            if waited_seconds > self._limits.linger_seconds:
                self._transport.abort()
        elif self._serving is None and not self._waiting and not self._output.closing:
            reason, limit_seconds = self._patience()
            if waited_seconds > limit_seconds:
                self._close_late(reason, limit_seconds)

    def _patience(self) -> tuple[CloseReason, float]:
        """Returns how long the client may take, and the reason to close the connection afterwards."""
        if self.part is Part.HEADER or not self._proven:
            return "header_timeout", self._limits.header_seconds
        if self.part is Part.BODY:  # of a request that is answered
            return "body_timeout", self._limits.body_seconds
        return "idle_timeout", self._limits.idle_seconds

    def _close_late(self, reason: CloseReason, limit_seconds: float) -> None:
        if self.part is Part.HEADER:
            problem = f"header: expected within {limit_seconds:g} s"
            self._refuse(HttpRefusalError(HTTPStatus.REQUEST_TIMEOUT, problem, reason))
        else:
            self._all.metrics.count_closed(reason)
            self._linger()

    def _stalls(self, now_seconds: float) -> bool:
        """Notes what the client has read since the last sweep; returns whether it reads nothing for too long.

        While the client does not read, the connection gives up its place if others need it.
        """
        unsent_bytes = self._hold()
        if unsent_bytes == 0 or self._unsent_bytes == 0 or unsent_bytes <= self._unsent_bytes - LEAST_READ_BYTES:
            self._sent_seconds = now_seconds
            self._set_waiting()
        else:
            self._all.set_waiting(self, Wait.NEXT_REQUEST)
        self._unsent_bytes = unsent_bytes
        return now_seconds - self._sent_seconds > self._limits.send_seconds


def _address(address: Any) -> tuple[str, int] | None:
    """Returns host and port of a socket's address; None for a socket without them."""
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
