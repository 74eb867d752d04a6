"""Every failure of a request, with its reason (a metric label), gRPC status and HTTP status.

The message is for the client: it names the field, the value and what is expected, and has no stack trace.
"""

from http import HTTPStatus
from typing import ClassVar

# No RFC has this status; nginx and others log it if the client disconnects.
CLIENT_CLOSED_REQUEST = 499


class ServiceError(Exception):
    """A failed request; `str(error)` is the message for the client.

    Attributes:
        reason: machine-readable name of the failure, also a metric label.
        grpc_status: name of the status. gRPC itself is not imported, since its library takes 8 MB.
        retry_after_seconds: time after which a retry may succeed; None if it never does, or the time is unknown.
        field: the invalid field of the request, as in `text[3]`; None if no field is invalid.
    """

    reason: ClassVar[str]
    grpc_status: ClassVar[str]
    http_status: ClassVar[int]
    retry_after_seconds: int | None = None
    field: str | None = None


class InvalidRequestError(ServiceError):
    """A field of the request is invalid."""

    field: str
    reason = "invalid"
    grpc_status = "INVALID_ARGUMENT"
    http_status = HTTPStatus.BAD_REQUEST

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class ModelNotFoundError(ServiceError):
    """No model has the requested name."""

    field = "model"
    reason = "model_not_found"
    grpc_status = "NOT_FOUND"
    http_status = HTTPStatus.NOT_FOUND


class DocumentNotFoundError(ServiceError):
    """No stored document has the id: it is unknown, deleted or expired."""

    reason = "document_not_found"
    grpc_status = "NOT_FOUND"
    http_status = HTTPStatus.NOT_FOUND


class DocumentNotReadyError(ServiceError):
    """The document has no result: it is not translated yet, or its translation failed."""

    reason = "document_not_ready"
    grpc_status = "FAILED_PRECONDITION"
    http_status = HTTPStatus.CONFLICT


class DocumentStoreFullError(ServiceError):
    """The store of documents has no room for the client."""

    reason = "document_store_full"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 60


class GlossaryStoreFullError(ServiceError):
    """The store of glossaries has no room for the client."""

    reason = "glossary_store_full"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS


class GlossaryNotFoundError(ServiceError):
    """No glossary has the requested id, or the glossary has no dictionary for the languages."""

    field = "glossary"
    reason = "glossary_not_found"
    grpc_status = "NOT_FOUND"
    http_status = HTTPStatus.NOT_FOUND

    def __init__(self, glossary_id: str, problem: str = "unknown") -> None:
        super().__init__(f"glossary {glossary_id[:64]!a}: {problem}")


class UnauthorizedError(ServiceError):
    """The API key or client certificate of the request is missing or wrong."""

    reason = "unauthorized"
    grpc_status = "UNAUTHENTICATED"
    http_status = HTTPStatus.UNAUTHORIZED


class ForbiddenError(ServiceError):
    """The API key is valid, but may not do this."""

    reason = "forbidden"
    grpc_status = "PERMISSION_DENIED"
    http_status = HTTPStatus.FORBIDDEN


class QuotaExceededError(ServiceError):
    """The API key has used its characters of the period."""

    reason = "quota_exceeded"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS


class RateLimitedError(ServiceError):
    """The API key has too many requests at once or per minute; a later retry may succeed."""

    reason = "rate_limited"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds: int = 1

    def __init__(self, problem: str, retry_after_seconds: int = 1) -> None:
        super().__init__(problem)
        self.retry_after_seconds = retry_after_seconds


class RequestTooLargeError(ServiceError):
    """The body of the request exceeds the limit."""

    field = "body"
    reason = "too_large"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class QueueFullError(ServiceError):
    """Slots and queue have no room; a later retry may succeed."""

    reason = "queue_full"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1


class QueueTimeoutError(ServiceError):
    """The request did not start, or would not start, within the queue timeout."""

    reason = "queue_timeout"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1


class DeadlineUnmeetableError(ServiceError):
    """The estimated completion is after the deadline of the request; a less busy server may meet it."""

    reason = "deadline_unmeetable"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.TOO_MANY_REQUESTS
    retry_after_seconds = 1


class DeadlineExceededError(ServiceError):
    """The deadline passed before the translation was complete."""

    reason = "deadline_exceeded"
    grpc_status = "DEADLINE_EXCEEDED"
    http_status = HTTPStatus.GATEWAY_TIMEOUT


class CancelledError(ServiceError):
    """The client canceled the request or disconnected."""

    reason = "cancelled"
    grpc_status = "CANCELLED"
    http_status = CLIENT_CLOSED_REQUEST


class NotReadyError(ServiceError):
    """The server warms up, or its model failed."""

    reason = "not_ready"
    grpc_status = "UNAVAILABLE"
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 1


class StorageFullError(NotReadyError):
    """The disk or the database of the server has no space; the server stores nothing until it has."""

    reason = "storage_full"
    grpc_status = "RESOURCE_EXHAUSTED"
    http_status = HTTPStatus.INSUFFICIENT_STORAGE
    retry_after_seconds = 60

    def __init__(self, problem: str = "the storage of the server is full: retry later") -> None:
        super().__init__(problem)


class DrainingError(ServiceError):
    """The server shuts down and admits no new requests."""

    reason = "draining"
    grpc_status = "UNAVAILABLE"
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    retry_after_seconds = 1


class InternalError(ServiceError):
    """The server failed; the details are only in its log."""

    reason = "internal"
    grpc_status = "INTERNAL"
    http_status = HTTPStatus.INTERNAL_SERVER_ERROR


ERRORS: tuple[type[ServiceError], ...] = (
    InvalidRequestError,
    ModelNotFoundError,
    DocumentNotFoundError,
    DocumentNotReadyError,
    DocumentStoreFullError,
    GlossaryStoreFullError,
    GlossaryNotFoundError,
    UnauthorizedError,
    ForbiddenError,
    QuotaExceededError,
    RateLimitedError,
    RequestTooLargeError,
    QueueFullError,
    QueueTimeoutError,
    DeadlineUnmeetableError,
    DeadlineExceededError,
    CancelledError,
    NotReadyError,
    StorageFullError,
    DrainingError,
    InternalError,
)
