"""The REST interface as Ray Serve needs it: it ends with the replica, and leaves the id of a request to the proxy.

Knows nothing of translation. Made by `serve.ray_serve.replica`.
"""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.http_headers import REQUEST_ID_HEADER


class ReplicaApp:
    """An ASGI application around that of the REST interface."""

    def __init__(self, app: ASGIApp, close: Callable[[], Awaitable[None]]) -> None:
        """Keeps what it needs.

        Args:
            app: answers requests.
            close: ends the replica; Ray Serve waits for it when no request is left, and then ends the process.
        """
        self._app = app
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or the life of the replica."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, _without_request_id(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # that it starts
        await send({"type": "lifespan.startup.complete"})
        await receive()  # that it ends
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})


def _without_request_id(send: Send) -> Send:
    """Returns what sends all but the id in the headers of an answer, since the proxy adds the same one."""
    header = REQUEST_ID_HEADER.encode()

    async def send_the_rest(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message["headers"] if name.lower() != header]
            message = {**message, "headers": headers}
        await send(message)

    return send_the_rest
