"""Receiving REST requests: header, deadline, body and disconnection.

A body is read and decompressed up to its limit. It has its own time, whatever deadline the client sets. All bodies that
are being read share a bound; beyond it, the oldest one ends as if its time were over. Large complete bodies wait for
the thread to be decompressed and parsed. They share another bound; beyond it, a new one is refused.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from dragoman.serve.edge.body_coding import SMALL_CONTENT_BYTES, check_coding, decompress, too_large
from dragoman.serve.edge.load_shedding import IN_FLIGHT, REFUSAL, Arrivals, InFlight
from dragoman.serve.errors import CancelledError, DeadlineExceededError, InvalidRequestError, QueueFullError
from dragoman.serve.http.exchange import EXCHANGE, Exchange
from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.observability.instruments import ConnectionMetrics
from dragoman.serve.observability.logs import RequestRecord

TIMEOUT_HEADER = "x-request-timeout-ms"
MAX_TIMEOUT_MS = 3_600_000
TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "Timeout of the request in milliseconds; the server then cancels the work.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
}
# Bodies that are being read at once, as a share of the connections, so that others remain; and their total size, as a
# number of largest bodies. Large complete bodies have the same bound again.
MAX_BODIES_SHARE = 0.25
MAX_LARGEST_BODIES = 32
# The digits of a length that a body may have.
MAX_LENGTH_DIGITS = 18
# The time of a body is extended in steps of this share of `body_seconds`, not with each part.
EXTENSION_SHARE = 0.1
KNOWN_NAMES = 256
# Keys of the request state: the `DecodedHeaders` and the `RequestRecord`.
HEADERS, RECORD = "headers", "record"
T = TypeVar("T")
# Bytes of the names by which handlers look fields up.
_name_bytes = lru_cache(KNOWN_NAMES)(lambda name: name.lower().encode("latin-1"))


class DecodedHeaders(Headers):
    """The fields of a header by name; of several with one name, `get` returns the first.

    Starlette compares all fields for each look-up.
    """

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._list = raw
        self._first = dict(reversed(raw))

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the first value."""
        value = self._first.get(_name_bytes(key))
        return default if value is None else value.decode("latin-1")

    def getlist(self, key: str) -> list[str]:
        """Returns all values."""
        if len(self._first) < len(self._list):
            return super().getlist(key)
        value = self.get(key)
        return [] if value is None else [value]


def headers_of(scope: Scope) -> DecodedHeaders:
    """Returns the header of a request."""
    state = scope.setdefault("state", {})
    headers: DecodedHeaders | None = state.get(HEADERS)
    if headers is None:
        headers = state[HEADERS] = DecodedHeaders(scope["headers"])
    return headers


class HttpRequest(Request):
    """A request whose handlers share the decoded header."""

    headers: DecodedHeaders = DecodedHeaders([])  # in place of a property

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.headers = headers_of(scope)


def record_of(request: Request) -> RequestRecord:
    """Returns the record of a request."""
    record: RequestRecord = request.scope["state"][RECORD]
    return record


class _Reading:
    def __init__(self, time_limit: asyncio.Timeout) -> None:
        self.time_limit = time_limit
        self.body = bytearray()


