"""Problem documents, the responses to failed REST requests (RFC 9457), and the header with timings.

In addition to the standard members, a problem has a `reason` (the label in the metrics), a `request_id` and, if one
field is invalid, the `field`.
"""

from collections.abc import Mapping
from dataclasses import fields
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from serve.api.retry_after import retry_after_headers
from serve.errors import (
    CLIENT_CLOSED_REQUEST,
    ERRORS,
    ServiceError,
    UnauthorizedError,
)
from serve.observability.logs import choose_request_id
from serve.observability.usage import Timings

REQUEST_ID_HEADER = "x-request-id"
TIMINGS_HEADER = "server-timing"
_TIMINGS_NAME = TIMINGS_HEADER.encode()
_TIMINGS = ", ".join(f"{each.name.removesuffix('_seconds')};dur=%.3f" for each in fields(Timings))


def timings_header(timings: Timings) -> dict[str, str]:
    """Returns the timings of a request as a Server-Timing header (W3C), in milliseconds."""
    return {TIMINGS_HEADER: _TIMINGS % timings.milliseconds}


class TimedResponse(Response):
    """JSON with the timings of its request. Has its header as it is sent; Starlette would make it from strings."""

    def __init__(self, content: bytes, timings: Timings) -> None:
        self.status_code, self.background, self.body = HTTPStatus.OK, None, content
        self.raw_headers = [
            (b"content-length", b"%d" % len(content)),
            (b"content-type", b"application/json"),
            (_TIMINGS_NAME, (_TIMINGS % timings.milliseconds).encode()),
        ]


MEDIA_TYPE = "application/problem+json"


def service_problem(error: ServiceError, request_id: str) -> JSONResponse:
    """Returns the problem document of a failed request."""
    members: dict[str, object] = {"reason": error.reason}
    if error.field is not None:
        members["field"] = error.field
    return _problem(error.http_status, str(error), request_id, members, error_headers(error))


def error_headers(error: ServiceError) -> dict[str, str]:
    """Returns the headers of the response to a failed request, for every body format."""
    headers = retry_after_headers(error)
    if isinstance(error, UnauthorizedError):
        headers["www-authenticate"] = "Bearer"
    return headers


def http_problem(error: HTTPException, request_id: str) -> JSONResponse:
    """Returns the problem document of an HTTP error, such as a wrong path, method or content type."""
    members: dict[str, object] = {"reason": HTTPStatus(error.status_code).name.lower()}
    return _problem(error.status_code, error.detail, request_id, members, dict(error.headers or {}))


def raw_problem(status: HTTPStatus, detail: str, headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Returns a complete HTTP/1.1 response with a problem document, for a connection that closes then."""
    request_id = choose_request_id(None)
    fields = {REQUEST_ID_HEADER: request_id, "connection": "close", **headers}
    answer = http_problem(HTTPException(status, detail, fields), request_id)
    lines = [b"HTTP/1.1 %d %b" % (status, status.phrase.encode()), *map(b": ".join, answer.raw_headers)]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


def problem_documentation(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI responses of a failed request; without arguments, of a failed translation."""
    documentation: dict[int | str, dict[str, Any]] = {}
    for error in errors or ERRORS:
        if error.http_status != CLIENT_CLOSED_REQUEST:
            example = {
                "type": "about:blank",
                "title": _title(error.http_status),
                "status": int(error.http_status),
                "detail": "what was wrong, and what was expected",
                "reason": error.reason,
                "request_id": "6a1f0c",
            }
            content = {MEDIA_TYPE: {"schema": {"type": "object"}, "example": example}}
            documentation[int(error.http_status)] = {"description": error.__doc__, "content": content}
    return documentation


def _problem(
    status: int, detail: str, request_id: str, members: dict[str, object], headers: dict[str, str]
) -> JSONResponse:
    standard = {"type": "about:blank", "title": _title(status), "status": int(status), "detail": detail}
    return JSONResponse({**standard, **members, "request_id": request_id}, status, headers, MEDIA_TYPE)


def _title(status: int) -> str:
    return "Client Closed Request" if status == CLIENT_CLOSED_REQUEST else HTTPStatus(status).phrase
