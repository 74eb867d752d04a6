"""The REST server: the routes of all interfaces behind one guard.

Errors travel as exceptions to `RequestRecorder`, which records every request, authenticates it, sheds load, and writes
errors in the format of the called interface.
"""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from dragoman.serve.edge.interface import Interface
from dragoman.serve.edge.problems import RETRY_AFTER_HEADER, TIMINGS_HEADER
from dragoman.serve.edge.reader import TIMEOUT_HEADER
from dragoman.serve.edge.route_table import RouteGroup
from dragoman.serve.http.problem import REQUEST_ID_HEADER
from dragoman.serve.rest.recorder import Guard, RequestRecorder, answer_http_exception
from dragoman.serve.rest.routes import Routes

# Headers that browsers may send and read, in addition to those named elsewhere.
CORS_REQUEST_HEADERS = ("authorization", "content-type", "traceparent")
CORS_ANSWER_HEADERS = (RETRY_AFTER_HEADER,)


def build_app(
    groups: Sequence[RouteGroup],
    interfaces: Sequence[Interface],
    guard: Guard,
    open_paths: frozenset[str],
    cors_origins: Sequence[str],
) -> ASGIApp:
    """Returns the application.

    Args:
        interfaces: the first one that owns a path answers its errors; the last one owns all paths.
        open_paths: neither recorded nor guarded.
        cors_origins: pages of these origins may send requests from a browser.
    """
    routes = [route for group in groups for route in group.routes]
    app = RequestRecorder(Routes(routes, answer_http_exception), guard, open_paths, interfaces)
    if not cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=cors_origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=(*CORS_REQUEST_HEADERS, REQUEST_ID_HEADER, TIMEOUT_HEADER),
        expose_headers=(*CORS_ANSWER_HEADERS, REQUEST_ID_HEADER, TIMINGS_HEADER),
    )
