"""gRPC's server for asyncio, whose calls arrive by method and never by the path that a client sends.

The server of `grpc.aio` decodes the path of each call in the loop that accepts calls, and the loop ends if the path is
not UTF-8. Here, gRPC's core compares the bytes of the path with the methods of the service. Calls of all other paths
are alike and get UNIMPLEMENTED.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

# The public server has no such hook. pyproject.toml names the versions that have these.
from grpc._cython.cygrpc import (  # type: ignore[import-not-found]
    AioServer,
    _handle_rpc,
    _handle_stream_stream_rpc,
    _handle_stream_unary_rpc,
    _MethodResolver,
    _RequestCallError,
    _schedule_rpc_coro,
)

from dragoman.serve.grpc.options import ChannelOptions

# The path of a call without a method.
UNKNOWN = ""
_NO_METHODS = _MethodResolver([], {})

# gRPC would log a traceback for each name or value of metadata that is not UTF-8. It reads them as Latin-1.
logging.getLogger("grpc._cython.cygrpc").addFilter(lambda record: record.msg != "Invalid encoding on %s")


class GrpcServer(AioServer):  # type: ignore[misc]  # has no types
    """Accepts the calls of methods, each method in a task of its own, until the server stops."""

    def __init__(self, handlers: Mapping[str, Any], options: ChannelOptions) -> None:
        """Builds the server without listening. Requires a running event loop.

        `handlers` are by path, and read streams of requests.
        """
        self._event_loop = asyncio.get_running_loop()
        super().__init__(self._event_loop, None, (), (), options, None)
        self.add_registered_method_handlers(dict(handlers))
        self._handlers = dict(handlers)
        # The event loop has only weak references to tasks.
        self._calls = set[asyncio.Task[None]]()
        self._accepting: asyncio.Task[None] | None = None

    @property
    def accepts(self) -> bool:
        """Whether the server accepts calls: it has started, and has neither been stopped nor failed."""
        return self._accepting is not None and not self._accepting.done()

    async def finish_calls(self, seconds: float) -> None:
        """Waits until the present calls have ended and their answers are sent, at most as many seconds."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=seconds)

    def _make_request_call_future(self, _: bytes | None) -> "asyncio.Task[None]":
        """Returns the task that accepts the calls of all methods, for which the loop of gRPC waits."""
        if self._accepting is None:
            self._accepting = asyncio.create_task(self._accept_all())
        return self._accepting

    async def _accept_all(self) -> None:
        # No task is canceled if another one fails: the core writes into what they wait for.
        await asyncio.gather(*map(self._accept, (UNKNOWN, *self._handlers)))
        raise _RequestCallError  # by which the loop of gRPC notices that the server stops

    async def _accept(self, path: str) -> None:
        method = path.encode()
        while self.is_running():
            try:
                state = await (self._request_call() if path == UNKNOWN else self._request_registered_call(method))
            except _RequestCallError:  # the server stops
                continue
            handling = _schedule_rpc_coro(self._handle(path, state), state, self._event_loop, path)
            call = self._event_loop.create_task(handling)
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def _handle(self, path: str, state: Any) -> Any:
        handler = self._handlers.get(path)
        if handler is None:  # gRPC answers with UNIMPLEMENTED
            return _handle_rpc(path, _NO_METHODS, (), state, self._event_loop, False)
        # gRPC would decode the metadata once more if it searched the handler by the path.
        handle = _handle_stream_stream_rpc if handler.response_streaming else _handle_stream_unary_rpc
        return handle(handler, state, self._event_loop)
