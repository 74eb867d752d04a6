"""Writes the OpenAPI document. Imports FastAPI, which nothing else needs: it takes 5 MB."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI

from dragoman.serve.edge.route_table import TAGS, RouteGroup


def write_openapi(groups: Iterable[RouteGroup]) -> dict[str, Any]:
    """Returns the document of all routes."""
    groups = tuple(groups)
    tags = {group.tag for group in groups}
    # FastAPI's telemetry would duplicate `dragoman.serve.observability.traces`.
    app = FastAPI(
        title="Dragoman",
        description="Translates text with one or more models.",
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items() if name in tags],
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for group in groups:
        router = APIRouter(tags=[group.tag])
        for route in group.routes:
            router.add_api_route(route.path, route.handler, methods=[route.method], **group.describe(route))
        app.include_router(router)
    return app.openapi()
