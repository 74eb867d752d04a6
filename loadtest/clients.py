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
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp
import grpc.aio

from dragoman.loadtest.protocols import PROTOCOLS, Protocols, RequestProtocol, part_at
from dragoman.loadtest.scenario import LoadProtocol, LoadRequest
from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub
from dragoman.serve.clients.channel import DEFAULTS, ClientSettings, open_async_channel
from dragoman.serve.clients.errors import CallError
from dragoman.serve.clients.many import INVITED_RETRIES, ManyItem, ManyResult, Window, exchange

OK = "ok"
# The client canceled the request on purpose, as the scenario asks.
GONE = "gone"
WRONG_COUNT = "wrong number of translations"
NO_RESULT = "stream ended without a result"
TIMED_OUT = "timeout"
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED.name
# A stream accepts any number of requests at a time.
MAX_IN_FLIGHT = 1 << 30
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


def outcome_of(translations: int, texts: Sequence[str]) -> str:
    """Returns OK if the answer holds one translation per text."""
    return OK if translations == len(texts) else WRONG_COUNT


@dataclass(frozen=True, slots=True)
class Targets:
    """Addresses of the server, and how clients connect.

    `grpc` is `HOST:PORT`, or a name that resolves to several addresses; REST opens a connection per request in flight.
    `security` has TLS and API key of both interfaces. `balanced` and `retries`: gRPC does so by the published service
    config; only the last outcome counts.
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
        return await self._clients[request.kind.protocol].send(request)


@asynccontextmanager
async def open_clients(
    targets: Targets, protocols: Collection[LoadProtocol], known: Protocols = PROTOCOLS
) -> AsyncIterator[Client]:
    """Opens the connections that the protocols need, and closes them; `known` defines the protocols."""
    clients: dict[LoadProtocol, Client] = {}
    wanted = {name: known[name] for name in protocols}
    async with AsyncExitStack() as stack:
        if any(value.grpc for value in wanted.values()):
            channels = await stack.enter_async_context(_open_channels(targets))
            metadata = targets.security.metadata
            for name, protocol in wanted.items():
                if protocol.transport == "grpc-many":
                    clients[name] = GrpcManyClient(protocol, channels, metadata)
                elif protocol.grpc:
                    clients[name] = GrpcClient(protocol, channels, metadata)
        if not all(value.grpc for value in wanted.values()):
            session = await stack.enter_async_context(open_session(targets.rest, targets.security))
            clients |= {name: HttpClient(item, session) for name, item in wanted.items() if not item.grpc}
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
        call: Any = next(self._calls)(message, timeout=request.kind.timeout_seconds, metadata=self._metadata)
        first_seconds: float | None = None
        outcome = NO_RESULT
        try:
            if not self._streams:
                return Answer(outcome_of(self._protocol.count(await call), request.texts))
            async for event in call:
                first_seconds = first_seconds or asyncio.get_running_loop().time()
                if event.HasField(self._protocol.result):
                    outcome = outcome_of(self._protocol.count(getattr(event, self._protocol.result)), request.texts)
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name
        return Answer(outcome, first_seconds)


@dataclass(frozen=True, slots=True)
class _Item(ManyItem):
    """A request on a stream; its tag is the future of its outcome."""

    sent: TranslateManyRequest = field(default_factory=TranslateManyRequest)

    def message(self) -> TranslateManyRequest:
        """Returns the message, without an id."""
        return self.sent


class _Stream:
    """A stream that opens on demand, and again while it ends with a retry delay."""

    def __init__(self, protocol: RequestProtocol, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        self._protocol = protocol
        self._open = partial(TranslationServiceStub(channel).TranslateMany, metadata=metadata)
        self._unsent = asyncio.Queue[_Item]()
        self._waiting = set[asyncio.Future[str]]()
        self._exchanging: asyncio.Task[None] | None = None

    def ask(self, request: LoadRequest) -> "asyncio.Future[str]":
        """Sends a request; returns the future of its outcome."""
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        outcome.add_done_callback(self._waiting.discard)
        message = TranslateRequest(**request.body(self._protocol))
        sent = TranslateManyRequest(request=message, timeout_seconds=request.kind.timeout_seconds)
        self._unsent.put_nowait(_Item(request.texts, tag=outcome, sent=sent))
        if self._exchanging is None:
            self._exchanging = asyncio.create_task(self._exchange())
        return outcome

    async def _exchange(self) -> None:
        """Exchanges messages until a stream fails; its status ends the unanswered requests."""
        failure = NO_RESULT
        try:
            window = Window(self._items(), MAX_IN_FLIGHT, INVITED_RETRIES)
            async with aclosing(exchange(self._open, window, None)) as results:
                async for result in results:
                    outcome: Any = result.item.tag
                    if not outcome.done():  # else the client has left
                        outcome.set_result(_outcome(result))
        except CallError as error:
            failure = error.code.name
        finally:
            self._unsent, self._exchanging = asyncio.Queue(), None
            for unanswered in self._waiting:
                if not unanswered.done():
                    unanswered.set_result(failure)

    async def _items(self) -> AsyncIterator[_Item]:
        while True:
            yield await self._unsent.get()


def _outcome(result: ManyResult) -> str:
    if result.response is None:
        return NO_RESULT if result.error is None else result.error.code.name
    return outcome_of(len(result.response.translations), result.item.texts)


class GrpcManyClient:
    """Sends requests over several streams in turn."""

    def __init__(self, protocol: RequestProtocol, channels: Sequence[grpc.aio.Channel], metadata: Metadata) -> None:
        self._streams = itertools.cycle([_Stream(protocol, channel, metadata) for channel in channels])

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, or the gRPC status of the answer or the stream."""
        try:
            async with asyncio.timeout(request.kind.timeout_seconds):
                return Answer(await next(self._streams).ask(request))
        except TimeoutError:
            return Answer(DEADLINE_EXCEEDED)


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
                timeout=aiohttp.ClientTimeout(total=request.kind.timeout_seconds),
                # gRPC sends the deadline itself. HTTP needs a header, so that no translation outlives its client.
                headers={TIMEOUT_HEADER: str(math.ceil(request.kind.timeout_seconds * 1000))},
            ) as response:
                if self._protocol.transport == "http" or response.status != HTTPStatus.OK:
                    return Answer(self._outcome(response.status, await response.read(), request))
                async for name, data in _events(response.content):
                    answer = replace(answer, first_seconds=answer.first_seconds or asyncio.get_running_loop().time())
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
            return outcome_of(self._protocol.count(answer), request.texts)
        reason = part_at(answer, self._protocol.reason) if self._protocol.reason else None
        return f"{status or part_at(answer, 'status')} {reason or ''}".strip()


@asynccontextmanager
async def open_session(base_url: str, security: ClientSettings = DEFAULTS) -> AsyncIterator[aiohttp.ClientSession]:
    """Opens a session with unlimited connections, so that no request waits for another request's answer."""
    connector = aiohttp.TCPConnector(limit=0, ssl=security.ssl_context() or True)
    # One event holds a whole answer; aiohttp's default limits a line to 128 KiB.
    async with aiohttp.ClientSession(
        base_url, connector=connector, headers=dict(security.metadata), read_bufsize=1 << 22
    ) as session:
        yield session


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Yields name and data of each event; the server writes one data line per event, and comments have none."""
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
