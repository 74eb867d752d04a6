"""Calls the handlers of REST routes.

FastAPI describes all routes. It serves only those with parameters in their paths, and its own pages: for the others a
table leads to the handler, which reads its request itself.
"""

from collections.abc import Awaitable, Callable, Iterable
from inspect import signature

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.api.http_headers import HttpRequest
from serve.compression import COMPRESSED_FROM_BYTES, Compressed, may_be_plain

# Key of the request state: the error of a route of FastAPI.
_ERROR = "error"

Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """ASGI application: calls the handler of a request, or passes the request on to FastAPI."""

    def __init__(
        self,
        app: FastAPI,
        routers: Iterable[APIRouter],
        write_http_error: Callable[[Request, HTTPException], Awaitable[Response]],
    ) -> None:
        """Collects the handlers.

        Args:
            app: serves the other routes.
            routers: of the application.
            write_http_error: returns the response to an HTTP error of a handler.
        """
        app.add_middleware(_KeptErrors)
        self._app = app
        self._others = Compressed(app)
        self._write_http_error = write_http_error
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._handlers = {
            (method, route.path): _handler(route.endpoint)
            for route in routes
            for method in route.methods or ()
            if not route.param_convertors and _is_plain(route.endpoint)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # The connection sends no body (RFC 9110, section 9.3.2).
            scope = {**scope, "method": "GET"}
        handle = self._handlers.get((scope["method"], scope["path"]))
        if handle is None:
            await self._others(scope, receive, send)
            if error := scope.setdefault("state", {}).pop(_ERROR, None):
                raise error
            return
        request = HttpRequest(scope, receive)
        try:
            response = await handle(request)
        except HTTPException as error:
            response = await self._write_http_error(request, error)
        small = len(response.body) < COMPRESSED_FROM_BYTES if hasattr(response, "body") else False
        plain = small and may_be_plain(request.headers)
        await (response if plain else Compressed(response))(scope, receive, send)


class _KeptErrors:
    """ASGI middleware of FastAPI, which would answer an error with a text of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - raised again
            scope.setdefault("state", {})[_ERROR] = error


def _is_plain(endpoint: Callable[..., Awaitable[Response]]) -> bool:
    """Returns whether an endpoint needs nothing but its request and makes its response itself."""
    called = signature(endpoint)
    parameters = [each.annotation for each in called.parameters.values()]
    return called.return_annotation is Response and parameters in ([], [Request])


def _handler(endpoint: Callable[..., Awaitable[Response]]) -> Handler:
    """Returns the handler of a route; some take no request."""
    if signature(endpoint).parameters:
        return endpoint

    async def handle(_: Request) -> Response:
        return await endpoint()

    return handle
