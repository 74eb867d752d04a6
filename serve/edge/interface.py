"""What differs between the REST interfaces that share one port: paths, keys, error bodies and headers."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from dragoman.serve.edge.schemas import content_of
from dragoman.serve.errors import ServiceError
from dragoman.serve.observability.request_metrics import Method
from dragoman.tables import read_table

_STATUSES: dict[int, str] = read_table(__file__, "interface.yaml")


def error_documentation(
    schema: dict[str, Any], invalid: str, forbidden: str, more: Mapping[int, str]
) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI responses of errors.

    Args:
        schema: of the body of an error.
        more: descriptions of the statuses of one interface.
    """
    statuses: dict[int, str] = {HTTPStatus.BAD_REQUEST: invalid, HTTPStatus.FORBIDDEN: forbidden, **_STATUSES, **more}
    content = content_of(schema)
    return {int(status): {"description": text, "content": content} for status, text in statuses.items()}


def json_response(content: object, status: int = HTTPStatus.OK) -> Response:
    """Returns a response with JSON. `JSONResponse` would make an encoder for each one."""
    return Response(to_json(content), status, media_type="application/json")


# Method, path and handler of each route.
Routes = Iterator[tuple[str, str, Callable[..., Awaitable[object]]]]


class Interface(Protocol):
    """One REST interface; the base of each of them.

    Attributes:
        reads_keys: its handlers authenticate each request, because a key may be in the body.
        methods: labels in the metrics by path; other paths need no model.
    """

    reads_keys: bool = False
    methods: Mapping[str, Method] = {}

    def owns(self, path: str) -> bool:
        """Returns whether a path belongs to the interface, even if no route has it."""

    def find_method(self, path: str) -> Method | None:
        """Returns the label of a path in the metrics; None: it needs no model."""
        return self.methods.get(path)

    def is_open_to_pages(self, path: str) -> bool:  # noqa: ARG002 - by default, no path is
        """Returns whether pages of any origin may send requests to a path."""
        return False

    def headers(self, request_id: str) -> Mapping[str, str]:  # noqa: ARG002 - by default, there are none
        """Returns headers of every response."""
        return {}

    def write_error(self, error: ServiceError, request_id: str) -> Response:
        """Returns the response to a failed request."""

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:  # noqa: ARG002 - as above
        """Returns the response to an HTTP error, such as a wrong path, method or content type."""
        return JSONResponse({"error": error.detail}, error.status_code, dict(error.headers or {}))
