"""Load generator clients, one per transport: gRPC, gRPC streams, `TranslateMany`, HTTP and server-sent events.

A failure is an outcome, not an exception. An outcome is named after the gRPC status, or after the HTTP status and the
server's reason: `RESOURCE_EXHAUSTED`, `429 queue_full`. By default no client retries, because a retry is a second
request. `TranslateMany` sends all requests of a connection on one stream and accepts answers in any order. Flow control
on that stream adds to their latency. If the server ends the stream with a retry delay, it has not read the unanswered
requests; the client sends them again on the next stream.
"""

import asyncio
import itertools
import json
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp
import grpc.aio

from loadtest.protocols import PROTOCOLS, Protocols, RequestProtocol, part_at
from loadtest.scenario import LoadProtocol, LoadRequest
from protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse, TranslateRequest
from serve.clients.channel import DEFAULTS, ClientSettings, open_async_channel
from serve.clients.errors import UnavailableError, stream_error

OK = "ok"
# The client canceled the request on purpose, as the scenario asks.
GONE = "gone"
WRONG_COUNT = "wrong number of translations"
NO_RESULT = "stream ended without a result"
TIMED_OUT = "timeout"
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED.name
TIMEOUT_HEADER = "x-request-timeout-ms"
TRANSLATE_PATH = PROTOCOLS["rest"].call


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome, and when the first part of a streamed answer came, by the event loop's clock."""

    outcome: str
    first_seconds: float | None = None


class Client(Protocol):
    """Sends a request and waits for its answer."""

    async def send(self, request: LoadRequest) -> Answer:
        """Returns the result. Server and network failures become outcomes, never exceptions."""


def outcome_of(translations: int, request: LoadRequest) -> str:
    """Returns OK if the answer holds one translation per text."""
    return OK if translations == len(request.texts) else WRONG_COUNT


def message_of(request: LoadRequest) -> TranslateRequest:
    """Converts a request to its gRPC message."""
    return TranslateRequest(**request.body(PROTOCOLS["grpc"]))


def body_of(request: LoadRequest) -> dict[str, Any]:
    """Converts a request to the JSON body of REST."""
    return request.body(PROTOCOLS["rest"])


@dataclass(frozen=True, slots=True)
class Targets:
    """Addresses of the server, and how clients connect.

    Attributes:
        grpc: `HOST:PORT`, or a name that resolves to several addresses.
        connections: gRPC connections; REST opens one per request in flight.
        security: TLS and API key of both interfaces; its other settings are ignored.
        balanced, retries: whether gRPC does so by the published service config; only the last outcome counts.
    """

    grpc: str
    rest: str
    connections: int = 2
    security: ClientSettings = DEFAULTS
    balanced: bool = False
    retries: bool = False


class _AnyClient:
    """Sends each request with the client of its protocol."""

    def __init__(self, clients: Mapping[LoadProtocol, Client]) -> None:
        self._clients = clients

    async def send(self, request: LoadRequest) -> Answer:
        return await self._clients[request.protocol].send(request)


@asynccontextmanager
async def open_clients(
    targets: Targets, protocols: Collection[LoadProtocol], known: Protocols = PROTOCOLS
) -> AsyncIterator[Client]:
    """Opens the connections that the protocols need, and closes them; `known` defines the protocols.

    Raises:
        OSError: if a file of the security settings cannot be used.
    """
    clients: dict[LoadProtocol, Client] = {}
    wanted = {name: known[name] for name in protocols}
    async with AsyncExitStack() as stack:
        if any(each.grpc for each in wanted.values()):
            channels = await stack.enter_async_context(_open_channels(targets))
            metadata = targets.security.metadata
            for name, protocol in wanted.items():
                if protocol.transport == "grpc-many":
                    clients[name] = many = GrpcManyClient(protocol, channels, metadata)
                    stack.push_async_callback(many.close)
                elif protocol.grpc:
                    clients[name] = GrpcClient(protocol, channels, metadata)
        if not all(each.grpc for each in wanted.values()):
            session = await stack.enter_async_context(open_session(targets.rest, targets.security))
            clients |= {name: HttpClient(each, session) for name, each in wanted.items() if not each.grpc}
        yield _AnyClient(clients)


# Sent with every call.
Metadata = tuple[tuple[str, str], ...]

_CHANNEL_OPTIONS = (
    # Channels to the same address share one connection without this option.
    ("grpc.use_local_subchannel_pool", 1),
    # Reconnects within a second; the default backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Despite its name, this option bounds one connection attempt. A busy server accepts late.
    ("grpc.min_reconnect_backoff_ms", 5000),
)


