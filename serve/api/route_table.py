"""Registers the routes of an interface from a table."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fastapi import APIRouter


class Route(NamedTuple):
    """One route.

    Attributes:
        documentation: FastAPI's further arguments, which describe the route.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    documentation: dict[str, Any]


def route(method: str, path: str, handler: Callable[..., Any], summary: str, **documentation: Any) -> Route:
    """Returns a route with a summary."""
    return Route(method, path, handler, {"summary": summary, **documentation})


def add_routes(router: APIRouter, routes: Iterable[Route]) -> APIRouter:
    """Adds routes to a router, and returns it."""
    for each in routes:
        router.add_api_route(each.path, each.handler, methods=[each.method], **each.documentation)
    return router
