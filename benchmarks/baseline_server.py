"""A baseline server: asyncio and a batching window around a library that translates whole batches.

Sentences that arrive within the window of the first one share its batch. `python -m benchmarks.baseline_server JSON`
serves a `BaselineServer` until it is killed, with the part of Dragoman's REST API that the load generator uses.
"""

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.systems.translating import Batching, SourceSentence, Translator
from loadtest.clients import TRANSLATE_PATH
from model.tokenizer.tokenizer import Tokenizer
from serve.server_process import HOST


class BaselineServer(BaseModel):
    """The configuration of a server.

    Attributes:
        translator: `module:class` of a `Translator`.
        options: arguments of that class.
        prefix, suffix: tokens around every source.
        longest: maximum tokens of a translation.
        size: maximum sentences of a batch.
        window_seconds: time that the first sentence of a batch waits for others.
        workers: batches at a time, each in a thread.
        waiting: maximum sentences in the queue.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    port: int
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


class Waiting(NamedTuple):
    """A sentence in the queue, and the future of its translation."""

    sentence: SourceSentence
    target_ids: "asyncio.Future[Sequence[int]]"


class Batcher:
    """Collects sentences into batches, which threads translate."""

    def __init__(self, server: BaselineServer, translator: Translator) -> None:
        self._server = server
        self._translator = translator
        self._batching = Batching(server.size, "examples")
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue(server.waiting)
        self._threads = ThreadPoolExecutor(server.workers)

    async def translate(self, sentence: SourceSentence) -> Sequence[int]:
        """Returns the target tokens of a sentence.

        Raises:
            asyncio.QueueFull: at once, if the queue is full.
        """
        target_ids: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Waiting(sentence, target_ids))
        return await target_ids

    async def run(self) -> None:
        """Translates batches until it is canceled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._server.workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # A future that is done was canceled by its client.
            batch = [each for each in await self._collect() if not each.target_ids.done()]
            if not batch:
                continue
            sentences = [each.sentence for each in batch]
            targets = await loop.run_in_executor(self._threads, self._compute, sentences)
            for each, target_ids in zip(batch, targets, strict=True):
                if not each.target_ids.done():
                    each.target_ids.set_result(target_ids)

    async def _collect(self) -> list[Waiting]:
        batch = [await self._queue.get()]
        try:
            async with asyncio.timeout(self._server.window_seconds):
                while len(batch) < self._server.size:
                    batch.append(await self._queue.get())
        except TimeoutError:
            # The timeout may win over sentences that are already queued.
            while len(batch) < self._server.size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
        return batch

    def _compute(self, sentences: Sequence[SourceSentence]) -> list[Sequence[int]]:
        return self._translator.translate(sentences, self._server.beam_size, self._batching)


class _Options(BaseModel):
    """The only supported option."""

    model_config = ConfigDict(extra="forbid")

    beam_size: int = 1


class _Body(BaseModel):
    text: list[str]
    options: _Options = _Options()


class BaselineApi:
    """The request handlers of a server with its batcher."""

    def __init__(self, server: BaselineServer, translator: Translator) -> None:
        self.batcher = Batcher(server, translator)
        self._server = server
        self._tokenizer = Tokenizer.load(server.tokenizer)

    def routes(self) -> list[web.RouteDef]:
        """Returns all routes."""
        return [web.post(TRANSLATE_PATH, self._translate), web.get("/readyz", self._ready)]

    async def _translate(self, request: web.Request) -> web.Response:
        try:
            body = _Body.model_validate_json(await request.read())
        except ValidationError:
            return web.json_response({"reason": "invalid"}, status=HTTPStatus.BAD_REQUEST)
        if body.options.beam_size != self._server.beam_size:
            return web.json_response({"reason": "invalid"}, status=HTTPStatus.BAD_REQUEST)
        try:
            targets = await asyncio.gather(*(self.batcher.translate(self._sentence(text)) for text in body.text))
        except asyncio.QueueFull:
            return web.json_response({"reason": "queue_full"}, status=HTTPStatus.TOO_MANY_REQUESTS)
        return web.json_response({"translations": [{"text": self._tokenizer.decode(ids)} for ids in targets]})

    async def _ready(self, _: web.Request) -> web.Response:
        """Reports readiness: the port opens only after everything is loaded."""
        return web.json_response({"status": "ready"})

    def _sentence(self, text: str) -> SourceSentence:
        source_ids = (*self._server.prefix, *self._tokenizer.encode(text), *self._server.suffix)
        return SourceSentence(source_ids, 0, self._server.longest)


async def serve(server: BaselineServer) -> None:
    """Loads the library and serves until it is canceled."""
    api = BaselineApi(server, resolve_name(server.translator)(**server.options))
    app = web.Application()
    app.add_routes(api.routes())
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, HOST, server.port).start()
    await api.batcher.run()


if __name__ == "__main__":
    asyncio.run(serve(BaselineServer.model_validate_json(sys.argv[1])))