class RequestReader:
    """Reads requests: bodies up to `max_body_bytes`, compressed or not, until a deadline or the default timeout."""

    def __init__(
        self,
        max_body_bytes: int,
        default_timeout_seconds: float,
        limits: HttpLimits,
        metrics: ConnectionMetrics,
        arrivals: Arrivals,
        *,
        max_largest: int = MAX_LARGEST_BODIES,
    ) -> None:
        """Creates the reader; `arrivals` counts its requests.

        Bodies that are being read take at most as much memory as `max_largest` largest ones. So do large complete
        bodies until their requests end.
        """
        self._max_bytes = max_largest * max_body_bytes
        self._max_body_bytes = max_body_bytes
        self._default_timeout_seconds = default_timeout_seconds
        self._limits = limits
        self._max_bodies = max(1, int(MAX_BODIES_SHARE * limits.connections))
        self._metrics = metrics
        self._arrivals = arrivals
        self._readings: dict[_Reading, None] = {}  # the oldest first
        self._bytes = 0
        self._held = dict[InFlight, int]()  # bytes of large complete bodies

    async def read(self, request: Request) -> tuple[bytes, float]:
        """Returns the decompressed body and the deadline on the clock of `time.monotonic`.

        The request is in flight from then on.

        Raises ServiceError if the body is invalid, too large, late or incomplete, or the request is not accepted;
        HTTPException if the content encoding is unknown, or the body does not arrive in its time.
        """
        self._arrivals.note()
        headers = request.headers
        deadline_seconds = time.monotonic() + self._timeout_seconds(headers)
        codings = headers.getlist("content-encoding")
        coding = check_coding(", ".join(codings)) if codings else None
        state = request.scope["state"]
        # Most bodies have arrived with their headers.
        body = state[EXCHANGE].take_body() if EXCHANGE in state else None
        if body is None:
            # Python converts no number of thousands of digits, and a length may have as many zeros.
            length = headers.get("content-length", "0").lstrip("0")
            if len(length) > MAX_LENGTH_DIGITS or int(length or "0") > self._max_body_bytes:
                raise too_large(self._max_body_bytes)
            body = await self._read_body(request, deadline_seconds)
        elif len(body) > self._max_body_bytes:
            raise too_large(self._max_body_bytes)
        in_flight: InFlight = state[IN_FLIGHT]
        in_flight.enter()
        if len(body) > SMALL_CONTENT_BYTES:
            self._hold(len(body), in_flight)
        if coding is not None:
            reserve = partial(self._hold, len(body) + self._max_body_bytes, in_flight)
            body = await decompress(body, coding, self._max_body_bytes, deadline_seconds, reserve)
            if in_flight in self._held:
                self._hold(len(body), in_flight)
        if in_flight.counted:
            await self._arrivals.come_first()
        return body, deadline_seconds

    def _hold(self, size: int, in_flight: InFlight) -> None:
        """Sets the bytes that a request holds until its end; raises QueueFullError beyond the bound."""
        if sum(self._held.values()) - self._held.get(in_flight, 0) + size > self._max_bytes:
            raise QueueFullError(REFUSAL)
        self._held[in_flight] = size
        in_flight.at_end(partial(self._held.pop, in_flight))

    async def _read_body(self, request: Request, deadline_seconds: float) -> bytes:
        started_seconds = time.monotonic()
        time_limit = asyncio.timeout_at(min(deadline_seconds, started_seconds + self._limits.body_seconds))
        reading = _Reading(time_limit)
        self._readings[reading] = None
        try:
            async with time_limit:
                async for chunk in request.stream():
                    self._add(reading, chunk)
                    self._extend(reading, started_seconds, deadline_seconds)
        except ClientDisconnect:
            raise CancelledError("the client disconnected") from None
        except TimeoutError:
            raise self._late(reading, deadline_seconds) from None
        finally:
            self._remove(reading)
        return bytes(reading.body)

    def _add(self, reading: _Reading, chunk: bytes) -> None:
        if len(reading.body) + len(chunk) > self._max_body_bytes:
            raise too_large(self._max_body_bytes)
        reading.body += chunk
        if reading in self._readings:
            self._bytes += len(chunk)
        while len(self._readings) > self._max_bodies or self._bytes > self._max_bytes:
            oldest = next(iter(self._readings))
            self._remove(oldest)
            with suppress(RuntimeError):  # its time has just ended
                oldest.time_limit.reschedule(0.0)

    def _remove(self, reading: _Reading) -> None:
        with suppress(KeyError):
            del self._readings[reading]
            self._bytes -= len(reading.body)

    def _extend(self, reading: _Reading, started_seconds: float, deadline_seconds: float) -> None:
        """Extends the time by what the size of the received part allows."""
        earned_seconds = self._limits.body_seconds + len(reading.body) / self._limits.body_bytes_per_second
        ends_seconds = min(deadline_seconds, started_seconds + earned_seconds)
        extension_seconds = ends_seconds - (reading.time_limit.when() or 0.0)
        if reading in self._readings and extension_seconds > EXTENSION_SHARE * self._limits.body_seconds:
            reading.time_limit.reschedule(ends_seconds)

    def _late(self, reading: _Reading, deadline_seconds: float) -> DeadlineExceededError | HTTPException:
        # The timer decides, not a clock, because a timer may end a little early.
        if reading.time_limit.when() == deadline_seconds:
            return DeadlineExceededError("the deadline passed before the request was complete")
        self._metrics.count_closed("body_timeout")
        least = self._limits.body_bytes_per_second
        problem = f"body: expected within {self._limits.body_seconds:g} s, or later at {least} bytes per second"
        return HTTPException(HTTPStatus.REQUEST_TIMEOUT, problem, {"connection": "close"})

    def _timeout_seconds(self, headers: Headers) -> float:
        value = headers.get(TIMEOUT_HEADER)
        if value is None:
            return self._default_timeout_seconds
        # `isdecimal` alone accepts digits of other scripts; `int` alone accepts white space and underscores.
        if not (value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_TIMEOUT_MS))):
            raise InvalidRequestError(TIMEOUT_HEADER, f"expected an integer from 1 to {MAX_TIMEOUT_MS}")
        if not 1 <= int(value) <= MAX_TIMEOUT_MS:
            raise InvalidRequestError(TIMEOUT_HEADER, f"{int(value)}, expected 1 to {MAX_TIMEOUT_MS}")
        return int(value) / 1000


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Returns the result of `work`, or cancels it and raises CancelledError when the client disconnects first."""
    task, disconnected, over = asyncio.current_task(), False, False
    before = task.cancelling() if task else 0

    def cancel() -> None:
        nonlocal disconnected
        if task is not None and not over:
            disconnected = True
            task.cancel()

    exchange: Exchange | None = request.scope.get("state", {}).get(EXCHANGE)
    # Another server in front of the application has only the messages of ASGI.
    watching = asyncio.create_task(_watch(request, cancel)) if exchange is None else None
    if exchange is not None:
        exchange.watch(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        # If only the disconnection has canceled the task, it goes on.
        if disconnected and task is not None and task.uncancel() <= before:
            raise CancelledError("the client disconnected") from None
        raise
    finally:
        over = True
        if watching is not None:
            watching.cancel()


async def _watch(request: Request, cancel: Callable[[], object]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    cancel()
