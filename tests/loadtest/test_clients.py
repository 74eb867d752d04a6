"""The load generator's clients on real servers: every failure becomes a named outcome."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from aiohttp import web
from google.rpc.status_pb2 import Status

from dragoman.loadtest import clients
from dragoman.loadtest.clients import DEADLINE_EXCEEDED, NO_RESULT, OK, WRONG_COUNT, Targets, open_clients
from dragoman.loadtest.protocols import PROTOCOLS, Protocols, RequestProtocol
from dragoman.loadtest.scenario import LoadProtocol, LoadRequest, RequestKind
from dragoman.protos import translation_pb2, translation_pb2_grpc
from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse, TranslateStreamResponse, Translation
from tests.support.cases import cases

CASES = cases(__file__)

Context = grpc.aio.ServicerContext[Any, Any]
GrpcHandler = Callable[[TranslateRequest, Context], Awaitable[int]]
RestHandler = Callable[[web.Request], Awaitable[web.Response]]

PATIENT_SECONDS = 60.0
IMPATIENT_SECONDS = 0.05


class Servicer(translation_pb2_grpc.TranslationServiceServicer):
    """Answers with as many translations as the handler returns."""

    def __init__(self, handler: GrpcHandler) -> None:
        self._handler = handler
        self._streams = 0

    async def Translate(self, request: TranslateRequest, context: Context) -> TranslateResponse:  # noqa: N802
        count = await self._handler(request, context)
        return TranslateResponse(translations=[Translation(text="Ein Satz.")] * count)

    async def TranslateStream(  # noqa: N802
        self, request: TranslateRequest, context: Context
    ) -> AsyncIterator[TranslateStreamResponse]:
        """Begins a stream and ends it without a result."""
        del request, context
        yield TranslateStreamResponse()

    async def TranslateMany(  # noqa: N802
        self, request_iterator: AsyncIterator[translation_pb2.TranslateManyRequest], context: Context
    ) -> AsyncIterator[translation_pb2.TranslateManyResponse]:
        """Answers three requests in reverse order: one with an error, one with a result. Then all streams end."""
        await context.send_initial_metadata(())
        self._streams += 1
        if self._streams > 1:
            return
        requested = [await anext(request_iterator) for _ in range(3)]
        full = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        yield translation_pb2.TranslateManyResponse(id=requested[2].id, error=full)
        translated = TranslateResponse(translations=[Translation(finish_reason=translation_pb2.FINISH_REASON_EOS)])
        yield translation_pb2.TranslateManyResponse(id=requested[1].id, response=translated)


@asynccontextmanager
async def grpc_server(handler: GrpcHandler) -> AsyncIterator[Targets]:
    server = grpc.aio.server()
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(
        Servicer(handler),  # type: ignore[abstract] # the other methods are unused
        server,
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Targets(f"127.0.0.1:{port}", "", connections=1)
    finally:
        await server.stop(None)


@asynccontextmanager
async def rest_server(handler: RestHandler) -> AsyncIterator[Targets]:
    app = web.Application()
    app.router.add_post("/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Targets("", f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


async def send(targets: Targets, *requests: LoadRequest, known: Protocols = PROTOCOLS) -> list[str]:
    """Sends requests at the same time and returns their outcomes."""
    async with open_clients(targets, {request.kind.protocol for request in requests}, known) as client:
        return [answer.outcome for answer in await asyncio.gather(*map(client.send, requests))]


def send_grpc(handler: GrpcHandler, *requests: LoadRequest) -> list[str]:
    async def run() -> list[str]:
        async with grpc_server(handler) as targets:
            return await send(targets, *requests)

    return asyncio.run(run())


def send_rest(handler: RestHandler, *requests: LoadRequest, known: Protocols = PROTOCOLS) -> list[str]:
    async def run() -> list[str]:
        async with rest_server(handler) as targets:
            return await send(targets, *requests, known=known)

    return asyncio.run(run())


def ask(*texts: str, protocol: LoadProtocol, timeout_seconds: float = PATIENT_SECONDS) -> LoadRequest:
    languages = {"source_language": "en", "target_language": "de"}
    return LoadRequest(texts, RequestKind(protocol=protocol, timeout_seconds=timeout_seconds, **languages))


async def answer_one(request: TranslateRequest, context: Context) -> int:
    del context
    assert (request.source_language, request.target_language) == ("en", "de")
    return 1


async def never(*_: object) -> Any:
    await asyncio.Event().wait()


def answering(body: object, status: int = 200, languages: tuple[str, str] = ("en", "de")) -> RestHandler:
    """Returns a handler with a fixed response, text or JSON."""

    async def answer(request: web.Request) -> web.Response:
        sent = await request.json()
        assert (sent["source_language"], sent["target_language"]) == languages
        return web.Response(text=body if isinstance(body, str) else json.dumps(body), status=status)

    return answer


@pytest.mark.parametrize(("texts", "outcome"), [(("One.",), OK), (("One.", "Two."), WRONG_COUNT)])
def test_an_answer_holds_one_translation_per_text(texts: tuple[str, ...], outcome: str) -> None:
    assert send_grpc(answer_one, ask(*texts, protocol="grpc")) == [outcome]
    assert send_rest(answering({"translations": [{}]}), ask(*texts, protocol="rest")) == [outcome]


def test_a_rejection_over_grpc_is_named_by_its_status() -> None:
    async def refuse(request: object, context: Context) -> int:
        del request
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")

    assert send_grpc(refuse, ask("One.", protocol="grpc")) == ["RESOURCE_EXHAUSTED"]


@pytest.mark.parametrize("protocol", ["rest", "rest-stream"])
@pytest.mark.parametrize(
    ("body", "status", "outcome"),
    [pytest.param(*row, id=name) for name, row in CASES["a rejection over rest is named by status and reason"].items()],
)
def test_a_rejection_over_rest_is_named_by_status_and_reason(
    body: object, status: int, outcome: str, protocol: LoadProtocol
) -> None:
    assert send_rest(answering(body, status), ask("One.", protocol=protocol)) == [outcome]


def test_a_timeout_is_an_outcome() -> None:
    late = {"timeout_seconds": IMPATIENT_SECONDS}
    assert send_grpc(never, ask("1", protocol="grpc", **late)) == [DEADLINE_EXCEEDED]
    assert send_grpc(never, ask("1", protocol="grpc-many", **late)) == [DEADLINE_EXCEEDED]
    assert send_rest(never, ask("1", protocol="rest", **late)) == [clients.TIMED_OUT]


def test_the_timeout_is_sent_over_rest() -> None:
    async def answer_if_sent(request: web.Request) -> web.Response:
        status = 200 if request.headers[clients.TIMEOUT_HEADER] == "1500" else 400
        return web.json_response({"translations": [{}]}, status=status)

    assert send_rest(answer_if_sent, ask("One.", protocol="rest", timeout_seconds=1.5)) == [OK]


@pytest.mark.parametrize(("protocol", "outcome"), CASES["an unreachable server is an outcome"])
def test_an_unreachable_server_is_an_outcome(protocol: LoadProtocol, outcome: str) -> None:
    assert asyncio.run(send(Targets("127.0.0.1:1", "http://127.0.0.1:1"), ask("One.", protocol=protocol))) == [outcome]


def test_grpc_requests_are_spread_over_the_connections() -> None:
    peers: set[str] = set()

    async def note_peer(request: TranslateRequest, context: Context) -> int:
        peers.add(context.peer())
        return len(request.text)

    async def run() -> None:
        async with grpc_server(note_peer) as targets:
            await send(Targets(targets.grpc, "", connections=3), *[ask("One.", protocol="grpc")] * 6)

    asyncio.run(run())
    assert len(peers) == 3


def test_no_rest_request_waits_for_a_free_connection() -> None:
    """Each of 150 requests is answered only once all of them have arrived; aiohttp's own limit would be 100."""
    count = 150
    all_arrived = asyncio.Event()
    arrived = 0

    async def answer_when_all_arrived(request: web.Request) -> web.Response:
        nonlocal arrived
        arrived += 1
        if arrived == count:
            all_arrived.set()
        await all_arrived.wait()
        return web.json_response({"translations": (await request.json())["text"]})

    assert send_rest(answer_when_all_arrived, *[ask("One.", protocol="rest")] * count) == [OK] * count


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
    text = ": a comment\n\n" + "".join(f"event: {name}\ndata: {data}\nid: 1\n\n" for name, data in pairs)
    assert send_rest(answering(text), ask("One.", protocol="rest-stream")) == [outcome]


