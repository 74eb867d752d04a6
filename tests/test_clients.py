"""The load generator's clients against real servers: every way to fail becomes an outcome with a name."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from aiohttp import web

from loadtest.arrivals import constant_arrivals
from loadtest.clients import (
    TIMEOUT_HEADER,
    TRANSLATE_PATH,
    WRONG_COUNT,
    Languages,
    open_grpc_client,
    open_rest_client,
)
from loadtest.generator import OK, run_open_loop
from loadtest.report import Distribution
from protos.translation_pb2 import (
    GetModelRequest,
    ListModelsRequest,
    ListModelsResponse,
    Model,
    ScoreRequest,
    ScoreResponse,
    TranslateRequest,
    TranslateResponse,
    TranslateStreamResponse,
    Translation,
)
from protos.translation_pb2_grpc import TranslationServiceServicer, add_TranslationServiceServicer_to_server

GrpcHandler = Callable[
    [TranslateRequest, grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]], Awaitable[int]
]
RestHandler = Callable[[web.Request], Awaitable[web.Response]]

TIMEOUT_SECONDS = 60.0
SHORT_TIMEOUT_SECONDS = 0.05
NO_LANGUAGES = Languages()


class Servicer(TranslationServiceServicer):
    """Answers with as many translations as the handler says."""

    def __init__(self, handler: GrpcHandler) -> None:
        self._handler = handler

    async def Translate(  # noqa: N802 - the name is the contract's
        self, request: TranslateRequest, context: grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]
    ) -> TranslateResponse:
        """Serves one request."""
        count = await self._handler(request, context)
        return TranslateResponse(translations=[Translation(text="Ein Satz.")] * count)

    def TranslateStream(  # noqa: N802 - the name is the contract's
        self, request: TranslateRequest, context: grpc.aio.ServicerContext[TranslateRequest, TranslateStreamResponse]
    ) -> AsyncIterator[TranslateStreamResponse]:
        """Is not asked by the load generator."""
        raise NotImplementedError

    async def Score(  # noqa: N802 - the name is the contract's
        self, request: ScoreRequest, context: grpc.aio.ServicerContext[ScoreRequest, ScoreResponse]
    ) -> ScoreResponse:
        """Is not asked by the load generator."""
        raise NotImplementedError

    async def ListModels(  # noqa: N802 - the name is the contract's
        self, request: ListModelsRequest, context: grpc.aio.ServicerContext[ListModelsRequest, ListModelsResponse]
    ) -> ListModelsResponse:
        """Is not asked by the load generator."""
        raise NotImplementedError

    async def GetModel(  # noqa: N802 - the name is the contract's
        self, request: GetModelRequest, context: grpc.aio.ServicerContext[GetModelRequest, Model]
    ) -> Model:
        """Is not asked by the load generator."""
        raise NotImplementedError


@contextlib.asynccontextmanager
async def grpc_server(handler: GrpcHandler) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_TranslationServiceServicer_to_server(Servicer(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def rest_server(handler: RestHandler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post(TRANSLATE_PATH, handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def send_grpc(
    handler: GrpcHandler, *texts: str, timeout_seconds: float = TIMEOUT_SECONDS, languages: Languages = NO_LANGUAGES
) -> str:
    async def send() -> str:
        async with (
            grpc_server(handler) as target,
            open_grpc_client(target, 1, timeout_seconds, languages) as client,
        ):
            return await client.send(texts)

    return asyncio.run(send())


def send_rest(
    handler: RestHandler, *texts: str, timeout_seconds: float = TIMEOUT_SECONDS, languages: Languages = NO_LANGUAGES
) -> str:
    async def send() -> str:
        async with rest_server(handler) as url, open_rest_client(url, timeout_seconds, languages) as client:
            return await client.send(texts)

    return asyncio.run(send())


async def answer_grpc(request: TranslateRequest, context: object) -> int:
    del context
    return len(request.text)


async def answer_rest(request: web.Request) -> web.Response:
    body = await request.json()
    return web.json_response({"translations": [{"text": "Ein Satz."} for _ in body["text"]]})


async def never(*request: object) -> int:
    del request
    await asyncio.Event().wait()
    return 0


async def never_rest(request: web.Request) -> web.Response:
    del request
    await asyncio.Event().wait()
    return web.Response()


def test_an_answer_over_grpc_is_ok() -> None:
    assert send_grpc(answer_grpc, "One.", "Two.") == OK


def test_an_answer_over_rest_is_ok() -> None:
    assert send_rest(answer_rest, "One.", "Two.") == OK


def test_the_languages_go_with_every_request_over_grpc() -> None:
    async def check(request: TranslateRequest, context: object) -> int:
        del context
        assert (request.source_language, request.target_language) == ("en", "de")
        return 1

    assert send_grpc(check, "One.", languages=Languages("en", "de")) == OK


def test_the_languages_go_with_every_request_over_rest() -> None:
    async def check(request: web.Request) -> web.Response:
        body = await request.json()
        assert (body["source_language"], body["target_language"]) == ("en", "de")
        return web.json_response({"translations": [{"text": "Eins."}]})

    assert send_rest(check, "One.", languages=Languages("en", "de")) == OK


def test_a_missing_translation_is_a_failure_over_grpc() -> None:
    async def answer_one(request: object, context: object) -> int:
        del request, context
        return 1

    assert send_grpc(answer_one, "One.", "Two.") == WRONG_COUNT


def test_a_missing_translation_is_a_failure_over_rest() -> None:
    async def answer_one(request: web.Request) -> web.Response:
        del request
        return web.json_response({"translations": [{"text": "Eins."}]})

    assert send_rest(answer_one, "One.", "Two.") == WRONG_COUNT


def test_a_refusal_over_grpc_is_named_by_its_status() -> None:
    async def refuse(request: object, context: grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]) -> int:
        del request
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")

    assert send_grpc(refuse, "One.") == "RESOURCE_EXHAUSTED"


def test_a_refusal_over_rest_is_named_by_status_and_reason() -> None:
    async def refuse(request: web.Request) -> web.Response:
        del request
        return web.json_response({"reason": "queue_full"}, status=429)

    assert send_rest(refuse, "One.") == "429 queue_full"


def test_an_answer_of_a_stranger_keeps_its_status() -> None:
    """A proxy in between answers in HTML."""

    async def answer_html(request: web.Request) -> web.Response:
        del request
        return web.Response(text="<h1>Bad gateway</h1>", status=502)

    assert send_rest(answer_html, "One.") == "502 with another body than the service's"


def test_a_timeout_is_an_outcome_over_grpc() -> None:
    assert send_grpc(never, "One.", timeout_seconds=SHORT_TIMEOUT_SECONDS) == "DEADLINE_EXCEEDED"


def test_a_timeout_is_an_outcome_over_rest() -> None:
    assert send_rest(never_rest, "One.", timeout_seconds=SHORT_TIMEOUT_SECONDS) == "timeout"


def test_the_server_is_told_the_timeout_over_rest() -> None:
    async def answer_if_told(request: web.Request) -> web.Response:
        return await answer_rest(request) if request.headers[TIMEOUT_HEADER] == "1500" else web.Response(status=400)

    assert send_rest(answer_if_told, "One.", timeout_seconds=1.5) == OK


@pytest.mark.parametrize(("protocol", "outcome"), [("grpc", "UNAVAILABLE"), ("rest", "ClientConnectorError")])
def test_a_server_that_is_not_there_is_an_outcome(protocol: str, outcome: str) -> None:
    async def send() -> str:
        if protocol == "grpc":
            async with open_grpc_client("127.0.0.1:1", 1, TIMEOUT_SECONDS) as client:
                return await client.send(("One.",))
        async with open_rest_client("http://127.0.0.1:1", TIMEOUT_SECONDS) as client:
            return await client.send(("One.",))

    assert asyncio.run(send()) == outcome


def test_grpc_requests_are_spread_over_the_connections() -> None:
    peers: set[str] = set()

    async def note_peer(
        request: TranslateRequest, context: grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]
    ) -> int:
        peers.add(context.peer())
        return len(request.text)

    async def send() -> None:
        async with grpc_server(note_peer) as target, open_grpc_client(target, 3, TIMEOUT_SECONDS) as client:
            for _ in range(6):
                await client.send(("One.",))

    asyncio.run(send())
    assert len(peers) == 3


def test_no_request_waits_for_another_ones_connection_over_rest() -> None:
    """Each of 150 requests is answered only once all of them have arrived; aiohttp's own limit would be 100."""
    count = 150

    async def send() -> list[str]:
        all_arrived = asyncio.Event()
        arrived = 0

        async def answer_when_all_arrived(request: web.Request) -> web.Response:
            nonlocal arrived
            arrived += 1
            if arrived == count:
                all_arrived.set()
            await all_arrived.wait()
            return await answer_rest(request)

        async with rest_server(answer_when_all_arrived) as url, open_rest_client(url, TIMEOUT_SECONDS) as client:
            return await asyncio.gather(*(client.send(("One.",)) for _ in range(count)))

    assert asyncio.run(send()) == [OK] * count


