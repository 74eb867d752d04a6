"""The load generator's clients on real servers: every failure becomes a named outcome."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from aiohttp import web
from google.rpc.status_pb2 import Status

from loadtest.clients import (
    NO_RESULT,
    OK,
    STREAM_PATH,
    TIMED_OUT,
    TIMEOUT_HEADER,
    TRANSLATE_PATH,
    WRONG_COUNT,
    Answer,
    Targets,
    open_clients,
)
from loadtest.scenario import Languages, LoadProtocol, LoadRequest
from protos.translation_pb2 import (
    GetModelRequest,
    ListModelsRequest,
    ListModelsResponse,
    Model,
    ScoreRequest,
    ScoreResponse,
    TranslateManyRequest,
    TranslateManyResponse,
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
    """Answers with the number of translations that the handler returns."""

    def __init__(self, handler: GrpcHandler) -> None:
        self._handler = handler

    async def Translate(  # noqa: N802 - name of the API
        self, request: TranslateRequest, context: grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]
    ) -> TranslateResponse:
        """Serves one request."""
        count = await self._handler(request, context)
        return TranslateResponse(translations=[Translation(text="Ein Satz.")] * count)

    async def TranslateStream(  # noqa: N802 - name of the API
        self, request: TranslateRequest, context: grpc.aio.ServicerContext[TranslateRequest, TranslateStreamResponse]
    ) -> AsyncIterator[TranslateStreamResponse]:
        """Begins a stream and ends it without a result."""
        del request, context
        yield TranslateStreamResponse()

    async def TranslateMany(  # noqa: N802 - name of the API
        self,
        request_iterator: AsyncIterator[TranslateManyRequest],
        context: grpc.aio.ServicerContext[TranslateManyRequest, TranslateManyResponse],
    ) -> AsyncIterator[TranslateManyResponse]:
        """Answers three requests in reverse order: one with an error, one with a result; then the stream ends."""
        await context.send_initial_metadata(())
        asked = [await anext(request_iterator) for _ in range(3)]
        full = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        yield TranslateManyResponse(id=asked[2].id, error=full)
        yield TranslateManyResponse(id=asked[1].id, response=TranslateResponse(translations=[Translation()]))

    async def Score(  # noqa: N802 - name of the API
        self, request: ScoreRequest, context: grpc.aio.ServicerContext[ScoreRequest, ScoreResponse]
    ) -> ScoreResponse:
        """Unused by the load generator."""
        raise NotImplementedError

    async def ListModels(  # noqa: N802 - name of the API
        self, request: ListModelsRequest, context: grpc.aio.ServicerContext[ListModelsRequest, ListModelsResponse]
    ) -> ListModelsResponse:
        """Unused by the load generator."""
        raise NotImplementedError

    async def GetModel(  # noqa: N802 - name of the API
        self, request: GetModelRequest, context: grpc.aio.ServicerContext[GetModelRequest, Model]
    ) -> Model:
        """Unused by the load generator."""
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
    app.router.add_post(STREAM_PATH, handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def send_grpc(
    handler: GrpcHandler,
    *texts: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    languages: Languages = NO_LANGUAGES,
    protocol: LoadProtocol = "grpc",
) -> str:
    async def send() -> Answer:
        request = LoadRequest(texts, protocol, languages=languages, timeout_seconds=timeout_seconds)
        async with grpc_server(handler) as target, open_clients(Targets(target, "", 1), {protocol}) as client:
            return await client.send(request)

    return asyncio.run(send()).outcome


def send_rest(
    handler: RestHandler,
    *texts: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    languages: Languages = NO_LANGUAGES,
    protocol: LoadProtocol = "rest",
) -> str:
    async def send() -> Answer:
        request = LoadRequest(texts, protocol, languages=languages, timeout_seconds=timeout_seconds)
        async with rest_server(handler) as url, open_clients(Targets("", url), {protocol}) as client:
            return await client.send(request)

    return asyncio.run(send()).outcome


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


def test_grpc_requests_hold_the_languages() -> None:
    async def check(request: TranslateRequest, context: object) -> int:
        del context
        assert (request.source_language, request.target_language) == ("en", "de")
        return 1

    assert send_grpc(check, "One.", languages=Languages("en", "de")) == OK


def test_rest_requests_hold_the_languages() -> None:
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


def test_a_rejection_over_grpc_is_named_by_its_status() -> None:
    async def refuse(request: object, context: grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]) -> int:
        del request
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")

    assert send_grpc(refuse, "One.") == "RESOURCE_EXHAUSTED"


def test_a_rejection_over_rest_is_named_by_status_and_reason() -> None:
    async def refuse(request: web.Request) -> web.Response:
        del request
        return web.json_response({"reason": "queue_full"}, status=429)

    assert send_rest(refuse, "One.") == "429 queue_full"


def test_an_answer_of_a_proxy_keeps_its_status() -> None:
    """A proxy answers in HTML."""

    async def answer_html(request: web.Request) -> web.Response:
        del request
        return web.Response(text="<h1>Bad gateway</h1>", status=502)

    assert send_rest(answer_html, "One.").startswith("502 ")


def test_a_timeout_is_an_outcome_over_grpc() -> None:
    assert send_grpc(never, "One.", timeout_seconds=SHORT_TIMEOUT_SECONDS) == "DEADLINE_EXCEEDED"


def test_a_timeout_is_an_outcome_over_rest() -> None:
    assert send_rest(never_rest, "One.", timeout_seconds=SHORT_TIMEOUT_SECONDS) == TIMED_OUT


def test_the_timeout_is_sent_over_rest() -> None:
    async def answer_if_told(request: web.Request) -> web.Response:
        return await answer_rest(request) if request.headers[TIMEOUT_HEADER] == "1500" else web.Response(status=400)

    assert send_rest(answer_if_told, "One.", timeout_seconds=1.5) == OK


@pytest.mark.parametrize(
    ("protocol", "outcome"),
    [
        ("grpc", "UNAVAILABLE"),
        ("grpc-stream", "UNAVAILABLE"),
        ("grpc-many", "UNAVAILABLE"),
        ("rest", "ClientConnectorError"),
        ("rest-stream", "ClientConnectorError"),
    ],
)
def test_an_unreachable_server_is_an_outcome(protocol: LoadProtocol, outcome: str) -> None:
    async def send() -> Answer:
        async with open_clients(Targets("127.0.0.1:1", "http://127.0.0.1:1"), {protocol}) as client:
            return await client.send(LoadRequest(("One.",), protocol))

    assert asyncio.run(send()).outcome == outcome


def test_grpc_requests_are_spread_over_the_connections() -> None:
    peers: set[str] = set()

    async def note_peer(
        request: TranslateRequest, context: grpc.aio.ServicerContext[TranslateRequest, TranslateResponse]
    ) -> int:
        peers.add(context.peer())
        return len(request.text)

    async def send() -> None:
        async with grpc_server(note_peer) as target, open_clients(Targets(target, "", 3), {"grpc"}) as client:
            for _ in range(6):
                await client.send(LoadRequest(("One.",)))

    asyncio.run(send())
    assert len(peers) == 3


def test_no_rest_request_waits_for_a_free_connection() -> None:
    """Each of 150 requests is answered only once all of them have arrived; aiohttp's own limit would be 100."""
    count = 150

    async def send() -> list[Answer]:
        all_arrived = asyncio.Event()
        arrived = 0

        async def answer_when_all_arrived(request: web.Request) -> web.Response:
            nonlocal arrived
            arrived += 1
            if arrived == count:
                all_arrived.set()
            await all_arrived.wait()
            return await answer_rest(request)

        async with (
            rest_server(answer_when_all_arrived) as url,
            open_clients(Targets("", url), {"rest"}) as client,
        ):
            return await asyncio.gather(*(client.send(LoadRequest(("One.",), "rest")) for _ in range(count)))

    assert [answer.outcome for answer in asyncio.run(send())] == [OK] * count


