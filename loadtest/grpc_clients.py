"""Clients of the gRPC interface for the generator, to which a failure is an outcome and not an exception.

Opened by `loadtest.clients`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

import grpc.aio

from loadtest.client import NO_RESULT, Answer, outcome_of
from loadtest.request import LoadRequest
from protos.translation_pb2 import SearchOptions, TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.clients.channel import ClientSettings, open_async_channel

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
