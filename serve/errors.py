"""Every way a request can fail, in one table: metric label, gRPC status and HTTP status side by side.

The message of an error is written for the client: it names the field, the value and what was expected, and never
holds a stack trace. `grpc_status` and `http_problem` turn these errors into answers; nothing else knows status codes.
"""

from http import HTTPStatus
from typing import ClassVar

from grpc import StatusCode

# Registered by no RFC, but what nginx and others log when the client went away.
CLIENT_CLOSED_REQUEST = 499


class ServiceError(Exception):
    """A request failed; `str(error)` is the message for the client.

    Attributes:
        reason: the metric label and machine-readable name of the failure.
        grpc_status: the status that a gRPC client sees.
        http_status: the status that a REST client sees.
        retry_after_seconds: when the same request may succeed; None: never, or nobody knows.
        field: what of the request is to blame, as the client writes it; None: nothing in it.
    """

    reason: ClassVar[str]
    grpc_status: ClassVar[StatusCode]
    http_status: ClassVar[int]
    retry_after_seconds: ClassVar[int | None] = None
    field: str | None = None


class InvalidRequestError(ServiceError):
    """A field of the request has a value that can never be served; `field` names it, as in `text[3]`."""

    field: str
    reason = "invalid"
    grpc_status = StatusCode.INVALID_ARGUMENT
    http_status = HTTPStatus.BAD_REQUEST

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class ModelNotFoundError(ServiceError):
    """No model has the name that the request gives."""

    field = "model"
    reason = "model_not_found"
    grpc_status = StatusCode.NOT_FOUND
    http_status = HTTPStatus.NOT_FOUND


class UnauthorizedError(ServiceError):
    """The request needs a key, or a certificate, and has none or a wrong one."""

    reason = "unauthorized"
    grpc_status = StatusCode.UNAUTHENTICATED
    http_status = HTTPStatus.UNAUTHORIZED


class RequestTooLargeError(ServiceError):
    """The body of the request is larger than the server reads."""

    field = "body"
    reason = "too_large"
    grpc_status = StatusCode.RESOURCE_EXHAUSTED
    http_status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class QueueFullError(ServiceError):
    """The server holds as many sequences as it may; another try later can succeed."""

    reason = "queue_full"
    grpc_status = StatusCode.RESOURCE_EXHAUSTED
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1


class QueueTimeoutError(ServiceError):
    """No slot became free, or none would, in the time that a request may wait in the queue."""

    reason = "queue_timeout"
    grpc_status = StatusCode.RESOURCE_EXHAUSTED
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1


class DeadlineUnmeetableError(ServiceError):
    """So much waits that the request would hardly be done before its deadline; a quieter server could serve it."""

    reason = "deadline_unmeetable"
    grpc_status = StatusCode.RESOURCE_EXHAUSTED
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1


class DeadlineExceededError(ServiceError):
    """The request's deadline passed before its translation was complete."""

    reason = "deadline_exceeded"
    grpc_status = StatusCode.DEADLINE_EXCEEDED
    http_status = HTTPStatus.GATEWAY_TIMEOUT


class CancelledError(ServiceError):
    """The client went away."""

    reason = "cancelled"
    grpc_status = StatusCode.CANCELLED
    http_status = CLIENT_CLOSED_REQUEST


class NotReadyError(ServiceError):
    """The server is still warming up, or its model failed."""

    reason = "not_ready"
    grpc_status = StatusCode.UNAVAILABLE
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 1


class DrainingError(ServiceError):
    """The server is shutting down and takes no new requests."""

    reason = "draining"
    grpc_status = StatusCode.UNAVAILABLE
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 1


class InternalError(ServiceError):
    """The fault is the server's; details are in its log and never reach the client."""

    reason = "internal"
    grpc_status = StatusCode.INTERNAL
    http_status = HTTPStatus.INTERNAL_SERVER_ERROR


ERRORS: tuple[type[ServiceError], ...] = (
    InvalidRequestError,
    ModelNotFoundError,
    UnauthorizedError,
    RequestTooLargeError,
    QueueFullError,
    QueueTimeoutError,
    DeadlineUnmeetableError,
    DeadlineExceededError,
    CancelledError,
    NotReadyError,
    DrainingError,
    InternalError,
)
