"""A baseline server: asyncio and a batching window around a library that translates whole batches.

Sentences that arrive within the window of the first one share its batch. `python -m benchmarks.baseline_server JSON`
serves a `BaselineServer` until it is killed, with the part of Dragoman's interfaces that the load generator uses: over
gRPC and REST, with the event loop of Dragoman and as many threads of the library as workers.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import grpc.aio
from aiohttp import web
from pydantic import BaseModel

from benchmarks.systems.translating import Batching, SourceSentence, Translator
from dragoman.loadtest.clients import TRANSLATE_PATH
from dragoman.model.config import Section
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import DESCRIPTOR, TranslateRequest, TranslateResponse, Translation
from dragoman.serve.host import event_loop
from dragoman.serve.host.server_process import HOST

SERVICE = DESCRIPTOR.services_by_name["TranslationService"].full_name


class BaselineServer(Section):
    """The configuration of a server.

    `translator` is `module:class` of a `Translator` with its options; `prefix` and `suffix` are tokens around every
    source. A batch has up to `size` sentences; its first sentence waits `window_seconds` for others. Each worker is a
    thread. `longest` bounds the tokens of a translation, `waiting` the sentences in the queue.
    """

    port: int
    grpc_port: int
    translator: str
    options: dict[str, Any]
    tokenizer: Path
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    longest: int
    beam_size: int
    size: int
    window_seconds: float
    workers: int
    waiting: int


class Batcher:
    """Collects sentences into batches, which threads translate."""

    def __init__(self, server: BaselineServer, translator: Translator) -> None:
        self._server = server
        self._translator = translator
        self._batching = Batching(server.size, "examples")
        # Sentences with the futures of their target tokens.
        self._queue: asyncio.Queue[tuple[SourceSentence, asyncio.Future[Sequence[int]]]] = asyncio.Queue(server.waiting)
        self._threads = ThreadPoolExecutor(server.workers)

    async def translate(self, sentence: SourceSentence) -> Sequence[int]:
        """Returns the target tokens of a sentence; raises asyncio.QueueFull at once, if the queue is full."""
        target_ids: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((sentence, target_ids))
        return await target_ids

    async def run(self) -> None:
        """Translates batches until it is canceled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._server.workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        loop, translate = asyncio.get_running_loop(), self._translator.translate
        while True:
            # A future that is done was canceled by its client.
            batch = [item for item in await self._collect() if not item[1].done()]
            if not batch:
                continue
            sentences, futures = zip(*batch, strict=True)
            arguments = (sentences, self._server.beam_size, self._batching)
            targets = await loop.run_in_executor(self._threads, translate, *arguments)
            for future, target_ids in zip(futures, targets, strict=True):
                if not future.done():
                    future.set_result(target_ids)

    async def _collect(self) -> list[tuple[SourceSentence, "asyncio.Future[Sequence[int]]"]]:
        batch = [await self._queue.get()]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._server.window_seconds):
                while len(batch) < self._server.size:
                    batch.append(await self._queue.get())
        # The timeout may win over sentences that are already queued.
        while len(batch) < self._server.size and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch


class _Body(BaseModel):
    text: list[str]
    options: dict[str, int] = {}


class TextTranslator:
    """Translates the texts of a request, whatever its protocol."""

    def __init__(self, server: BaselineServer, batcher: Batcher) -> None:
        self._server = server
        self._batcher = batcher
        self._tokenizer = Tokenizer.load(server.tokenizer)

    async def translate(self, texts: Sequence[str], options: Mapping[str, int]) -> list[str]:
        """Returns the translation of each text.

        Raises ValueError if the server has other options, and asyncio.QueueFull at once if the queue is full.
        """
        own = {"beam_size": self._server.beam_size, "max_target_tokens": self._server.longest}
        if {**own, "beam_size": 1, **options} != own:
            raise ValueError(f"expected {own}")
        targets = await asyncio.gather(*map(self._batcher.translate, map(self._sentence, texts)))
        return [self._tokenizer.decode(ids) for ids in targets]

    def _sentence(self, text: str) -> SourceSentence:
        server = self._server
        return SourceSentence((*server.prefix, *self._tokenizer.encode(text), *server.suffix), 0, server.longest)


def routes(translator: TextTranslator) -> list[web.RouteDef]:
    """Returns the request handlers of REST."""

    async def translate(request: web.Request) -> web.Response:
        try:
            body = _Body.model_validate_json(await request.read())
            translations = await translator.translate(body.text, body.options)
        except ValueError:  # also that of the body
            return web.json_response({"reason": "invalid"}, status=HTTPStatus.BAD_REQUEST)
        except asyncio.QueueFull:
            return web.json_response({"reason": "queue_full"}, status=HTTPStatus.TOO_MANY_REQUESTS)
        return web.json_response({"translations": [{"text": text} for text in translations]})

    async def ready(_: web.Request) -> web.Response:
        """Reports readiness: the port opens only after everything is loaded."""
        return web.json_response({"status": "ready"})

    return [web.post(TRANSLATE_PATH, translate), web.get("/readyz", ready)]


def grpc_handlers(translator: TextTranslator) -> Any:
    """Returns the handler of gRPC."""

    async def translate(request: TranslateRequest, context: Any) -> TranslateResponse:
        options = {field.name: value for field, value in request.options.ListFields()}
        try:
            translations = await translator.translate(request.text, options)
        except ValueError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT)
        except asyncio.QueueFull:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED)
        return TranslateResponse(translations=[Translation(text=text) for text in translations])

    method = grpc.unary_unary_rpc_method_handler(
        translate, TranslateRequest.FromString, TranslateResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Translate": method})


async def serve(server: BaselineServer) -> None:
    """Loads the library and serves until it is canceled."""
    batcher = Batcher(server, resolve_name(server.translator)(**server.options))
    translator = TextTranslator(server, batcher)
    grpc_server = grpc.aio.server()
    grpc_server.add_generic_rpc_handlers((grpc_handlers(translator),))
    grpc_server.add_insecure_port(f"{HOST}:{server.grpc_port}")
    await grpc_server.start()
    app = web.Application()
    app.add_routes(routes(translator))
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, HOST, server.port).start()
    await batcher.run()


if __name__ == "__main__":
    event_loop.run(serve(BaselineServer.model_validate_json(sys.argv[1])))
