"""The routes of a compatible interface, and how they are described for OpenAPI."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from dragoman.serve.edge.interface import Routes
from dragoman.serve.edge.reader import TIMEOUT_PARAMETER
from dragoman.serve.edge.route_table import Route, RouteGroup
from dragoman.serve.edge.schemas import JSON, content_of, object_of


def describe_route(
    described: Mapping[str, Any],
    method: str,
    errors: Mapping[int | str, dict[str, Any]],
    media_types: Sequence[str] = (JSON,),
) -> dict[str, Any]:
    """Returns FastAPI's arguments for a route.

    Args:
        described: of its handler: the summary; the status, the response and its media type; `parameters` by name, which
            stand in the query of GET and DELETE and otherwise in the body, and the `required` ones; `query`, parameters
            that always stand there; or the schema of the `body`.
        errors: responses to failed requests.
        media_types: of a body.
    """
    properties, required = described.get("parameters", {}), described.get("required", [])
    query, body = described.get("query", {}), described.get("body")
    if method in ("GET", "DELETE"):
        query, body = {**query, **properties}, None
    elif properties:
        body = {**object_of(**properties), "required": required, "additionalProperties": False}
    extra: dict[str, Any] = {"parameters": [TIMEOUT_PARAMETER]}
    extra["parameters"] += [
        {"name": name, "in": "query", "required": name in required, "schema": schema} for name, schema in query.items()
    ]
    if body is not None:
        extra["requestBody"] = {"content": content_of(body, media_types)}
    status, media_type = described.get("status", int(HTTPStatus.OK)), described.get("media_type", JSON)
    content = {"content": content_of(described["response"], (media_type,))} if "response" in described else {}
    ok = {status: {"description": "Successful Response", **content}}
    return {
        "summary": described["summary"],
        "status_code": status,
        "responses": {**ok, **errors},
        "openapi_extra": extra,
    }


def group_routes(prefix: str, routes: Routes, describe: Callable[[Route], Mapping[str, Any]], tag: str) -> RouteGroup:
    """Returns the routes of an interface below a prefix; `describe` and `tag` as of `RouteGroup`."""
    prefixed = tuple(Route(method, f"{prefix}{path}", handler) for method, path, handler in routes)
    return RouteGroup(prefixed, describe, tag)