def test_a_stream_without_a_result_is_a_failure_over_grpc() -> None:
    assert send_grpc(answer_one, ask("One.", protocol="grpc-stream")) == [NO_RESULT]


def test_each_request_of_translate_many_has_its_own_outcome() -> None:
    """The first one gets no answer: its outcome is that of the stream."""
    requests = [ask(text, protocol="grpc-many") for text in ("1", "2", "3")]
    assert send_grpc(answer_one, *requests) == ["UNAVAILABLE", OK, "RESOURCE_EXHAUSTED"]


def test_a_protocol_of_another_service_is_data() -> None:
    """The shape of LibreTranslate: one text or a list, other names, errors in `error`."""
    protocol = RequestProtocol(
        transport="http",
        call="/translate",
        body={"q": "$texts", "source": "$source_language", "target": "$target_language", "format": "text"},
        answer="translatedText",
        reason="error",
    )

    async def answer(request: web.Request) -> web.Response:
        sent = await request.json()
        assert request.path == "/translate"
        assert sent == {"q": sent["q"], "source": "en", "target": "de", "format": "html", "alternatives": 2}
        if len(sent["q"]) > 1:
            return web.json_response({"error": "too many"}, status=403)
        return web.json_response({"translatedText": "Eins."})

    fields = {"format": "html", "alternatives": 2}
    kind = RequestKind(protocol="libretranslate", source_language="en", target_language="de", fields=fields)
    requests = [LoadRequest(("One.",), kind), LoadRequest(("One.", "Two."), kind)]
    assert send_rest(answer, *requests, known={"libretranslate": protocol}) == [OK, "403 too many"]
