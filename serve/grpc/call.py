"""One gRPC call: its record, its deadline and its status.

An error becomes a status with details (`grpc-status-details-bin`, google.rpc messages): the reason from
`dragoman.serve.errors`, the invalid field, the retry delay and the request id.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc_status.rpc_status import to_status

from dragoman.serve import errors
from dragoman.serve.grpc.connections import CONNECTION
from dragoman.serve.grpc.server_call import ServerCall
from dragoman.serve.keys.account import Account
from dragoman.serve.observability.logs import RecordedRequest, RequestRecord, caller_of, choose_request_id
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import Method
from dragoman.serve.translation.response import TargetError

REQUEST_ID_KEY = "x-request-id"
# Clients obey it in their own retries (gRFC A6); `RetryInfo` in the details repeats it.
PUSHBACK_KEY = "grpc-retry-pushback-ms"
# The namespace of the reasons in ErrorInfo.
DOMAIN = "dragoman.v1"
# Errors of the client, whatever the load.
CLIENT_ERRORS = (
    errors.InvalidRequestError,
    errors.ModelNotFoundError,
    errors.UnauthorizedError,
    errors.ForbiddenError,
    errors.RequestTooLargeError,
)

# The account of the client of the running call.
ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)

Metadata = tuple[tuple[str, str | bytes], ...]


def rich_status(error: errors.ServiceError | TargetError, request_id: str | None) -> Status:
    """Returns code, message and details of an error. A status without a request id can be shared by calls."""
    status = Status(code=StatusCode[errors.find_kind(error.reason).grpc_status].value[0], message=str(error))
    for detail in _details(error, request_id):
        status.details.add().Pack(detail)
    return status


def trailers(request_id: str, error: errors.ServiceError | None = None) -> Metadata:
    """Returns the trailing metadata of a call; without an error, the call succeeded."""
    metadata: Metadata = ((REQUEST_ID_KEY, request_id),)
    return metadata if error is None else metadata + error_trailers(error, request_id)


def error_trailers(error: errors.ServiceError, request_id: str | None = None) -> Metadata:
    """Returns the trailing metadata of an error. Metadata without a request id can be shared by calls."""
    seconds = error.retry_after_seconds
    pushback = () if seconds is None else ((PUSHBACK_KEY, str(seconds * 1000)),)
    return pushback + tuple(to_status(rich_status(error, request_id)).trailing_metadata)


def _details(error: errors.ServiceError | TargetError, request_id: str | None) -> list[Message]:
    facts = {} if error.field is None else {"field": error.field}
    # ErrorInfo requires upper case.
    details: list[Message] = [ErrorInfo(reason=error.reason.upper(), domain=DOMAIN, metadata=facts)]
    if error.reason == errors.InvalidRequestError.reason:
        problem = str(error).removeprefix(f"{error.field}: ")
        violation = BadRequest.FieldViolation(field=error.field, description=problem)
        details.append(BadRequest(field_violations=[violation]))
    if error.retry_after_seconds is not None:
        details.append(RetryInfo(retry_delay=Duration(seconds=error.retry_after_seconds)))
    if request_id is not None:
        details.append(RequestInfo(request_id=request_id))
    return details


# The default time that proxies wait between two writes (nginx, send_timeout); as over HTTP.
SEND_TIMEOUT_SECONDS = 60.0
# By which it may be shorter.
TIMER_SECONDS = 1.0
# Clients send the deadline rounded up by at most this ratio, and cancel at the exact one.
DEADLINE_ROUNDING = 0.02

Context = ServerCall
AnyRequest = TypeVar("AnyRequest")
AnyResponse = TypeVar("AnyResponse")


def call_headers(context: Context) -> dict[str, str]:
    """Returns the text metadata of a call."""
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def recording(
    metrics: ServiceMetrics,
    method: Method,
    headers: Mapping[str, str],
    afterwards: Callable[[Callable[[], None]], object],
) -> Callable[[str], RecordedRequest]:
    """Returns what records a block of the call as a request with an id; `afterwards` as of `RecordedRequest`."""
    connection = CONNECTION.get()
    return partial(
        RecordedRequest,
        metrics,
        "grpc",
        method,
        headers=headers,
        account=ACCOUNT.get(),
        network="" if connection is None else connection.network,
        afterwards=afterwards,
    )


def recorded(metrics: ServiceMetrics, method: Method, request_id: str, headers: Mapping[str, str]) -> RecordedRequest:
    """Records the block as one request; the response is sent before the record is written."""
    return recording(metrics, method, headers, asyncio.get_running_loop().call_soon)(request_id)


class RecordedCall:
    """Records the block as one request and ends the call with the status of an error.

    A class, because a generator would take twice the time, for every call.
    """

    def __init__(self, metrics: ServiceMetrics, method: Method, context: Context) -> None:
        self._context = context
        headers = call_headers(context)
        self._request_id = choose_request_id(headers.get(REQUEST_ID_KEY))
        self._recorded = recorded(metrics, method, self._request_id, headers)

    async def __aenter__(self) -> RequestRecord:
        return self._recorded.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._recorded.__exit__(kind, error, trace)
        except errors.ServiceError as unexpected:
            error = unexpected
        if isinstance(error, errors.ServiceError):
            await abort(self._context, error, trailers(self._request_id, error))
        elif error is None:
            self._context.set_trailing_metadata(trailers(self._request_id))


async def abort(context: Context, error: errors.ServiceError, metadata: Metadata) -> None:
    """Ends a call with the status of an error, late if the caller makes many errors.

    Raises:
        grpc.aio.AbortError: always, except
        asyncio.CancelledError: if the client has disconnected.
    """
    connection = CONNECTION.get()
    if isinstance(error, CLIENT_ERRORS) and connection is not None:
        await connection.pace.wait(caller_of(ACCOUNT.get(), connection.network))
    try:
        await context.abort(StatusCode[error.grpc_status], str(error), metadata)
    except grpc.aio.InternalError as gone:
        raise asyncio.CancelledError from gone


async def answer(
    message: AnyRequest | errors.InvalidRequestError,
    serve: Callable[[AnyRequest, float | None, RequestRecord], Awaitable[AnyResponse]],
    context: Context,
    record: RequestRecord,
) -> AnyResponse:
    """Returns the result of `serve`; raises the error of an invalid message. Deadlines are on the monotonic clock."""
    if isinstance(message, errors.InvalidRequestError):
        raise message
    with DeadlineScope(context, record) as deadline_seconds:
        return await serve(message, deadline_seconds, record)


class DeadlineScope:
    """The deadline of a call, on the monotonic clock; records requests canceled at it as `deadline_exceeded`.

    gRPC cancels a call both when its client disconnects and when its deadline passes.
    """

    def __init__(self, context: Context, *records: RequestRecord) -> None:
        self._context = context
        self._timeout_seconds: float | None = context.time_remaining()
        self.records = records

    def __enter__(self) -> float | None:
        return None if self._timeout_seconds is None else time.monotonic() + self._timeout_seconds

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, asyncio.CancelledError) and self._timeout_seconds is not None:
            remaining_seconds: float | None = self._context.time_remaining()
            if remaining_seconds is not None and remaining_seconds <= DEADLINE_ROUNDING * self._timeout_seconds:
                for record in self.records:
                    record.outcome = errors.DeadlineExceededError.reason


async def send(context: Context, message: object) -> None:
    """Writes a message of a stream; raises as `send_all`."""
    async with _sending():
        await context.write(message)


async def send_all(context: Context, messages: deque[Any], note_written: Callable[[], object]) -> None:
    """Writes messages of a stream until there are none left, and calls a function after each.

    Raises:
        CancelledError: if the client does not read. Its status follows the unread messages.
        asyncio.CancelledError: if the client has disconnected. A write may detect it before gRPC cancels the call.
    """
    loop = asyncio.get_running_loop()
    async with _sending() as limit:
        timed_seconds = loop.time()

        def note() -> None:
            nonlocal timed_seconds
            # A timer for each message would take longer than its write.
            if (now_seconds := loop.time()) > timed_seconds + TIMER_SECONDS:
                timed_seconds = now_seconds
                limit.reschedule(now_seconds + SEND_TIMEOUT_SECONDS)
            note_written()

        await context.write_all(messages, note)


@asynccontextmanager
async def _sending() -> AsyncIterator[asyncio.Timeout]:
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS) as limit:
            yield limit
    except TimeoutError as error:
        problem = f"the client did not read the stream for {SEND_TIMEOUT_SECONDS:g} seconds"
        raise errors.CancelledError(problem) from error
    except grpc.aio.BaseError as error:
        raise asyncio.CancelledError from error


@asynccontextmanager
async def answering() -> AsyncIterator[asyncio.TaskGroup]:
    """Runs the tasks that answer the requests of a stream, and waits for them in the end.

    Raises CancelledError if the client does not read, as one of the tasks found out.
    """
    unread: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except* errors.CancelledError as group:
        unread = group.exceptions[0]
    if unread is not None:
        raise unread
