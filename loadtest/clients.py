"""Load generator clients for every protocol: gRPC, gRPC streams, REST and server-sent events.

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
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import aiohttp
import grpc.aio
from pydantic import BaseModel, ValidationError

from loadtest.scenario import LoadProtocol, LoadRequest
from protos.translation_pb2 import SearchOptions, TranslateManyRequest, TranslateManyResponse, TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.clients.channel import DEFAULTS, ClientSettings, open_async_channel
from serve.clients.errors import UnavailableError, stream_error

OK = "ok"
# The client canceled the request on purpose, as the scenario asks.
GONE = "gone"
WRONG_COUNT = "wrong number of translations"
NO_RESULT = "stream ended without a result"


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


if TYPE_CHECKING:
    # For the type checker only: at run time one stub class serves both kinds of channels.
    from protos.translation_pb2_grpc import TranslationServiceAsyncStub

AsyncStub: TypeAlias = "TranslationServiceAsyncStub"
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


class GrpcClient:
    """Sends unary requests over several gRPC channels in turn."""

    def __init__(self, stubs: Sequence[AsyncStub], metadata: Metadata = ()) -> None:
        self._stubs = itertools.cycle(stubs)
        self._metadata = metadata

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, or the gRPC status."""
        try:
            response = await next(self._stubs).Translate(
                message_of(request), timeout=request.timeout_seconds, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            return Answer(error.code().name)
        return Answer(outcome_of(len(response.translations), request))


class GrpcStreamClient:
    """Sends streaming requests over several gRPC channels in turn."""

    def __init__(self, stubs: Sequence[AsyncStub], metadata: Metadata = ()) -> None:
        self._stubs = itertools.cycle(stubs)
        self._metadata = metadata

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK or the gRPC status, and the time of the first part."""
        now = asyncio.get_running_loop().time
        first_seconds: float | None = None
        outcome = NO_RESULT
        try:
            call = next(self._stubs).TranslateStream(
                message_of(request), timeout=request.timeout_seconds, metadata=self._metadata
            )
            async for event in call:
                first_seconds = first_seconds or now()
                if event.HasField("result"):
                    outcome = outcome_of(len(event.result.translations), request)
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name
        return Answer(outcome, first_seconds)


@asynccontextmanager
async def open_stubs(target: str, connections: int, settings: ClientSettings) -> AsyncIterator[Sequence[AsyncStub]]:
    """Opens gRPC channels, each with its own TCP connections, yields their stubs, and closes the channels.

    Raises:
        OSError: if a file of the settings cannot be read.
    """
    options = [*_CHANNEL_OPTIONS, *(settings.options if settings.balanced or settings.retries else ())]

    async with AsyncExitStack() as stack:
        opened = (open_async_channel(target, settings, options) for _ in range(connections))
        channels = [await stack.enter_async_context(channel) for channel in opened]
        yield [TranslationServiceStub(channel) for channel in channels]


def message_of(request: LoadRequest) -> TranslateRequest:
    """Converts a request to its gRPC message."""
    options = SearchOptions(**request.options) if request.options else None
    return TranslateRequest(text=request.texts, options=options, **asdict(request.languages))


_STATUSES = {status.value[0]: status.name for status in grpc.StatusCode}
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED.name


class GrpcManyClient:
    """Sends requests over several streams in turn."""

    def __init__(self, stubs: Sequence[AsyncStub], metadata: Metadata = ()) -> None:
        self._all = [_Stream(stub, metadata) for stub in stubs]
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
class _Call:
    """One open stream: messages to send, and unanswered requests with their futures, by request id."""

    requests: asyncio.Queue[TranslateManyRequest] = field(default_factory=asyncio.Queue)
    waiting: dict[str, tuple[LoadRequest, asyncio.Future[str]]] = field(default_factory=dict)

    def put(self, name: str, request: LoadRequest) -> None:
        """Queues a request for sending."""
        self.requests.put_nowait(
            TranslateManyRequest(id=name, request=message_of(request), timeout_seconds=request.timeout_seconds)
        )

    def successor(self) -> "_Call":
        """Returns a call that sends the unanswered requests again and resolves the same futures."""
        call = _Call(waiting=self.waiting)
        for name, (request, _) in self.waiting.items():
            call.put(name, request)
        return call


class _Stream:
    """A stream that opens on demand and reopens after it ends."""

    def __init__(self, stub: AsyncStub, metadata: Metadata) -> None:
        self._stub = stub
        self._metadata = metadata
        self._numbers = itertools.count()
        self._call: _Call | None = None
        self._exchange_task: asyncio.Task[None] | None = None

    async def ask(self, request: LoadRequest) -> str:
        if self._call is None:
            self._call = _Call()
            self._exchange_task = asyncio.create_task(self._exchange(self._call))
        call, name = self._call, str(next(self._numbers))
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        call.waiting[name] = (request, answered)
        call.put(name, request)
        try:
            return await answered
        finally:
            call.waiting.pop(name, None)

    async def close(self) -> None:
        if self._exchange_task is not None:
            self._exchange_task.cancel()
            await asyncio.gather(self._exchange_task, return_exceptions=True)

    async def _exchange(self, call: _Call, pause_seconds: float = 0.0) -> None:
        """Exchanges requests and answers until the stream ends; its status then fails the waiting requests."""
        await asyncio.sleep(pause_seconds)
        ended, pushback_seconds = NO_RESULT, None
        stream = self._stub.TranslateMany(metadata=self._metadata)

        async def write() -> None:
            # The reading side raises the same error and handles it.
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # A write to a rejected call would lose its status, so wait for the initial metadata first.
                await stream.initial_metadata()
                while True:
                    await stream.write(await call.requests.get())

        writing = asyncio.create_task(write())
        try:
            async for response in stream:
                if response.id in call.waiting:  # else the client has left
                    request, answered = call.waiting[response.id]
                    _answer(answered, _response_outcome(response, request))
        except grpc.aio.AioRpcError as error:
            failure = stream_error(error)
            ended = failure.code.name
            if isinstance(failure, UnavailableError):
                pushback_seconds = failure.retry_after_seconds
        finally:
            # Set before any await: requests that arrive from now on belong to the next stream.
            resent = pushback_seconds is not None and bool(call.waiting)
            self._call = call.successor() if resent else None
            writing.cancel()
            stream.cancel()
            if self._call is not None:
                self._exchange_task = asyncio.create_task(self._exchange(self._call, pushback_seconds or 0.0))
            else:
                for _, answered in list(call.waiting.values()):
                    _answer(answered, ended)
            await asyncio.gather(writing, return_exceptions=True)


def _response_outcome(response: TranslateManyResponse, request: LoadRequest) -> str:
    if response.HasField("error"):
        return _STATUSES.get(response.error.code, str(response.error.code))
    return outcome_of(len(response.response.translations), request)


def _answer(answered: "asyncio.Future[str]", outcome: str) -> None:
    if not answered.done():
        answered.set_result(outcome)


TRANSLATE_PATH = "/v1/translate"
STREAM_PATH = "/v1/translate/stream"
TIMEOUT_HEADER = "x-request-timeout-ms"
TIMED_OUT = "timeout"


class _Body(BaseModel):
    """The fields of a REST answer or error that the generator reads."""

    translations: tuple[object, ...] = ()
    reason: str = ""


class RestClient:
    """Sends unary requests over REST. A connection carries one request at a time and is reused."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, the HTTP status and the server's reason, or the class name of the network error."""
        try:
            async with self._session.post(TRANSLATE_PATH, **_arguments(request)) as response:
                return Answer(_http_outcome(response.status, await response.read(), request))
        except TimeoutError:
            return Answer(TIMED_OUT)
        except (aiohttp.ClientError, OSError) as error:
            return Answer(type(error).__name__)


class RestStreamClient:
    """Sends streaming requests over REST and reads server-sent events."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns the same outcomes as `RestClient`, and the time of the first event."""
        now = asyncio.get_running_loop().time
        first_seconds: float | None = None
        outcome = NO_RESULT
        try:
            async with self._session.post(STREAM_PATH, **_arguments(request)) as response:
                if response.status != HTTPStatus.OK:
                    return Answer(_http_outcome(response.status, await response.read(), request))
                async for name, data in _events(response.content):
                    if name == "error":
                        return Answer(_http_outcome(int(json.loads(data)["status"]), data, request), first_seconds)
                    first_seconds = first_seconds or now()
                    if name == "result":
                        outcome = _http_outcome(response.status, data, request)
        except TimeoutError:
            return Answer(TIMED_OUT, first_seconds)
        except (aiohttp.ClientError, OSError) as error:
            return Answer(type(error).__name__, first_seconds)
        return Answer(outcome, first_seconds)


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


def body_of(request: LoadRequest) -> dict[str, Any]:
    """Converts a request to the JSON body of REST."""
    options = {"options": dict(request.options)} if request.options else {}
    return {"text": list(request.texts), **asdict(request.languages), **options}


def _arguments(request: LoadRequest) -> Mapping[str, Any]:
    """Returns the keyword arguments of the HTTP call."""
    return {
        "json": body_of(request),
        "timeout": aiohttp.ClientTimeout(total=request.timeout_seconds),
        # gRPC sends the deadline itself. REST needs a header, so that no translation outlives its client.
        "headers": {TIMEOUT_HEADER: str(math.ceil(request.timeout_seconds * 1000))},
    }


def _http_outcome(status: int, body: bytes, request: LoadRequest) -> str:
    try:
        answer = _Body.model_validate_json(body)
    except ValidationError:
        return f"{status} unexpected body"
    if status != HTTPStatus.OK:
        return f"{status} {answer.reason}".strip()
    return outcome_of(len(answer.translations), request)


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Yields name and data of each event. The server writes one data line per event; comments have none."""
    name, data = "", b""
    async for line in content:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode()
        elif field == b"data":
            data = value
        elif not field and name:
            yield name, data
            name, data = "", b""


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

    @property
    def channels(self) -> ClientSettings:
        """Settings of the gRPC channels: security, load balancing and retries."""
        return replace(self.security, balanced=self.balanced, retries=self.retries)


class ClientOfAll:
    """Sends each request with the client of its protocol."""

    def __init__(self, clients: Mapping[LoadProtocol, Client]) -> None:
        self._clients = clients

    async def send(self, request: LoadRequest) -> Answer:
        """Returns the result of the request."""
        return await self._clients[request.protocol].send(request)


@asynccontextmanager
async def open_clients(targets: Targets, protocols: Collection[LoadProtocol]) -> AsyncIterator[ClientOfAll]:
    """Opens the connections that the protocols need, and closes them."""
    clients: dict[LoadProtocol, Client] = {}
    async with AsyncExitStack() as stack:
        if not {"grpc", "grpc-stream", "grpc-many"}.isdisjoint(protocols):
            stubs = await stack.enter_async_context(open_stubs(targets.grpc, targets.connections, targets.channels))
            metadata = targets.security.metadata
            many = GrpcManyClient(stubs, metadata)
            stack.push_async_callback(many.close)
            clients |= {
                "grpc": GrpcClient(stubs, metadata),
                "grpc-stream": GrpcStreamClient(stubs, metadata),
                "grpc-many": many,
            }
        if not {"rest", "rest-stream"}.isdisjoint(protocols):
            session = await stack.enter_async_context(open_session(targets.rest, targets.security))
            clients |= {"rest": RestClient(session), "rest-stream": RestStreamClient(session)}
        yield ClientOfAll(clients)
