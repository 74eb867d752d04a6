"""Calls the handlers of REST routes.

A table leads to the handler of a path. Starlette finds those with parameters in their paths, and answers unknown paths
and methods.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import signature

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.serve.edge.reader import HttpRequest
from dragoman.serve.edge.route_table import Route
from dragoman.serve.http.compression import COMPRESSED_FROM_BYTES, Compressed, may_be_plain

# Key of the request state: the error of a route of Starlette.
_ERROR = "error"

Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """ASGI application: calls the handler of a request."""

    def __init__(
        self, routes: Sequence[Route], write_http_error: Callable[[Request, HTTPException], Awaitable[Response]]
    ) -> None:
        """Collects the handlers; `write_http_error`: returns the response to an HTTP error."""
        app = Starlette(
            routes=list(map(_path_route, routes)),
            middleware=[Middleware(_KeptErrors)],
            exception_handlers={HTTPException: write_http_error},  # type: ignore[dict-item]  # of any exception
        )
        app.router.redirect_slashes = False
        self._app = app
        self._others = Compressed(app)
        self._write_http_error = write_http_error
        self._handlers = {
            (route.method, route.path): _handler(route.handler) for route in routes if "{" not in route.path
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
    """ASGI middleware of Starlette, which would answer an error with a text of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - raised again
            scope.setdefault("state", {})[_ERROR] = error


def _path_route(route: Route) -> PathRoute:
    made = PathRoute(route.path, _handler(route.handler), methods=[route.method], include_in_schema=False)
    made.methods = {route.method}  # HEAD is served as GET
    return made


def _handler(endpoint: Callable[..., Awaitable[Response]]) -> Handler:
    """Returns the handler of a route, given a function of the request and of parameters in the path and the query."""
    parameters = signature(endpoint).parameters.values()
    if [parameter.annotation for parameter in parameters] == [Request]:
        return endpoint

    async def handle(request: Request) -> Response:
        given = {**request.query_params, **request.path_params}
        values = (
            request if parameter.annotation is Request else given.get(parameter.name, parameter.default)
            for parameter in parameters
        )
        return await endpoint(*values)

    return handle
