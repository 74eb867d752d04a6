"""Every failure of a request, with its reason (a metric label), gRPC status and HTTP status.

The message is for the client: it names the field, the value and what is expected, and has no stack trace.
"""

from typing import ClassVar

# No RFC has this status; nginx and others log it if the client disconnects.
CLIENT_CLOSED_REQUEST = 499


_KINDS = list[type["ServiceError"]]()


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

    def __init_subclass__(cls, reason: str = "", grpc: str = "", http: int = 0, retry_seconds: int = 0) -> None:
        """Sets the attributes of a kind of failure; a class without a reason of its own has those of its base."""
        if reason:
            cls.reason, cls.grpc_status, cls.http_status = reason, grpc, http
            cls.retry_after_seconds = retry_seconds or None
            _KINDS.append(cls)


class InvalidRequestError(ServiceError, reason="invalid", grpc="INVALID_ARGUMENT", http=400):
    """A field of the request is invalid."""

    field: str

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class ModelNotFoundError(ServiceError, reason="model_not_found", grpc="NOT_FOUND", http=404):
    """No model has the requested name."""

    field = "model"


class DocumentNotFoundError(ServiceError, reason="document_not_found", grpc="NOT_FOUND", http=404):
    """No stored document has the id: it is unknown, deleted or expired."""


class DocumentNotReadyError(ServiceError, reason="document_not_ready", grpc="FAILED_PRECONDITION", http=409):
    """The document has no result: it is not translated yet, or its translation failed."""


class DocumentStoreFullError(
    ServiceError, reason="document_store_full", grpc="RESOURCE_EXHAUSTED", http=429, retry_seconds=60
):
    """The store of documents has no room for the client."""


class GlossaryStoreFullError(ServiceError, reason="glossary_store_full", grpc="RESOURCE_EXHAUSTED", http=429):
    """The store of glossaries has no room for the client."""


class GlossaryNotFoundError(ServiceError, reason="glossary_not_found", grpc="NOT_FOUND", http=404):
    """No glossary has the requested id, or the glossary has no dictionary for the languages."""

    field = "glossary"

    def __init__(self, glossary_id: str, problem: str = "unknown") -> None:
        super().__init__(f"glossary {glossary_id[:64]!a}: {problem}")


class MemoryStoreFullError(ServiceError, reason="memory_store_full", grpc="RESOURCE_EXHAUSTED", http=429):
    """The store of memories and corrections has no room for the client."""


class MemoryNotFoundError(ServiceError, reason="memory_not_found", grpc="NOT_FOUND", http=404):
    """No memory has the requested name, or no correction the id."""

    field = "memory"


class UnauthorizedError(ServiceError, reason="unauthorized", grpc="UNAUTHENTICATED", http=401):
    """The API key or client certificate of the request is missing or wrong."""


class ForbiddenError(ServiceError, reason="forbidden", grpc="PERMISSION_DENIED", http=403):
    """The API key is valid, but may not do this."""


class QuotaExceededError(ServiceError, reason="quota_exceeded", grpc="RESOURCE_EXHAUSTED", http=429):
    """The API key has used its characters of the period."""


class RateLimitedError(ServiceError, reason="rate_limited", grpc="RESOURCE_EXHAUSTED", http=429, retry_seconds=1):
    """The API key has too many requests at once or per minute; a later retry may succeed."""

    retry_after_seconds: int

    def __init__(self, problem: str, retry_after_seconds: int = 1) -> None:
        super().__init__(problem)
        self.retry_after_seconds = retry_after_seconds


class RequestTooLargeError(ServiceError, reason="too_large", grpc="RESOURCE_EXHAUSTED", http=413):
    """The body of the request exceeds the limit."""

    field = "body"


class QueueFullError(ServiceError, reason="queue_full", grpc="RESOURCE_EXHAUSTED", http=429, retry_seconds=1):
    """Slots and queue have no room; a later retry may succeed."""


class QueueTimeoutError(ServiceError, reason="queue_timeout", grpc="RESOURCE_EXHAUSTED", http=429, retry_seconds=1):
    """The request did not start, or would not start, within the queue timeout."""


class DeadlineUnmeetableError(
    ServiceError, reason="deadline_unmeetable", grpc="RESOURCE_EXHAUSTED", http=429, retry_seconds=1
):
    """The estimated completion is after the deadline of the request; a less busy server may meet it."""


class DeadlineExceededError(ServiceError, reason="deadline_exceeded", grpc="DEADLINE_EXCEEDED", http=504):
    """The deadline passed before the translation was complete."""


class CancelledError(ServiceError, reason="cancelled", grpc="CANCELLED", http=CLIENT_CLOSED_REQUEST):
    """The client canceled the request or disconnected."""


class NotReadyError(ServiceError, reason="not_ready", grpc="UNAVAILABLE", http=503, retry_seconds=1):
    """The server warms up, or its model failed."""


class FetchingError(ServiceError, reason="fetching", grpc="UNAVAILABLE", http=503, retry_seconds=5):
    """The model of the request is being fetched; a later retry may succeed."""


class StorageFullError(NotReadyError, reason="storage_full", grpc="RESOURCE_EXHAUSTED", http=507, retry_seconds=60):
    """The disk or the database of the server has no space; the server stores nothing until it has."""

    def __init__(self, problem: str = "the storage of the server is full: retry later") -> None:
        super().__init__(problem)


class DrainingError(ServiceError, reason="draining", grpc="UNAVAILABLE", http=503, retry_seconds=1):
    """The server shuts down and admits no new requests."""


class InternalError(ServiceError, reason="internal", grpc="INTERNAL", http=500):
    """The server failed; the details are only in its log."""


ERRORS = tuple(_KINDS)
_BY_REASON = {error.reason: error for error in ERRORS}


def find_kind(reason: str) -> type[ServiceError]:
    """Returns the kind of failure with a reason; `InternalError` if no kind has it."""
    return _BY_REASON.get(reason, InternalError)
