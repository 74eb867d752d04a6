"""What handlers and clients of the gRPC server may rely on, whatever other calls do."""

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio
import pytest

from dragoman.serve.grpc.server import GrpcServer
from dragoman.serve.grpc.server_call import ServerCall

WHO = ContextVar("WHO", default="nobody")
# More streams than the core keeps that have ended but are not released.
STREAMS = 250


@asynccontextmanager
async def channel_to(**methods: Any) -> AsyncIterator[grpc.aio.Channel]:
    """Serves methods on bytes, each of a stream of messages."""
    served = grpc.stream_stream_rpc_method_handler
    limits = (("grpc.http2.max_deallocating_streams", 100), ("grpc.max_concurrent_streams", 100))
    server = GrpcServer({f"/test/{name}": served(method, bytes, _written) for name, method in methods.items()}, limits)
    port = server.add_port("127.0.0.1:0", None)
    server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", (("grpc.enable_retries", 0),)) as channel:
        yield channel
    await server.shutdown(1.0)


def _written(message: bytes) -> bytes:
    assert message != b"bad"
    return message


async def answers(channel: grpc.aio.Channel, name: str) -> list[bytes]:
    method: Any = channel.stream_stream(f"/test/{name}")
    call = method(iter([b"question"]), timeout=10)
    return [message async for message in call]


async def twice(_: object, call: ServerCall) -> None:
    while (message := await call.read()) is not grpc.aio.EOF:
        await call.write_all(deque([message, message]), lambda: None)


def test_streams_that_ended_are_released_without_a_garbage_collection() -> None:
    async def check() -> None:
        async with channel_to(twice=twice) as channel:
            for _ in range(STREAMS):
                assert await answers(channel, "twice") == [b"question"] * 2

    gc.disable()
    try:
        asyncio.run(check())
    finally:
        gc.enable()


def test_a_call_never_sees_the_context_of_another_one() -> None:
    seen = set[str]()

    async def known(_: object, call: ServerCall) -> None:
        await call.read()
        WHO.set("somebody")
        await call.write(b"known")

    async def unknown(_: object, call: ServerCall) -> None:
        seen.add(WHO.get())
        await call.read()

    async def check() -> None:
        async with channel_to(known=known, unknown=unknown) as channel:
            await asyncio.gather(*(answers(channel, ("known", "unknown")[number % 2]) for number in range(200)))

    asyncio.run(check())
    assert seen == {"nobody"}


async def give_up(_: object, call: ServerCall) -> None:
    await call.read()
    raise asyncio.CancelledError


async def write_badly(_: object, call: ServerCall) -> None:
    await call.write(b"bad")


@pytest.mark.parametrize("method", [give_up, write_badly])
def test_a_call_whose_handler_fails_ends_at_once_with_a_status(method: Any) -> None:
    async def check() -> None:
        async with channel_to(fails=method) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await answers(channel, "fails")
            assert raised.value.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)

    asyncio.run(check())
