"""The HTTP server: connections of ASGI applications, behind a listener that bounds them.

The listener accepts connections itself, because asyncio retries a failed `accept` without a pause, and counts neither
connections nor TLS handshakes. At the limit, a new connection gets 503 and is closed.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp

from dragoman.serve.host.system import return_memory, run_in_daemon_thread
from dragoman.serve.host.tcp_sockets import begin_no_connection
from dragoman.serve.http.connection import Connection
from dragoman.serve.http.limits import Connections, HttpLimits
from dragoman.serve.http.problem import raw_problem
from dragoman.serve.observability.instruments import ConnectionMetrics

# Connections that the system completes before they are accepted.
BACKLOG = 512
# The system takes no more of an answer while so much waits for the client. Its default, megabytes, would make clients
# that do not read seem to read.
SYSTEM_UNSENT_BYTES = 16 << 10
# Connections accepted before other work of the event loop runs. If several processes accept, one at a time
# leaves the next to a process that is idle.
ACCEPTED_PER_ITERATION = 16
SHARED_ACCEPTED_PER_ITERATION = 1
# Pause after a failed `accept`, for example because no file descriptor is free.
ACCEPT_PAUSE_SECONDS = 1.0
# At a shutdown: time in which requests in transit are still answered, then maximum time for connections to close.
CLOSE_STEP_SECONDS = 0.1
CLOSE_SECONDS = 5

log = structlog.get_logger("dragoman")


class ListenError(Exception):
    """A port cannot be bound; the message names it."""


def open_port(host: str, port: int) -> socket.socket:
    """Returns a listening socket; port 0 selects a free port. The host `::` includes IPv4, as over gRPC.

    Raises ListenError if the port is in use or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    except OSError as error:
        problem, _, _ = str(error.strerror).partition(" (")  # the rest repeats the address
        raise ListenError(f"{host}:{port}: {problem}") from error
    # Accepted connections inherit it; asyncio sets it only on sockets that it creates. Without it, the second packet of
    # a response waits 40 ms for the delayed acknowledgment of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, SYSTEM_UNSENT_BYTES)
    return listener


def reserve_shared_port(host: str, port: int) -> socket.socket:
    """Returns a socket that keeps a port for processes that each listen on it with `SO_REUSEPORT`.

    It does not listen, so that the system gives it no connections. Port 0 selects a free port.

    Raises ListenError as `open_port`, also if another service shares the port among its processes.
    """
    with open_port(host, port) as alone:
        port = alone.getsockname()[1]
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        reserved.bind((host, port))
    except OSError as error:
        reserved.close()
        raise ListenError(f"{host}:{port}: {error.strerror}") from error
    return reserved


class Listener:
    """Accepts the connections of a listening socket."""

    def __init__(
        self, listening: socket.socket, serve: Callable[[socket.socket, str], None], *, shared: bool = False
    ) -> None:
        """Begins to accept.

        Args:
            listening: a socket; the listener closes it.
            serve: gets each connection and the address of its client.
            shared: whether other processes accept from the same socket.
        """
        self._socket = listening
        self._shared = shared
        self._accepted_per_iteration = SHARED_ACCEPTED_PER_ITERATION if shared else ACCEPTED_PER_ITERATION
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    @property
    def listening(self) -> bool:
        """Whether the socket listens."""
        with contextlib.suppress(OSError):
            return bool(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        return False  # it is closed

    def close(self) -> None:
        """Accepts the connections that the system has completed, which it would reset otherwise, then stops."""
        if self._socket.fileno() < 0:
            return
        if not self._shared:
            begin_no_connection(self._socket)
        while self._accept_one():
            pass
        self.leave()

    def leave(self) -> None:
        """Stops for good; other processes accept the connections that the system has completed."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(self._accepted_per_iteration):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Accepts a connection; returns whether there may be another one."""
        try:
            accepted, address = self._socket.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            return True
        except OSError as error:
            log.warning("accept_failed", error=str(error))
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume)
            return False
        accepted.setblocking(False)
        self._serve(accepted, address[0])
        return True


class HttpServer:
    """Serves an application over HTTP/1.1, with or without TLS; `listener`: accepts its connections."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ConnectionMetrics,
        limits: HttpLimits,
        tls: ssl.SSLContext | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """Builds the server; `shared`: other processes accept from the same sockets."""
        self._app = app
        self._shared = shared
        self._tls = tls
        self._connections = Connections(limits, metrics)

    def listen(self, listening: socket.socket) -> None:
        """Begins to accept connections of a listening socket. Requires a running event loop."""
        self.listener = Listener(listening, self._serve_connection, shared=self._shared)
        self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._connections.limits.sweep_seconds)
            try:
                self._connections.sweep()
                if self._connections.end_peak():
                    await run_in_daemon_thread(return_memory)
            except Exception:  # without the sweep, no connection would ever be late
                log.exception("sweep_failed")

    async def shut_down(self) -> None:
        """Answers requests in transit, then closes all connections."""
        self.listener.close()
        await asyncio.sleep(CLOSE_STEP_SECONDS)
        self._connections.shut_down()
        self._sweeping.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._connections.busy:
                    await asyncio.sleep(CLOSE_STEP_SECONDS)
                    self._connections.sweep()
        self._connections.abort()

    def _serve_connection(self, accepted: socket.socket, address: str) -> None:
        reason = self._connections.make_room(address)
        if reason is None:
            connection = Connection(self._app, self._connections)
            self._connections.add(connection, address)
            connection.open(accepted, self._tls)
            return
        self._connections.metrics.count_closed(reason)
        with accepted:
            if self._tls is None:
                refuse(accepted)


def refuse(accepted: socket.socket) -> None:
    """Answers that there are too many connections, if the client still listens."""
    problem = raw_problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; retry later", {"retry-after": "1"})
    with contextlib.suppress(OSError):
        accepted.send(problem)