@asynccontextmanager
async def _open_channels(targets: Targets) -> AsyncIterator[Sequence[grpc.aio.Channel]]:
    """Opens gRPC channels, each with its own TCP connections."""
    settings = replace(targets.security, balanced=targets.balanced, retries=targets.retries)
    options = [*_CHANNEL_OPTIONS, *(settings.options if settings.balanced or settings.retries else ())]
    async with AsyncExitStack() as stack:
        opened = (open_async_channel(targets.grpc, settings, options) for _ in range(targets.connections))
        yield [await stack.enter_async_context(channel) for channel in opened]


class GrpcClient:
    """Sends unary requests, or requests with a streamed response, over several gRPC channels in turn."""

    def __init__(self, protocol: RequestProtocol, channels: Sequence[grpc.aio.Channel], metadata: Metadata) -> None:
        self._protocol = protocol
        self._request_class = protocol.request_class
        self._metadata = metadata
        self._streams = protocol.transport == "grpc-stream"
        self._calls = itertools.cycle(
            (channel.unary_stream if self._streams else channel.unary_unary)(
                protocol.call,
                request_serializer=self._request_class.SerializeToString,
                response_deserializer=protocol.response_class.FromString,
            )
            for channel in channels
        )

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK or the gRPC status, and the time of the first part of a stream."""
        message = self._request_class(**request.body(self._protocol))
        call: Any = next(self._calls)(message, timeout=request.timeout_seconds, metadata=self._metadata)
        first_seconds: float | None = None
        outcome = NO_RESULT
        try:
            if not self._streams:
                return Answer(outcome_of(self._protocol.count(await call), request))
            async for event in call:
                first_seconds = first_seconds or asyncio.get_running_loop().time()
                if event.HasField(self._protocol.result):
                    outcome = outcome_of(self._protocol.count(getattr(event, self._protocol.result)), request)
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name
        return Answer(outcome, first_seconds)


class GrpcManyClient:
    """Sends requests over several streams in turn."""

    def __init__(self, protocol: RequestProtocol, channels: Sequence[grpc.aio.Channel], metadata: Metadata) -> None:
        self._all = [_Stream(protocol, channel, metadata) for channel in channels]
        self._streams = itertools.cycle(self._all)

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, or the gRPC status of the answer or the stream."""
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return Answer(await next(self._streams).ask(request))
        except TimeoutError:
            return Answer(DEADLINE_EXCEEDED)

    async def close(self) -> None:
        """Ends all streams."""
        for stream in self._all:
            await stream.close()


@dataclass(slots=True)
class _Waiting:
    """An unanswered request: its message and its future outcome."""

    message: TranslateManyRequest
    request: LoadRequest
    outcome: asyncio.Future[str]

    def end(self, outcome: str) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


@dataclass(slots=True)
class _Call:
    """One open stream: messages to send, and unanswered requests by id."""

    waiting: dict[str, _Waiting] = field(default_factory=dict)
    messages: asyncio.Queue[TranslateManyRequest] = field(default_factory=asyncio.Queue)


_STATUSES = {status.value[0]: status.name for status in grpc.StatusCode}