def test_a_stalled_server_is_charged_for_every_request_of_its_stall() -> None:
    """Requests leave every 10 ms; a stall of 0.5 s from the 20th of 100 on makes them wait for 0.5, 0.49, ... s.

    So the 90th percentile, the 11th largest latency, is at least 0.4 s. A generator that waited for each answer before
    the next request would have one slow request, and a 90th percentile near 0.
    """

    async def run() -> list[float]:
        arrived = 0
        stall = asyncio.Event()

        async def answer_after_stall(request: TranslateRequest, context: object) -> int:
            del context
            nonlocal arrived
            arrived += 1
            if arrived == 20:
                asyncio.get_running_loop().call_later(0.5, stall.set)
            if arrived >= 20:
                await stall.wait()
            return len(request.text)

        arrivals = constant_arrivals(100.0, 1.0)
        requests = [("One.",)] * len(arrivals)
        async with grpc_server(answer_after_stall) as target, open_grpc_client(target, 1, TIMEOUT_SECONDS) as client:
            samples = await run_open_loop(client, arrivals, requests, on_answer=lambda: None)
        assert all(sample.outcome == OK for sample in samples)
        return [sample.latency_seconds for sample in samples]

    latency = Distribution.of(asyncio.run(run()))
    assert latency is not None
    assert latency.p90 >= 0.4
