"""The problem documents of failed requests, their description, and the header with timings.

A problem has the `reason` of its error (the label in the metrics) and, if one field is invalid, the `field`.
"""

from dataclasses import fields
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from dragoman.serve.errors import CLIENT_CLOSED_REQUEST, ERRORS, ServiceError, UnauthorizedError
from dragoman.serve.http.problem import MEDIA_TYPE, problem, title_of
from dragoman.serve.observability.usage import Timings

RETRY_AFTER_HEADER = "retry-after"
TIMINGS_HEADER = "server-timing"
_TIMINGS_NAME = TIMINGS_HEADER.encode()
_OK = int(HTTPStatus.OK)
_TIMINGS = ", ".join(f"{field.name.removesuffix('_seconds')};dur=%.3f" for field in fields(Timings))


def timings_header(timings: Timings) -> dict[str, str]:
    """Returns the timings of a request as a Server-Timing header (W3C), in milliseconds."""
    return {TIMINGS_HEADER: _TIMINGS % timings.milliseconds}


class TimedResponse(Response):
    """JSON with the timings of its request. Has its header as it is sent; Starlette would make it from strings."""

    def __init__(self, content: bytes, timings: Timings) -> None:
        self.status_code, self.background, self.body = _OK, None, content
        self.raw_headers = [
            (b"content-length", b"%d" % len(content)),
            (b"content-type", b"application/json"),
            (_TIMINGS_NAME, (_TIMINGS % timings.milliseconds).encode()),
        ]


def service_problem(error: ServiceError, request_id: str) -> JSONResponse:
    """Returns the problem document of a failed request."""
    members: dict[str, object] = {"reason": error.reason}
    if error.field is not None:
        members["field"] = error.field
    return problem(error.http_status, str(error), request_id, members, error_headers(error))


def error_headers(error: ServiceError) -> dict[str, str]:
    """Returns the headers of the response to a failed request, for every body format; Retry-After in seconds."""
    seconds = error.retry_after_seconds
    headers = {} if seconds is None else {RETRY_AFTER_HEADER: str(seconds)}
    if isinstance(error, UnauthorizedError):
        headers["www-authenticate"] = "Bearer"
    return headers


def problem_documentation(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI responses of a failed request; without arguments, of a failed translation."""
    documentation: dict[int | str, dict[str, Any]] = {}
    for error in errors or ERRORS:
        if error.http_status != CLIENT_CLOSED_REQUEST:
            example = {
                "type": "about:blank",
                "title": title_of(error.http_status),
                "status": int(error.http_status),
                "detail": "what was wrong, and what was expected",
                "reason": error.reason,
                "request_id": "6a1f0c",
            }
            content = {MEDIA_TYPE: {"schema": {"type": "object"}, "example": example}}
            documentation[int(error.http_status)] = {"description": error.__doc__, "content": content}
    return documentation