class _Stream:
    """A stream that opens on demand and reopens after it ends."""

    def __init__(self, protocol: RequestProtocol, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        self._protocol = protocol
        self._metadata = metadata
        self._open = channel.stream_stream(
            protocol.call,
            request_serializer=TranslateManyRequest.SerializeToString,
            response_deserializer=TranslateManyResponse.FromString,
        )
        self._numbers = itertools.count()
        self._call: _Call | None = None
        self._exchange_task: asyncio.Task[None] | None = None

    async def ask(self, request: LoadRequest) -> str:
        if self._call is None:
            self._begin(_Call())
        call, name = self._call, str(next(self._numbers))
        if call is None:
            raise AssertionError("the stream has been opened")
        translate = TranslateRequest(**request.body(self._protocol))
        message = TranslateManyRequest(id=name, request=translate, timeout_seconds=request.timeout_seconds)
        waiting = call.waiting[name] = _Waiting(message, request, asyncio.get_running_loop().create_future())
        call.messages.put_nowait(message)
        try:
            return await waiting.outcome
        finally:
            call.waiting.pop(name, None)

    async def close(self) -> None:
        if self._exchange_task is not None:
            self._exchange_task.cancel()
            await asyncio.gather(self._exchange_task, return_exceptions=True)

    def _begin(self, call: _Call, pause_seconds: float = 0.0) -> None:
        self._call = call
        self._exchange_task = asyncio.create_task(self._exchange(call, pause_seconds))

    async def _exchange(self, call: _Call, pause_seconds: float) -> None:
        """Exchanges requests and answers until the stream ends; its status then fails the waiting requests."""
        await asyncio.sleep(pause_seconds)
        ended, pushback_seconds = NO_RESULT, None
        stream = self._open(metadata=self._metadata)

        async def write() -> None:
            # The reading side raises the same error and handles it.
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # A write to a rejected call would lose its status, so wait for the initial metadata first.
                await stream.initial_metadata()
                while True:
                    await stream.write(await call.messages.get())

        writing = asyncio.create_task(write())
        try:
            async for response in stream:
                if response.id in call.waiting:  # else the client has left
                    waiting = call.waiting[response.id]
                    waiting.end(self._outcome(response, waiting.request))
        except grpc.aio.AioRpcError as error:
            failure = stream_error(error)
            ended = failure.code.name
            if isinstance(failure, UnavailableError):
                pushback_seconds = failure.retry_after_seconds
        finally:
            # Set before any await: requests that arrive from now on belong to the next stream.
            self._call = None
            writing.cancel()
            stream.cancel()
            if pushback_seconds is not None and call.waiting:
                self._resend(call, pushback_seconds)
            else:
                for waiting in list(call.waiting.values()):
                    waiting.end(ended)
            await asyncio.gather(writing, return_exceptions=True)

    def _resend(self, call: _Call, pause_seconds: float) -> None:
        """Sends the unanswered requests again on a new stream."""
        successor = _Call(call.waiting)
        for waiting in call.waiting.values():
            successor.messages.put_nowait(waiting.message)
        self._begin(successor, pause_seconds)

    def _outcome(self, response: TranslateManyResponse, request: LoadRequest) -> str:
        if response.HasField("error"):
            return _STATUSES.get(response.error.code, str(response.error.code))
        return outcome_of(self._protocol.count(response.response), request)


class HttpClient:
    """Sends requests with JSON over HTTP. A connection carries one request at a time and is reused."""

    def __init__(self, protocol: RequestProtocol, session: aiohttp.ClientSession) -> None:
        self._protocol = protocol
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, the HTTP status and the server's reason, or the class name of the network error.

        The answer to a request with server-sent events also has the time of the first event.
        """
        answer = Answer(NO_RESULT)
        try:
            async with self._session.post(
                self._protocol.path(request.values),
                json=request.body(self._protocol),
                timeout=aiohttp.ClientTimeout(total=request.timeout_seconds),
                # gRPC sends the deadline itself. HTTP needs a header, so that no translation outlives its client.
                headers={TIMEOUT_HEADER: str(math.ceil(request.timeout_seconds * 1000))},
            ) as response:
                if self._protocol.transport == "http" or response.status != HTTPStatus.OK:
                    return Answer(self._outcome(response.status, await response.read(), request))
                async for name, data in _events(response.content):
                    first_seconds = answer.first_seconds or asyncio.get_running_loop().time()
                    answer = replace(answer, first_seconds=first_seconds)
                    if name == "error":
                        return replace(answer, outcome=self._outcome(None, data, request))
                    if name == self._protocol.result:
                        answer = replace(answer, outcome=self._outcome(HTTPStatus.OK, data, request))
        except TimeoutError:
            return replace(answer, outcome=TIMED_OUT)
        except (aiohttp.ClientError, OSError) as error:
            return replace(answer, outcome=type(error).__name__)
        return answer

    def _outcome(self, status: int | None, body: bytes, request: LoadRequest) -> str:
        """Returns the outcome of a response; the status of an error event is part of its body."""
        try:
            answer = json.loads(body)
        except ValueError:
            return f"{status} unexpected body"
        if status == HTTPStatus.OK:
            return outcome_of(self._protocol.count(answer), request)
        reason = part_at(answer, self._protocol.reason) if self._protocol.reason else None
        return f"{status or part_at(answer, 'status')} {reason or ''}".strip()


@asynccontextmanager
async def open_session(base_url: str, security: ClientSettings = DEFAULTS) -> AsyncIterator[aiohttp.ClientSession]:
    """Opens a session with unlimited connections, so that no request waits for another request's answer.

    Raises:
        OSError: if a file of the settings cannot be used.
    """
    connector = aiohttp.TCPConnector(limit=0, ssl=security.ssl_context() or True)
    # One event holds a whole answer; aiohttp's default limits a line to 128 KiB.
    async with aiohttp.ClientSession(
        base_url, connector=connector, headers=dict(security.metadata), read_bufsize=1 << 22
    ) as session:
        yield session


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Yields name and data of each event; "message" is the standard's name of an event without one.

    The server writes one data line per event; comments have none.
    """
    name, data = "", b""
    async for line in content:
        part, _, value = line.rstrip(b"\r\n").partition(b": ")
        if part == b"event":
            name = value.decode()
        elif part == b"data":
            data = value
        elif not part and data:
            yield name or "message", data
            name, data = "", b""
