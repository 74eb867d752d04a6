"""One HTTP/1.1 connection from its acceptance to its end: its socket, the times of `HttpLimits`, and how it closes."""

import asyncio
import socket
import ssl
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp

from dragoman.serve.host.tcp_sockets import count_unread_bytes
from dragoman.serve.http.clock import Clock
from dragoman.serve.http.limits import Connections, Wait
from dragoman.serve.http.output import Output
from dragoman.serve.http.parser import HttpRefusalError, Part
from dragoman.serve.http.pipeline import Pipeline
from dragoman.serve.http.tls import ANY_TLS_WRITE, ANY_WRITE, TlsLayer
from dragoman.serve.observability.instruments import CloseReason

# Keys of the request state: whether the client presented a certificate of a trusted authority, the `Output`, and the
# transport.
CERTIFIED = "certified"
FLOW = "flow"
TRANSPORT = "transport"

# The connection discards at most this much input before it closes.
MAX_LINGER_BYTES = 8 << 20


class Connection(asyncio.BufferedProtocol):
    """A connection: a protocol of asyncio, bounded by `Connections`.

    Attributes:
        clock: has the time since when the connection waits for its client.
        lingers: whether the output has ended; further input is discarded.
    """

    output: Output
    clock: Clock

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._all = connections
        self._tls: TlsLayer | None = None
        self._connected = self.lingers = False
        self._lingered_bytes = 0

    def open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Starts to serve an accepted socket, after the TLS handshake if there is one."""
        self._accepted = accepted
        self._opening = self._loop.create_task(self._open(accepted, tls))
        self._opening.add_done_callback(lambda opening: self._end_opening(opening, accepted))

    async def _open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        if tls is None:
            await self._loop.connect_accepted_socket(lambda: self, accepted)
            return
        self._tls = layer = TlsLayer(self, tls, self._all.limits, self._all.handshakes)
        with suppress(OSError):  # includes errors of TLS and its timeout
            await self._loop.connect_accepted_socket(lambda: layer, accepted)
            await layer.handshake()

    def _end_opening(self, opening: asyncio.Task[None], accepted: socket.socket) -> None:
        if not self._connected:
            if not opening.cancelled():
                self._all.metrics.count_closed("handshake")
            self._all.remove(self)
            self._tls = None  # a reference cycle
            accepted.close()

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Prepares the state of the requests; after a handshake, the time of the header begins."""
        self._transport = transport
        self._connected = True
        self.output = Output(transport, self._tls)
        self.clock = Clock(self._all.limits)
        # The handshake has verified the certificate.
        certified = bool(transport.get_extra_info("peercert"))
        scope = {
            "scheme": "http" if self._tls is None else "https",
            "client": _address(transport.get_extra_info("peername")),
            "server": _address(transport.get_extra_info("sockname")),
            "state": {CERTIFIED: certified, FLOW: self.output, TRANSPORT: transport},
        }
        self._pipeline = Pipeline(self._app, self, self._all, transport, scope)
        # TLS may pause the connection at once.
        transport.set_write_buffer_limits(**(ANY_WRITE if self._tls is None else ANY_TLS_WRITE))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - defined by asyncio
        """Informs the application, also if further requests have arrived since."""
        self._all.remove(self)
        self.output.clear()
        self.output.reads.set()
        self._pipeline.release()
        self._tls = None  # a reference cycle

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - defined by asyncio
        """Returns where to write input."""
        return self._all.input_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Takes input from the buffer, which the next connection overwrites."""
        if self.lingers:
            self._lingered_bytes += nbytes
            if self._lingered_bytes > MAX_LINGER_BYTES:
                self._transport.abort()
        else:
            self._pipeline.receive(bytes(self._all.input_buffer[:nbytes]))

    def eof_received(self) -> bool:
        """Closes the connection once all data is sent; returns True if asyncio must leave it open until then."""
        if self._tls is not None:  # asyncio closes it in any case
            self.output.flush()
            return False
        self.output.close()
        return True

    def pause_writing(self) -> None:
        """Makes streams wait until the client has read."""
        if self._connected:
            self.output.reads.clear()
            self.hold()

    def resume_writing(self) -> None:
        """Goes on, or starts the request that waited until the client read earlier answers."""
        if not self._connected:
            return
        self.output.proceed()
        if not self.hold():
            self.output.reads.set()
            self._pipeline.start_later()

    # What `Connections` and the pipeline call

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

    def hold(self) -> int:
        """Reports the size of the answers and requests that wait; returns that of the answers."""
        unsent_bytes, held_bytes = self.output.measure()
        self._all.hold(self, held_bytes + self._pipeline.held_bytes)
        return unsent_bytes

    def linger(self) -> None:
        """Ends the output, then discards input until the client closes the connection or the time is over."""
        self.lingers = True
        self._all.set_waiting(self, Wait.CLOSE)
        self.clock.restart()
        self._pipeline.resume_reading()
        self.output.write_eof()

    def shutdown(self) -> None:
        """Closes the connection after the answer to its request, if it has one."""
        if not self._connected:
            self._opening.cancel()
        elif self._pipeline.serving is not None:
            self._pipeline.serving.keep_alive = False
        elif not self.lingers:
            self.linger()

    def sweep(self, now_seconds: float) -> None:
        """Closes the connection if its client is too late. A TLS handshake has its own timer.

        While the client does not read, the connection gives up its slot if others need it.
        """
        if not self._connected:
            return
        if self.clock.note_unsent(self.hold(), now_seconds):
            self._pipeline.note_wait()
        else:
            self._all.set_waiting(self, Wait.NEXT_REQUEST)
        if self.clock.stalls(now_seconds):
            self.abort("send_timeout")
        elif self.lingers:
            if self.clock.exceeds(self._all.limits.linger_seconds, now_seconds):
                self._transport.abort()
        elif self._pipeline.idle and not self.output.closing:
            self._close_if_late(now_seconds)

    def _close_if_late(self, now_seconds: float) -> None:
        part = self._pipeline.part
        reason, limit_seconds = self.clock.limit(part, first=self._pipeline.first)
        if not self.clock.exceeds(limit_seconds, now_seconds):
            return
        if part is Part.HEADER:
            problem = f"header: expected within {limit_seconds:g} s"
            self._pipeline.refuse(HttpRefusalError(HTTPStatus.REQUEST_TIMEOUT, problem, reason))
        else:
            self._all.metrics.count_closed(reason)
            self.linger()


def _address(address: Any) -> tuple[str, int] | None:
    """Returns host and port of a socket's address; None for a socket without them."""
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
