"""Bounds of a request's header, and the rules of RFC 9112 that httptools leaves to servers."""

from collections.abc import Sequence
from http import HTTPStatus

from serve.observability.metrics import CloseReason

MAX_TARGET_BYTES = 8 << 10
MAX_HEADER_FIELDS = 100
# Of all names and values, and of anything else between two parts of a body.
MAX_HEADER_BYTES = 32 << 10


class HttpRefusalError(Exception):
    """A request that is not passed on: the answer to it, after which the connection closes.

    Attributes:
        status: of the answer.
        reason: in the metrics.
    """

    def __init__(self, status: HTTPStatus, detail: str, reason: CloseReason = "invalid") -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason


def target_too_long() -> HttpRefusalError:
    """Returns the refusal of a request target."""
    return HttpRefusalError(HTTPStatus.REQUEST_URI_TOO_LONG, f"target: expected at most {MAX_TARGET_BYTES} bytes")


def header_too_large() -> HttpRefusalError:
    """Returns the refusal of a header."""
    problem = f"header: expected at most {MAX_HEADER_FIELDS} fields and {MAX_HEADER_BYTES} bytes"
    return HttpRefusalError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, problem)


def gap_too_large() -> HttpRefusalError:
    """Returns the refusal of what is neither a header nor a body: line breaks, chunk extensions, trailer fields."""
    problem = f"expected at most {MAX_HEADER_BYTES} bytes before, between and behind the parts of a body"
    return HttpRefusalError(HTTPStatus.BAD_REQUEST, problem)


def check_header(version: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Checks a complete header with names in lower case.

    Raises:
        HttpRefusalError: for another version than 1.0 and 1.1, a missing or ambiguous host, or another transfer coding
            than chunked.
    """
    if version not in ("1.0", "1.1"):
        raise HttpRefusalError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"HTTP version: {version}, expected 1.1")
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise HttpRefusalError(HTTPStatus.BAD_REQUEST, f"host: expected one header field, got {hosts}")
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version == "1.0"):
        raise HttpRefusalError(HTTPStatus.NOT_IMPLEMENTED, "transfer-encoding: expected chunked, over HTTP/1.1")
