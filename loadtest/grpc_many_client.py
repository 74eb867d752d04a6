"""A client of gRPC's stream of requests: one stream on each connection, answers in any order.

A server that holds a stream back makes its requests wait here, which their latency tells. One that ends a stream and
says when to come back has not read what has no answer: that is sent on the next stream, as `docs/clients.md` tells.
Opened by `loadtest.clients`.
"""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import grpc.aio

from loadtest.client import NO_RESULT, Answer, outcome_of
from loadtest.grpc_clients import AsyncStub, Metadata, message_of
from loadtest.request import LoadRequest
from protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse
from serve.clients.errors import UnavailableError, stream_error

_STATUSES = {status.value[0]: status.name for status in grpc.StatusCode}
TIMED_OUT = grpc.StatusCode.DEADLINE_EXCEEDED.name


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
            return Answer(TIMED_OUT)

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
                    _answer(answered, _outcome(response, request))
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


def _outcome(response: TranslateManyResponse, request: LoadRequest) -> str:
    if response.HasField("error"):
        return _STATUSES.get(response.error.code, str(response.error.code))
    return outcome_of(len(response.response.translations), request)


def _answer(answered: "asyncio.Future[str]", outcome: str) -> None:
    if not answered.done():
        answered.set_result(outcome)
