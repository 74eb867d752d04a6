"""The clients of every protocol that a load uses, behind one: each request goes to that of its protocol.

Called by the processes that generate load.

What the generator asks of a client: to send a request and to tell what became of it, whatever that is.

An outcome is named after the gRPC status, or after the HTTP status and the server's reason: `RESOURCE_EXHAUSTED`,
`429 queue_full`. No client retries, because a retried request would be two.

Clients of the gRPC interface for the generator, to which a failure is an outcome and not an exception.

Opened by `loadtest.clients`.

A client of gRPC's stream of requests: one stream on each connection, answers in any order.

A server that holds a stream back makes its requests wait here, which their latency tells. One that ends a stream and
says when to come back has not read what has no answer: that is sent on the next stream, as `docs/clients.md` tells.
Opened by `loadtest.clients`.

Clients of the REST interface for the generator, to which a failure is an outcome and not an exception.

Opened by `loadtest.clients`.
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
# The client went away, as it was meant to.
GONE = "gone"
WRONG_COUNT = "answer holds another number of translations"
NO_RESULT = "the stream ended without a result"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        outcome: OK, or the status and reason of the failure.
        first_seconds: when the first part of a streamed answer was there, by the event loop's clock; None: nothing
            was streamed.
    """

    outcome: str
    first_seconds: float | None = None


class Client(Protocol):
    """Sends one request and waits for its answer."""

    async def send(self, request: LoadRequest) -> Answer:
        """Returns what became of it; raises nothing that a server or network can cause."""


def outcome_of(translations: int, request: LoadRequest) -> str:
    """Returns OK if there are as many translations as texts."""
    return OK if translations == len(request.texts) else WRONG_COUNT


if TYPE_CHECKING:
    # The type checker's alone: at run time there is one class for both kinds of channels.
    from protos.translation_pb2_grpc import TranslationServiceAsyncStub

AsyncStub: TypeAlias = "TranslationServiceAsyncStub"
# What goes with every call.
Metadata = tuple[tuple[str, str], ...]

_CHANNEL_OPTIONS = (
    # Without it, channels to one address share one connection.
    ("grpc.use_local_subchannel_pool", 1),
    # A server that comes back is found within a second, not after the two minutes of the default.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # How long one try may take, in spite of its name: a busy server answers late.
    ("grpc.min_reconnect_backoff_ms", 5000),
)


class GrpcClient:
    """Sends requests over several gRPC channels in turn, each answered as a whole."""

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
    """Sends requests over several gRPC channels in turn, whose translations are streamed."""

    def __init__(self, stubs: Sequence[AsyncStub], metadata: Metadata = ()) -> None:
        self._stubs = itertools.cycle(stubs)
        self._metadata = metadata

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, or the gRPC status, and when the first text came."""
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
    """Opens channels to `target`, each with TCP connections of its own, and closes them.

    Args:
        target: host and port, or a name with several addresses.
        connections: how many channels.
        settings: security; and how the channels behave, if they are to be balanced or to retry.

    Yields:
        Their stubs.

    Raises:
        OSError: if a file of the settings cannot be read.
    """
    options = [*_CHANNEL_OPTIONS, *(settings.options if settings.balanced or settings.retries else ())]

    async with AsyncExitStack() as stack:
        opened = (open_async_channel(target, settings, options) for _ in range(connections))
        channels = [await stack.enter_async_context(channel) for channel in opened]
        yield [TranslationServiceStub(channel) for channel in channels]


def message_of(request: LoadRequest) -> TranslateRequest:
    """Returns a request as gRPC sends it."""
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
        """Returns OK, or the gRPC status of the answer or of the stream."""
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
    """A stream while it lasts.

    Attributes:
        requests: are sent in their order.
        waiting: for an answer, by the id of the request.
    """

    requests: asyncio.Queue[TranslateManyRequest] = field(default_factory=asyncio.Queue)
    waiting: dict[str, tuple[LoadRequest, asyncio.Future[str]]] = field(default_factory=dict)

    def put(self, name: str, request: LoadRequest) -> None:
        """Has a request sent."""
        self.requests.put_nowait(
            TranslateManyRequest(id=name, request=message_of(request), timeout_seconds=request.timeout_seconds)
        )

    def successor(self) -> "_Call":
        """Returns a call that sends what has no answer yet, to those who wait for it already."""
        call = _Call(waiting=self.waiting)
        for name, (request, _) in self.waiting.items():
            call.put(name, request)
        return call


class _Stream:
    """A stream that is opened when it is needed, and again after it has ended."""

    def __init__(self, stub: AsyncStub, metadata: Metadata) -> None:
        self._stub = stub
        self._metadata = metadata
        self._numbers = itertools.count()
        self._call: _Call | None = None
        self._lasting: asyncio.Task[None] | None = None

    async def ask(self, request: LoadRequest) -> str:
        if self._call is None:
            self._call = _Call()
            self._lasting = asyncio.create_task(self._last(self._call))
        call, name = self._call, str(next(self._numbers))
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        call.waiting[name] = (request, answered)
        call.put(name, request)
        try:
            return await answered
        finally:
            call.waiting.pop(name, None)

    async def close(self) -> None:
        if self._lasting is not None:
            self._lasting.cancel()
            await asyncio.gather(self._lasting, return_exceptions=True)

    async def _last(self, call: _Call, pause_seconds: float = 0.0) -> None:
        """Sends requests and hands answers out until the stream ends; whoever still waits then has its status."""
        await asyncio.sleep(pause_seconds)
        ended, pushback_seconds = NO_RESULT, None
        stream = self._stub.TranslateMany(metadata=self._metadata)

        async def write() -> None:
            # A stream that is over ends the reading, too, which tells why.
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # A call that is refused must not be written to: the status would be lost.
                await stream.initial_metadata()
                while True:
                    await stream.write(await call.requests.get())

        writing = asyncio.create_task(write())
        try:
            async for response in stream:
                if response.id in call.waiting:  # else its client has gone
                    request, answered = call.waiting[response.id]
                    _answer(answered, _response_outcome(response, request))
        except grpc.aio.AioRpcError as error:
            told = stream_error(error)
            ended = told.code.name
            if isinstance(told, UnavailableError):
                pushback_seconds = told.retry_after_seconds
        finally:
            # At once: who asks meanwhile belongs to the next stream.
            resent = pushback_seconds is not None and bool(call.waiting)
            self._call = call.successor() if resent else None
            writing.cancel()
            stream.cancel()
            if self._call is not None:
                self._lasting = asyncio.create_task(self._last(self._call, pushback_seconds or 0.0))
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
    """What the generator looks at in the JSON of an answer, be it a translation or an error."""

    translations: tuple[object, ...] = ()
    reason: str = ""


class RestClient:
    """Sends requests over REST, each answered as a whole; a connection carries one at a time and is used again."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, the HTTP status and the server's reason, or the name of the network error."""
        try:
            async with self._session.post(TRANSLATE_PATH, **_arguments(request)) as response:
                return Answer(_http_outcome(response.status, await response.read(), request))
        except TimeoutError:
            return Answer(TIMED_OUT)
        except (aiohttp.ClientError, OSError) as error:
            return Answer(type(error).__name__)


