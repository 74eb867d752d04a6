"""Problem documents, the responses to failed REST requests (RFC 9457).

In addition to the standard members, a problem has a `reason` and a `request_id`.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from dragoman.serve.errors import CLIENT_CLOSED_REQUEST
from dragoman.serve.observability.logs import choose_request_id

REQUEST_ID_HEADER = "x-request-id"
MEDIA_TYPE = "application/problem+json"


def problem(
    status: int, detail: str, request_id: str, members: dict[str, object], headers: dict[str, str]
) -> JSONResponse:
    """Returns a problem document with further members and headers."""
    standard = {"type": "about:blank", "title": title_of(status), "status": int(status), "detail": detail}
    return JSONResponse({**standard, **members, "request_id": request_id}, status, headers, MEDIA_TYPE)


def http_problem(error: HTTPException, request_id: str) -> JSONResponse:
    """Returns the problem document of an HTTP error, such as a wrong path, method or content type."""
    members: dict[str, object] = {"reason": HTTPStatus(error.status_code).name.lower()}
    return problem(error.status_code, error.detail, request_id, members, dict(error.headers or {}))


def raw_problem(status: HTTPStatus, detail: str, headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Returns a complete HTTP/1.1 response with a problem document, for a connection that closes then."""
    request_id = choose_request_id(None)
    fields = {REQUEST_ID_HEADER: request_id, "connection": "close", **headers}
    answer = http_problem(HTTPException(status, detail, fields), request_id)
    lines = [b"HTTP/1.1 %d %b" % (status, status.phrase.encode()), *map(b": ".join, answer.raw_headers)]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


def title_of(status: int) -> str:
    """Returns the title of a problem: the phrase of its status."""
    return "Client Closed Request" if status == CLIENT_CLOSED_REQUEST else HTTPStatus(status).phrase
