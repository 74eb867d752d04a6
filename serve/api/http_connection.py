"""One HTTP/1.1 connection: the times of `HttpLimits`, the order of answers, and the end of the connection.

Requests on a connection are answered in order. The next one starts when the system has taken the answers before, which
it does only while the client reads. So a client that does not read gets no further work done.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from http import HTTPStatus

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from serve.api.http_limits import Connections
from serve.api.http_parser import BoundedParser, HttpRefusalError, Part
from serve.api.http_problem import raw_problem
from serve.api.http_tls import ANY_WRITE, HandshakeTurns, TlsLayer
from serve.observability.connections import CloseReason

# Keys of the request state: whether the client presented a certificate of a trusted authority, a `FlowControl`, and the
# transport. `FlowControl.write_paused` is true while an answer waits for the client.
CERTIFIED = "certified"
FLOW = "flow"
TRANSPORT = "transport"

# Input that is discarded before a connection closes.
MAX_LINGER_BYTES = 1 << 20
# A request that waits for the answer to an earlier one takes so much, besides its body.
REQUEST_BYTES = 8 << 10
# A client that reads less than this in one sweep does not read.
LEAST_READ_BYTES = 1 << 10


class Connection(BoundedParser, asyncio.BufferedProtocol):
    """A connection from its acceptance to its end."""

    def __init__(self, config: Config, server_state: ServerState, connections: Connections) -> None:
        super().__init__(config, server_state)
        self._unsent_bytes = 0
        self._all = connections
        self._limits = connections.limits
        self._since_seconds = self._sent_seconds = self.loop.time()
        self._lingered_bytes = 0
        self._serving: RequestResponseCycle | None = None
        self._refusal: HttpRefusalError | None = None
        self._tls: TlsLayer | None = None
        self._connected = self._proven = False
        self._discards = self._lingers = False

    def open(self, accepted: socket.socket, tls: ssl.SSLContext | None, turns: HandshakeTurns) -> None:
        """Starts to serve an accepted socket, after the TLS handshake if there is one."""
        self._opening = self.loop.create_task(self._open(accepted, tls, turns))
        self._opening.add_done_callback(lambda opening: self._end_opening(opening, accepted))

    async def _open(self, accepted: socket.socket, tls: ssl.SSLContext | None, turns: HandshakeTurns) -> None:
        if tls is None:
            await self.loop.connect_accepted_socket(lambda: self, accepted)
            return
        self._tls = layer = TlsLayer(self, tls, self._limits, turns)
        with suppress(OSError):  # includes errors of TLS and its timeout
            await self.loop.connect_accepted_socket(lambda: layer, accepted)
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
        super().connection_made(transport)
        self._connected = True
        # Not uvicorn's flow control, so that a complete answer never waits inside the application for its client.
        self._sending = FlowControl(transport)
        transport.set_write_buffer_limits(**ANY_WRITE)
        self._since_seconds = self.loop.time()
        # The handshake has verified the certificate.
        certified = bool(transport.get_extra_info("peercert"))
        self.app_state = {CERTIFIED: certified, FLOW: self._sending, TRANSPORT: transport}

    def connection_lost(self, exc: Exception | None) -> None:
        """Informs the application, also if further requests have arrived since."""
        self._all.remove(self)
        self._sending.resume_writing()
        if self._serving is not None:
            self._abandon(self._serving)
        super().connection_lost(exc)
        self._release()

    def _release(self) -> None:
        """Breaks reference cycles, so that memory need not wait for the garbage collector."""
        self.pipeline.clear()
        self.cycle = self._serving = self._refusal = self._tls = None  # type: ignore[assignment]  # of uvicorn

    def abort(self, reason: CloseReason) -> None:
        """Closes the connection at once; drops what is not sent."""
        self._all.metrics.count_closed(reason)
        if self._connected:
            self.transport.abort()
        else:
            self._opening.cancel()

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
            if self.pipeline or self.part is Part.HEADER:
                self._hold()
        elif self._lingers:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > MAX_LINGER_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Begins a request; the time of the first header begins with the connection."""
        super().on_message_begin()
        if self._proven:
            self._since_seconds = self.loop.time()

    def on_headers_complete(self) -> None:
        """Starts the request, or queues it behind an earlier one."""
        super().on_headers_complete()
        self._proven = True

    def on_message_complete(self) -> None:
        """Ends the request; its answer may be complete by then."""
        super().on_message_complete()
        if self._serving is None and not self.pipeline:
            self._wait()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.pipeline.appendleft((cycle, app))
        self._start_next()
        if self.pipeline:
            self.flow.pause_reading()

    def _start_next(self) -> None:
        """Starts the next request if the client has read the answers before."""
        if self._serving is not None or not self.pipeline or self._lingers or self._unsent():
            return
        cycle, app = self.pipeline.pop()
        self._serving = cycle
        self._all.set_busy(self)
        super()._start_asgi_task(cycle, app)

    def _unsent(self) -> int:
        return self.transport.get_write_buffer_size() + (0 if self._tls is None else self._tls.unsent_bytes)

    def _hold(self) -> int:
        """Reports the size of the answers and requests that wait; returns that of the answers."""
        unsent_bytes = self._unsent()
        header_bytes = self.header_bytes if self.part is Part.HEADER else 0
        requests_bytes = sum(REQUEST_BYTES + len(cycle.body) for cycle, _ in self.pipeline)
        self._all.hold(self, unsent_bytes + header_bytes + requests_bytes)
        return unsent_bytes

    def pause_writing(self) -> None:
        """Makes streams wait until the client has read."""
        if self._connected:
            self._sending.pause_writing()
            self._hold()

    def resume_writing(self) -> None:
        """Goes on, or starts the request that waited until the client read earlier answers."""
        if self._connected and not self._hold():
            self._sending.resume_writing()
            self._start_next()

    def on_response_complete(self) -> None:
        """Starts the next request, or waits for one."""
        self._serving = None
        self.server_state.total_requests += 1
        self._hold()
        if self.transport.is_closing():
            self._all.set_idle(self)
            return
        if self.pipeline:
            self._all.set_idle(self)  # unless the next request starts now
            self._start_next()
            return
        self.flow.resume_reading()
        if self._refusal is not None:
            self._answer(self._refusal)
        elif self.part is Part.BODY and self.expect_100_continue:
            self._linger()  # the client may omit the body, or not
        else:
            self._wait()

    def _wait(self) -> None:
        """Waits for the client: for the next request, or for the rest of an answered one."""
        self._since_seconds = self.loop.time()
        if self.part is not Part.BODY:
            self._all.set_idle(self)

    def _refuse(self, refusal: HttpRefusalError) -> None:
        """Answers with a problem document after the answers to earlier requests, then closes."""
        self._discards = True
        self._all.metrics.count_closed(refusal.reason)
        self._refusal = refusal
        if self.part is Part.BODY:  # of the last request that was parsed
            if self.pipeline and self.pipeline[0][0] is self.cycle:
                self.pipeline.popleft()
            else:
                self._abandon(self.cycle)
                self._serving = None
                if self.cycle.response_started:
                    self._linger()
                    return
        if self._serving is None and not self.pipeline:
            self._answer(refusal)

    def _answer(self, refusal: HttpRefusalError) -> None:
        self.transport.write(raw_problem(refusal.status, str(refusal)))
        self._linger()

    def _abandon(self, cycle: RequestResponseCycle) -> None:
        """Makes a running request end as if its client had disconnected."""
        cycle.disconnected = True
        cycle.message_event.set()

    def _linger(self) -> None:
        """Ends the output, then discards input until the client closes the connection or the time is over."""
        self._discards = self._lingers = True
        self._all.set_idle(self)
        self._since_seconds = self.loop.time()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

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
                self.transport.abort()
        elif self._serving is None and not self.pipeline and not self.transport.is_closing():
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
            if self._serving is not None:
                self._all.set_busy(self)
        else:
            self._all.set_idle(self)
        self._unsent_bytes = unsent_bytes
        return now_seconds - self._sent_seconds > self._limits.send_seconds