class RestStreamClient:
    """Sends requests over REST, whose translations come as server-sent events."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns as `RestClient` does, and when the first text came."""
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
    """Opens a session without a limit of connections: a request must never wait for another one's answer.

    Raises:
        OSError: if a file of the settings cannot be used.
    """
    connector = aiohttp.TCPConnector(limit=0, ssl=security.ssl_context() or True)
    # No event is longer than an answer, of which aiohttp would take lines of at most 128 KiB.
    async with aiohttp.ClientSession(
        base_url, connector=connector, headers=dict(security.metadata), read_bufsize=1 << 22
    ) as session:
        yield session


def body_of(request: LoadRequest) -> dict[str, Any]:
    """Returns a request as REST sends it, in JSON."""
    options = {"options": dict(request.options)} if request.options else {}
    return {"text": list(request.texts), **asdict(request.languages), **options}


def _arguments(request: LoadRequest) -> Mapping[str, Any]:
    """Returns what a request is sent with."""
    return {
        "json": body_of(request),
        "timeout": aiohttp.ClientTimeout(total=request.timeout_seconds),
        # gRPC tells the server the deadline by itself; here a header does, so that no translation outlives its client.
        "headers": {TIMEOUT_HEADER: str(math.ceil(request.timeout_seconds * 1000))},
    }


def _http_outcome(status: int, body: bytes, request: LoadRequest) -> str:
    try:
        answer = _Body.model_validate_json(body)
    except ValidationError:
        return f"{status} with another body than the service's"
    if status != HTTPStatus.OK:
        return f"{status} {answer.reason}".strip()
    return outcome_of(len(answer.translations), request)


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Yields name and data of each event; those of our server have one line of data, comments have none."""
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
    """Where the server is, and what it asks of clients.

    Attributes:
        grpc: host and port of the gRPC interface.
        rest: base URL of the REST interface.
        connections: of gRPC; REST opens as many as there are requests in flight.
        security: TLS and the key, of both interfaces; nothing else of it is heeded.
        balanced: whether gRPC takes turns among several addresses, as the published service config says.
        retries: whether gRPC tries again, as it says; a request still has one outcome, its last.
    """

    grpc: str
    rest: str
    connections: int = 2
    security: ClientSettings = DEFAULTS
    balanced: bool = False
    retries: bool = False

    @property
    def channels(self) -> ClientSettings:
        """How channels of gRPC behave, beside their security."""
        return replace(self.security, balanced=self.balanced, retries=self.retries)


class ClientOfAll:
    """Sends each request with the client of its protocol."""

    def __init__(self, clients: Mapping[LoadProtocol, Client]) -> None:
        self._clients = clients

    async def send(self, request: LoadRequest) -> Answer:
        """Returns what became of it."""
        return await self._clients[request.protocol].send(request)


@asynccontextmanager
async def open_clients(targets: Targets, protocols: Collection[LoadProtocol]) -> AsyncIterator[ClientOfAll]:
    """Opens the connections of some protocols and closes them."""
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
