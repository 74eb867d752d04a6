"""What calls get while the server stops: an answer, or a status by which clients send them again."""

import asyncio
import threading
from collections import Counter
from pathlib import Path

import grpc

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, LiveService, run_service

CONNECTIONS = 4
CALLS_AT_ONCE = 16
# The options of a client that tries each call once, over a connection of its own.
ONCE = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


async def call_until_the_end(live: LiveService, begun: threading.Event) -> Counter[str]:
    """Returns the statuses of calls that follow each other until the server has ended."""
    statuses = Counter[str]()

    async def client(channel: grpc.aio.Channel) -> None:
        translate = channel.unary_unary(
            TRANSLATE_METHOD, TranslateRequest.SerializeToString, TranslateResponse.FromString
        )
        while live.thread.is_alive():
            try:
                await translate(TranslateRequest(text=["alpha beta gamma."]), timeout=WAIT_SECONDS)
                statuses["OK"] += 1
                begun.set()
            except grpc.aio.AioRpcError as error:
                statuses[error.code().name] += 1

    channels = [grpc.aio.insecure_channel(live.grpc_target, ONCE) for _ in range(CONNECTIONS)]
    await asyncio.gather(*(client(channel) for channel in channels for _ in range(CALLS_AT_ONCE)))
    for channel in channels:
        await channel.close()
    return statuses


def test_a_call_in_transit_during_a_stop_is_unavailable_and_never_canceled(bundle_path: Path) -> None:
    """Its client may send it again. gRPC cancels the calls that wait in its core."""
    with run_service(bundle_path) as live:
        begun = threading.Event()
        statuses: list[Counter[str]] = []
        calling = threading.Thread(target=lambda: statuses.append(asyncio.run(call_until_the_end(live, begun))))
        calling.start()
        assert begun.wait(WAIT_SECONDS)
        live.stop()
        calling.join(WAIT_SECONDS)
    assert set(statuses[0]) <= {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}, statuses
