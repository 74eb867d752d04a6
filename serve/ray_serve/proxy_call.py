"""A gRPC call that came by way of Ray Serve's proxy, as the handlers of `serve.api.grpc_api` know calls.

The proxy sends metadata along and takes status, details and trailers back. It does not tell when the client stops
waiting: it cancels the call then. Made by `serve.ray_serve.replica`.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from typing import Any, NoReturn, Protocol

from google.protobuf.message import Message
from grpc import StatusCode

Metadata = Iterable[tuple[str, str | bytes]]


class ProxyContext(Protocol):
    """What is used of `ray.serve.grpc_util.RayServegRPCContext`."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]: ...  # noqa: D102 - as gRPC's own
    def set_code(self, code: StatusCode) -> None: ...  # noqa: D102
    def set_details(self, details: str) -> None: ...  # noqa: D102
    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None: ...  # noqa: D102


class CallEndedError(Exception):
    """The call has ended with another status than OK, which the proxy has been told."""


class ProxyCall:
    """As much of `grpc.aio.ServicerContext` as the handlers use."""

    def __init__(self, context: ProxyContext) -> None:
        """Begins a call.

        Args:
            context: what the proxy sent along.
        """
        self._context = context
        self._written: asyncio.Queue[Message | None] = asyncio.Queue()

    def header(self, key: str) -> str:
        """Returns a value of the call's metadata; empty: there is none."""
        return str(dict(self.invocation_metadata()).get(key, ""))

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Returns the metadata of the call."""
        return self._context.invocation_metadata()

    def time_remaining(self) -> None:
        """Returns None, as for a client without a deadline: the proxy does not tell it."""

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Tells what goes after the answer."""
        self._context.set_trailing_metadata(list(metadata))

    async def abort(self, code: StatusCode, details: str, metadata: Metadata) -> NoReturn:
        """Ends the call.

        Raises:
            CallEndedError: always.
        """
        self._context.set_code(code)
        self._context.set_details(details)
        self.set_trailing_metadata(metadata)
        raise CallEndedError(details)

    async def write(self, message: Message) -> None:
        """Sends a message of a stream."""
        self._written.put_nowait(message)

    async def stream(self, handling: Coroutine[Any, Any, None]) -> AsyncGenerator[Message]:
        """Yields what a handler writes, while it runs.

        Raises:
            CallEndedError: if it ended the call with another status than OK.
        """
        task = asyncio.create_task(handling)
        task.add_done_callback(lambda _: self._written.put_nowait(None))
        try:
            while (message := await self._written.get()) is not None:
                yield message
            await task
        finally:
            task.cancel()
