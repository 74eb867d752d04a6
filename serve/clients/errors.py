"""Client errors: one class per remedy.

An error is read from the gRPC status and its details (google.rpc). A proxy may send a status without details.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc_status.rpc_status import from_call

from dragoman.serve.errors import find_kind
from dragoman.serve.local.errors import TranslationError
from dragoman.serve.translation.response import TargetError

Detail = TypeVar("Detail", bound=Message)


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """An invalid field of the request, such as `text[3]` or `options.beam_size`, and its problem."""

    field: str
    description: str


class CallError(TranslationError):
    """A call failed.

    Attributes:
        message: text from the server or from gRPC.
        reason: the server's machine-readable reason, such as QUEUE_FULL; empty: none sent.
        violations: the invalid fields of the request.
        retry_after_seconds: the server's retry delay; None: none sent.
        request_id: id of the request in the server's log; empty: none sent.
    """

    def __init__(self, code: StatusCode, message: str, status: Status | None = None) -> None:
        super().__init__(f"{code.name}: {message}")
        details = Status() if status is None else status
        retry = _find(details, RetryInfo())
        self.code = code
        self.message = message
        self.reason = _find(details, ErrorInfo()).reason
        self.violations = tuple(
            FieldViolation(violation.field, violation.description)
            for violation in _find(details, BadRequest()).field_violations
        )
        self.retry_after_seconds = (
            retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None
        )
        self.request_id = _find(details, RequestInfo()).request_id


class BadRequestError(CallError):
    """The request is invalid; `violations` lists the invalid fields."""


class NoSuchModelError(CallError):
    """The requested model or glossary does not exist."""

    may_be_of_one_text = False


class KeyRefusedError(CallError):
    """The server rejects the API key or requires one, or the key may not use the model."""

    may_be_of_one_text = False


class OverloadedError(CallError):
    """All retries found the server overloaded, the API key has used its quota, or a message exceeds a size limit."""


class TooLateError(CallError):
    """The deadline passed before the response arrived."""

    may_be_of_one_text = False


class UnavailableError(CallError):
    """All retries found the server unreachable, starting or shutting down."""

    may_be_of_one_text = False


class ServerFailedError(CallError):
    """Any other error, caused by the server or a proxy."""


KINDS: dict[StatusCode, type[CallError]] = {
    StatusCode.INVALID_ARGUMENT: BadRequestError,
    StatusCode.NOT_FOUND: NoSuchModelError,
    StatusCode.UNAUTHENTICATED: KeyRefusedError,
    StatusCode.PERMISSION_DENIED: KeyRefusedError,
    StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    StatusCode.DEADLINE_EXCEEDED: TooLateError,
    StatusCode.UNAVAILABLE: UnavailableError,
}
# Advice by a part of gRPC's message.
_WRONG_ADDRESS = {
    "Failed parsing HTTP/2": "no gRPC port, it may be the server's REST port; expected its gRPC port (default: 8001)",
    "WRONG_VERSION_NUMBER": "the port has no TLS: omit --tls and the TLS files, or check the port",
    "errors resolving http": "expected HOST:PORT without http://, the address of the gRPC port",
    "Failed to parse port": "expected HOST:PORT with a number as port",
}
_CODES = {code.value[0]: code for code in StatusCode}


def _typed(code: StatusCode, message: str, status: Status | None) -> CallError:
    return KINDS.get(code, ServerFailedError)(code, message, status)


def call_error(error: Any) -> CallError:
    """Returns the typed error for an exception of either kind of channel; gRPC's exceptions are calls, too."""
    try:
        status = from_call(error)
    except ValueError:  # the details contradict the status: a proxy has replaced one of them
        status = None
    return _typed(error.code(), _explained(error.details() or ""), status)


def _explained(details: str) -> str:
    """Returns what a client does about a wrong address before the words of gRPC."""
    advice = next((advice for sign, advice in _WRONG_ADDRESS.items() if sign in details), None)
    details = " ".join(details.split())
    return details if advice is None else f"{advice} ({details})"


def status_error(status: Status) -> CallError:
    """Returns the typed error of one request of a stream."""
    return _typed(_CODES.get(status.code, StatusCode.UNKNOWN), status.message, status)


def target_error(status: Status) -> TargetError:
    """Returns the error of one target of a request."""
    error, field = status_error(status), _find(status, ErrorInfo()).metadata.get("field")
    reason, seconds = error.reason.lower(), error.retry_after_seconds
    retry = None if seconds is None else int(seconds)
    return TargetError(find_kind(reason).http_status, error.message, reason, field, retry)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Converts gRPC errors to typed errors."""
    try:
        yield
    except grpc.RpcError as error:
        raise call_error(error) from error


def stream_error(error: Any) -> CallError:
    """Returns the typed error of a broken request stream.

    If the connection is lost during a write, asyncio's gRPC raises its own INTERNAL error without the cause. Unlike an
    error of the server, it has no request id.
    """
    typed = call_error(error)
    if typed.code is StatusCode.INTERNAL and not typed.request_id:
        return UnavailableError(StatusCode.UNAVAILABLE, "the connection was lost")
    return typed


def _find(status: Status, detail: Detail) -> Detail:
    """Fills `detail` from the status detail of the same type and returns it; empty if there is none."""
    any(packed.Unpack(detail) for packed in status.details)
    return detail
