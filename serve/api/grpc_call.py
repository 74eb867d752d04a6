"""One gRPC call: its id, its deadline, its record, and the status that it ends with.

What all handlers of the gRPC interface have in common; knows neither messages nor what is done with them.

Errors as gRPC tells them: a status, and its details in the messages that all services use (google.rpc).

`grpc-status-details-bin` carries an ErrorInfo with the reason of the table in `serve.errors`, the field that is to
blame, how long to wait before another try, and the request's id. Called by the handlers of the gRPC interface only.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import to_status

from serve.api.sse import send_in_time
from serve.errors import CancelledError, DeadlineExceededError, InvalidRequestError, ServiceError
from serve.observability.logs import RequestRecord, choose_request_id, record_request
from serve.observability.metrics import Method, ServiceMetrics

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


# Clients send their deadline rounded up by as much as this share, and hang up at the true one.
DEADLINE_ROUNDING = 0.02

Context = grpc.aio.ServicerContext[Any, Any]
AnyRequest = TypeVar("AnyRequest")
AnyResponse = TypeVar("AnyResponse")


def call_headers(context: Context) -> dict[str, str]:
    """Returns the metadata of a call, as far as it is text."""
    metadata = context.invocation_metadata() or ()
    return {key: value for key, value in metadata if isinstance(value, str)}


def recorded(
    metrics: ServiceMetrics, method: Method, request_id: str, headers: Mapping[str, str]
) -> AbstractContextManager[RequestRecord]:
    """Records what happens inside as one request; its answer leaves before that is written down."""
    call_soon = asyncio.get_running_loop().call_soon
    return record_request(metrics, "grpc", method, request_id, headers, afterwards=call_soon)


@asynccontextmanager
async def recorded_call(metrics: ServiceMetrics, method: Method, context: Context) -> AsyncIterator[RequestRecord]:
    """Records what happens inside as one request, and ends the call with the status of an error."""
    headers = call_headers(context)
    request_id = choose_request_id(headers.get(REQUEST_ID_KEY))
    try:
        with recorded(metrics, method, request_id, headers) as record:
            yield record
    except ServiceError as error:
        await abort(context, error, trailers(request_id, error))
    context.set_trailing_metadata(trailers(request_id))


async def abort(context: Context, error: ServiceError, metadata: Metadata) -> None:
    """Ends a call with the status of an error.

    Raises:
        grpc.aio.AbortError: always, but
        asyncio.CancelledError: if the client has gone meanwhile.
    """
    try:
        await context.abort(error.grpc_status, str(error), metadata)
    except grpc.aio.InternalError as gone:
        raise asyncio.CancelledError from gone


async def answer(
    message: AnyRequest | InvalidRequestError,
    serve: Callable[[AnyRequest, float | None, RequestRecord], Awaitable[AnyResponse]],
    context: Context,
    record: RequestRecord,
) -> AnyResponse:
    """Returns what `serve` makes of a message, its deadline on the monotonic clock and its record.

    Raises:
        ServiceError: why there is no answer.
    """
    if isinstance(message, InvalidRequestError):
        raise message
    with deadline_scope(context, record) as deadline_seconds:
        return await serve(message, deadline_seconds, record)


@contextmanager
def deadline_scope(context: Context, record: RequestRecord) -> Iterator[float | None]:
    """Records a cancelled call as too late where that is the reason; gives its deadline on the monotonic clock.

    gRPC cancels a call both when its client hangs up and when its deadline passes.
    """
    timeout_seconds = _time_remaining(context)
    try:
        yield None if timeout_seconds is None else time.monotonic() + timeout_seconds
    except asyncio.CancelledError:
        remaining_seconds = _time_remaining(context)
        if timeout_seconds is not None and remaining_seconds is not None:
            passed = remaining_seconds <= DEADLINE_ROUNDING * timeout_seconds
            record.outcome = DeadlineExceededError.reason if passed else record.outcome
        raise


async def send(context: Context, message: object) -> None:
    """Writes a message of a stream.

    Raises:
        asyncio.CancelledError: if the client has gone, which a write may notice before gRPC cancels the call, or reads
            nothing.
    """
    try:
        await send_in_time(context.write(message))
    except (grpc.aio.BaseError, CancelledError) as error:
        raise asyncio.CancelledError from error  # a status would wait behind what nobody reads


def _time_remaining(context: Context) -> float | None:
    """Returns the time to the client's deadline, in seconds; None if it set none."""
    return context.time_remaining()
