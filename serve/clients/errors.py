"""What clients raise when there is no answer: one class for each thing that a caller may do about it.

Made of the status of a call and its details (google.rpc), whoever sent it: a proxy in between sends none. Used by every
client of `serve.clients`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc_status.rpc_status import from_call

Detail = TypeVar("Detail", bound=Message)


class NotTranslatedError(Exception):
    """A text was not translated; the message says why."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of the request, as in `text[3]` or `options.beam_size`, and what is wrong with it."""

    field: str
    description: str


class CallError(NotTranslatedError):
    """A call failed.

    Attributes:
        code: its status.
        message: what the server said, or gRPC on its behalf.
        reason: why, in a word of the server's, as in QUEUE_FULL; empty: it sent none.
        violations: the fields of the request that are to blame.
        retry_after_seconds: when another try may succeed; None: nobody said.
        request_id: what the log of the server knows the request by; empty: it sent none.
    """

    codes: ClassVar[frozenset[StatusCode]] = frozenset()

    def __init__(self, code: StatusCode, message: str, status: Status | None = None) -> None:
        """Reads the details of a status, if there is one."""
        super().__init__(f"{code.name}: {message}")
        details = Status() if status is None else status
        retry = _find(details, RetryInfo())
        self.code = code
        self.message = message
        self.reason = _find(details, ErrorInfo()).reason
        self.violations = tuple(
            FieldViolation(each.field, each.description) for each in _find(details, BadRequest()).field_violations
        )
        self.retry_after_seconds = (
            retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None
        )
        self.request_id = _find(details, RequestInfo()).request_id


class BadRequestError(CallError):
    """The request can never be served; `violations` tells what is wrong with it."""

    codes = frozenset({StatusCode.INVALID_ARGUMENT})


class NoSuchModelError(CallError):
    """No model has the name that the request gives."""

    codes = frozenset({StatusCode.NOT_FOUND})


class KeyRefusedError(CallError):
    """The server wants another key, or one at all."""

    codes = frozenset({StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED})


class OverloadedError(CallError):
    """The server has no room, after all tries; or the message is larger than it, or this client, takes."""

    codes = frozenset({StatusCode.RESOURCE_EXHAUSTED})


class TooLateError(CallError):
    """The time was over before there was an answer."""

    codes = frozenset({StatusCode.DEADLINE_EXCEEDED})


class UnavailableError(CallError):
    """There is no server, or it warms up or shuts down, after all tries."""

    codes = frozenset({StatusCode.UNAVAILABLE})


class ServerFailedError(CallError):
    """Anything else, which is the fault of the server or of what is between."""


_KINDS = (BadRequestError, NoSuchModelError, KeyRefusedError, OverloadedError, TooLateError, UnavailableError)
_CODES = {code.value[0]: code for code in StatusCode}


def call_error(error: Any) -> CallError:
    """Returns the typed error of a call that failed, of either kind of channel: what gRPC raises is the call, too."""
    code, message = error.code(), error.details() or ""
    try:
        status = from_call(error)
    except ValueError:  # details that belong to another status: somebody in between replaced one of them
        status = None
    return _kind(code)(code, message, status)


def status_error(status: Status) -> CallError:
    """Returns the typed error of one request of a stream."""
    code = _CODES.get(status.code, StatusCode.UNKNOWN)
    return _kind(code)(code, status.message, status)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raises the typed error in the place of gRPC's own."""
    try:
        yield
    except grpc.RpcError as error:
        raise call_error(error) from error


def too_late() -> TooLateError:
    """Returns the error of a call that was not made because its time was over."""
    return TooLateError(StatusCode.DEADLINE_EXCEEDED, "no time was left to ask")


def stream_error(error: Any) -> CallError:
    """Returns the typed error of a stream of requests that ended.

    Why its connection was lost, asyncio's gRPC forgets if a message was just being written: it reports an error of its
    own, which unlike the server's has no request id.
    """
    told = call_error(error)
    if told.code is StatusCode.INTERNAL and not told.request_id:
        return UnavailableError(StatusCode.UNAVAILABLE, "the stream broke")
    return told


def _kind(code: StatusCode) -> type[CallError]:
    return next((kind for kind in _KINDS if code in kind.codes), ServerFailedError)


def _find(status: Status, detail: Detail) -> Detail:
    """Returns the detail of a status that is of the same kind; the given one, which is empty, if there is none."""
    any(packed.Unpack(detail) for packed in status.details)
    return detail