def events(*pairs: tuple[str, str]) -> web.Response:
    text = ": a comment\n\n" + "".join(f"event: {name}\ndata: {data}\nid: 1\n\n" for name, data in pairs)
    return web.Response(text=text, content_type="text/event-stream")


@pytest.mark.parametrize(
    ("pairs", "outcome"),
    [
        ([("delta", "{}"), ("result", '{"translations": [{}]}')], OK),
        ([("delta", "{}"), ("result", '{"translations": []}')], WRONG_COUNT),
        ([("delta", "{}")], NO_RESULT),
        ([("delta", "{}"), ("error", '{"status": 504, "reason": "deadline_exceeded"}')], "504 deadline_exceeded"),
    ],
)
def test_the_last_event_of_a_stream_is_its_outcome(pairs: list[tuple[str, str]], outcome: str) -> None:
    async def stream(request: web.Request) -> web.Response:
        del request
        return events(*pairs)

    assert send_rest(stream, "One.", protocol="rest-stream") == outcome


def test_a_rejected_stream_is_named_by_status_and_reason() -> None:
    async def refuse(request: web.Request) -> web.Response:
        del request
        return web.json_response({"reason": "queue_full"}, status=429)

    assert send_rest(refuse, "One.", protocol="rest-stream") == "429 queue_full"


def test_a_stream_without_a_result_is_a_failure_over_grpc() -> None:
    assert send_grpc(answer_none, "One.", protocol="grpc-stream") == NO_RESULT


def test_each_request_of_translate_many_has_its_own_outcome() -> None:
    """The first one gets no answer: its outcome is that of the stream."""

    async def send() -> list[Answer]:
        requests = [LoadRequest((text,), "grpc-many", timeout_seconds=TIMEOUT_SECONDS) for text in ("1", "2", "3")]
        async with (
            grpc_server(answer_none) as target,
            open_clients(Targets(target, "", 1), {"grpc-many"}) as client,
        ):
            return await asyncio.gather(*map(client.send, requests))

    assert [answer.outcome for answer in asyncio.run(send())] == [NO_RESULT, OK, "RESOURCE_EXHAUSTED"]


def test_a_translate_many_request_has_a_timeout() -> None:
    async def send() -> Answer:
        request = LoadRequest(("1",), "grpc-many", timeout_seconds=SHORT_TIMEOUT_SECONDS)
        async with (
            grpc_server(answer_none) as target,
            open_clients(Targets(target, "", 1), {"grpc-many"}) as client,
        ):
            return await client.send(request)

    assert asyncio.run(send()).outcome == "DEADLINE_EXCEEDED"


async def answer_none(request: object, context: object) -> int:
    del request, context
    return 0
