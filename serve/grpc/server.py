"""gRPC's server for asyncio, on the operations of its core.

Calls arrive by method and never by the path that a client sends: the core compares the bytes of the path with the
methods of the service. Calls of all other paths are alike and get UNIMPLEMENTED.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import grpc.aio
import structlog

# The public server for asyncio takes a system call and a switch of threads for each operation. pyproject.toml names
# the versions that have these.
from grpc._cython.cygrpc import (  # type: ignore[import-not-found]
    ReceiveCloseOnServerOperation,
    SendInitialMetadataOperation,
    SendStatusFromServerOperation,
    Server,
)

from dragoman.serve.grpc.events import Events
from dragoman.serve.grpc.options import ChannelOptions
from dragoman.serve.grpc.server_call import ServerCall

# The path of a call without a method.
UNKNOWN = ""

_log = structlog.get_logger("dragoman")

# gRPC would log a traceback for each name or value of metadata that is not UTF-8. It reads them as Latin-1.
logging.getLogger("grpc._cython.cygrpc").addFilter(lambda record: record.msg != "Invalid encoding on %s")


class GrpcServer:
    """Accepts the calls of methods, each call in a task of its own, until the server stops.

    Attributes:
        accepts: whether the server accepts calls: it has started, and has neither been stopped nor failed.
    """

    def __init__(self, handlers: Mapping[str, Any], options: ChannelOptions) -> None:
        """Builds the server without listening. Requires a running event loop.

        `handlers` are by path, and read streams of requests.
        """
        self._handlers = dict(handlers)
        self._events = Events()
        self._server = Server(options, False)
        self._server.register_completion_queue(self._events.queue)
        for path in self._handlers:
            self._server.register_method(path)
        self.accepts = self._started = self._stops = False
        self._calls = set[ServerCall]()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.get_running_loop().create_future()

    def add_port(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listens at an address, over TLS with credentials; returns the port, or 0 if it cannot be bound."""
        given = () if credentials is None else (credentials._credentials,)  # type: ignore[attr-defined]  # noqa: SLF001 - private
        try:
            return int(self._server.add_http2_port(address.encode(), *given))
        except RuntimeError:
            return 0

    def start(self) -> None:
        """Accepts calls from now on."""
        self._server.start()
        self.accepts = self._started = True
        for path in (UNKNOWN, *self._handlers):
            self._expect_call(path)

    async def finish_calls(self, seconds: float) -> None:
        """Waits until the present calls have ended and their answers are sent, at most as many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    async def shutdown(self, grace_seconds: float | None) -> None:
        """Accepts no more calls, and cancels those that have not ended after a time; None: at once."""
        if not self._stops:
            self._stops, self.accepts = True, False
            if self._started:
                self._server.shutdown(self._events.queue, self._stop)
                self._events.expect()
            else:
                self._stop()
        if grace_seconds is not None:
            await asyncio.wait((self._stopped,), timeout=grace_seconds)
        if not self._stopped.done():
            self._server.cancel_all_calls()
        await asyncio.shield(self._stopped)

    def _stop(self, _: object = None) -> None:
        if self._started:
            self._server.destroy()
        self._events.close()
        self._stopped.set_result(None)

    def _expect_call(self, path: str) -> None:
        try:
            self._request_call(path)
        except Exception:  # noqa: BLE001 - the service ends, as it no longer accepts calls
            self.accepts = False
            _log.exception("grpc_failed")

    def _request_call(self, path: str) -> None:
        """Asks the core for the next call of a method."""
        queue, accept = self._events.queue, partial(self._accept, path)
        if path == UNKNOWN:
            failed = self._server.request_call(queue, queue, accept)
        else:
            failed = self._server.request_registered_call(queue, queue, path, accept)
        if failed:
            raise grpc.aio.InternalError(f"error {failed} of a request for calls")
        self._events.expect()

    def _accept(self, path: str, event: Any) -> None:
        if not event.success or self._events.closed:  # the server stops
            return
        try:
            if path == UNKNOWN:
                refuse(event.call)
            else:
                self._calls.add(ServerCall(event, self._handlers[path], self._events, self._end))
                self._idle.clear()
        finally:
            if self.accepts:
                self._expect_call(path)

    def _end(self, call: ServerCall) -> None:
        self._calls.discard(call)
        if not self._calls:
            self._idle.set()


def refuse(call: Any) -> None:
    """Answers a call of an unknown method with UNIMPLEMENTED."""
    code, details = grpc.StatusCode.UNIMPLEMENTED.value[0], "Method not found!"
    status = SendStatusFromServerOperation((), code, details, 0)
    operations = (SendInitialMetadataOperation(None, 0), ReceiveCloseOnServerOperation(0), status)
    call.start_server_batch(operations, lambda _: None)
