"""Errors as gRPC tells them: a status, and its details in the messages that all services use (google.rpc).

`grpc-status-details-bin` carries an ErrorInfo with the reason of the table in `serve.errors`, the field that is to
blame, how long to wait before another try, and the request's id. Called by the handlers of the gRPC interface only.
"""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import to_status

from serve.errors import InvalidRequestError, ServiceError

REQUEST_ID_KEY = "x-request-id"
# What gRPC's own client obeys when it retries (gRFC A6).
RETRY_AFTER_KEY = "grpc-retry-pushback-ms"
# Who gives the reasons: they mean nothing beside those of other services.
DOMAIN = "dragoman.v1"

Metadata = tuple[tuple[str, str | bytes], ...]


def rich_status(error: ServiceError, request_id: str | None) -> Status:
    """Returns code, message and details of an error; without an id they fit every call."""
    status = Status(code=error.grpc_status.value[0], message=str(error))
    for detail in _details(error, request_id):
        status.details.add().Pack(detail)
    return status


def trailers(request_id: str, error: ServiceError | None = None) -> Metadata:
    """Returns the trailing metadata of a call, which ends with this error or well."""
    metadata: Metadata = ((REQUEST_ID_KEY, request_id),)
    return metadata if error is None else metadata + error_trailers(error, request_id)


def error_trailers(error: ServiceError, request_id: str | None = None) -> Metadata:
    """Returns what the trailing metadata tell of an error; without an id it fits every call."""
    metadata: Metadata = ()
    if error.retry_after_seconds is not None:
        metadata = ((RETRY_AFTER_KEY, str(error.retry_after_seconds * 1000)),)
    return metadata + tuple(to_status(rich_status(error, request_id)).trailing_metadata)


def _details(error: ServiceError, request_id: str | None) -> list[Message]:
    facts = {} if error.field is None else {"field": error.field}
    # Upper case, as ErrorInfo wants it.
    details: list[Message] = [ErrorInfo(reason=error.reason.upper(), domain=DOMAIN, metadata=facts)]
    if isinstance(error, InvalidRequestError):
        violation = BadRequest.FieldViolation(field=error.field, description=error.problem)
        details.append(BadRequest(field_violations=[violation]))
    if error.retry_after_seconds is not None:
        details.append(RetryInfo(retry_delay=Duration(seconds=error.retry_after_seconds)))
    if request_id is not None:
        details.append(RequestInfo(request_id=request_id))
    return details
