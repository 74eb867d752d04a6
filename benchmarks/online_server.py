"""A server around a library that translates whole batches, as one would build it: asyncio, and a window for batching.

It speaks the part of our REST interface that a load needs. As a program it takes a `PeerServer` as JSON and serves
until it is killed; the library is one of the translators of the offline benchmark.

Request batching with a time window: whoever comes while one waits for company is computed together with it.

This is how servers are built on libraries that translate whole batches. Knows nothing of what is computed; called by
`benchmarks.online_server`.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.systems.translating import Batching, SourceSentence, Translator
from loadtest.clients import TRANSLATE_PATH
from model.tokenizer.tokenizer import Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatcherFullError(Exception):
    """As many wait as may."""


class Batcher(Generic[Item, Result]):
    """Collects items, and has batches of them computed by threads."""

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        size: int,
        window_seconds: float,
        workers: int,
        waiting: int,
    ) -> None:
        """Keeps what it needs.

        Args:
            compute: a batch; is called from threads.
            size: items of a batch, at most.
            window_seconds: how long the first item of a batch waits for others.
            workers: batches that are computed at the same time.
            waiting: items that may wait.
        """
        self._compute = compute
        self._size = size
        self._window_seconds = window_seconds
        self._workers = workers
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue(waiting)
        self._pool = ThreadPoolExecutor(workers)

    async def submit(self, item: Item) -> Result:
        """Returns what was computed of an item.

        Raises:
            BatcherFullError: at once, if too many wait.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((item, future))
        except asyncio.QueueFull:
            raise BatcherFullError from None
        return await future

    async def run(self) -> None:
        """Computes what comes, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            # Who has gone needs no answer.
            wanted = [(item, future) for item, future in batch if not future.done()]
            if not wanted:
                continue
            results = await loop.run_in_executor(self._pool, self._compute, [item for item, _ in wanted])
            for (_, future), result in zip(wanted, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def _collect(self) -> list[tuple[Item, "asyncio.Future[Result]"]]:
        loop = asyncio.get_running_loop()
        batch = [await self._queue.get()]
        end_seconds = loop.time() + self._window_seconds
        try:
            async with asyncio.timeout_at(end_seconds):
                while len(batch) < self._size:
                    batch.append(await self._queue.get())
        except TimeoutError:
            # What came in the very last moment.
            while len(batch) < self._size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
        return batch


class PeerServer(BaseModel):
    """What a server is made of.

    Attributes:
        port: of REST.
        translator: module and class of what translates.
        options: it is made of these.
        tokenizer: the file of the tokenizer.
        prefix, suffix: tokens before and after those of every source.
        longest: tokens of a translation, at most.
        beam_size: 1 is greedy search.
        size, window_seconds, workers, waiting: as of `benchmarks.online_server`.
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


class _Options(BaseModel):
    """The only option that such a server has."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    beam_size: int = 1


class _Body(BaseModel):
    text: list[str]
    options: _Options = _Options()


class PeerApi:
    """The handlers."""

    def __init__(self, server: PeerServer, translator: Translator) -> None:
        """Keeps what it needs."""
        self._server = server
        self._translator = translator
        self._tokenizer = Tokenizer.load(server.tokenizer)
        self._batching = Batching(server.size, "examples")
        self.batcher: Batcher[SourceSentence, Sequence[int]] = Batcher(
            self._compute,
            size=server.size,
            window_seconds=server.window_seconds,
            workers=server.workers,
            waiting=server.waiting,
        )

    async def translate(self, request: web.Request) -> web.Response:
        """Answers as our own server does, as far as a load looks."""
        try:
            body = _Body.model_validate_json(await request.read())
        except ValidationError:
            return web.json_response({"reason": "invalid"}, status=HTTPStatus.BAD_REQUEST)
        if body.options.beam_size != self._server.beam_size:
            return web.json_response({"reason": "invalid"}, status=HTTPStatus.BAD_REQUEST)
        try:
            targets = await asyncio.gather(*(self.batcher.submit(self._sentence(text)) for text in body.text))
        except BatcherFullError:
            return web.json_response({"reason": "queue_full"}, status=HTTPStatus.TOO_MANY_REQUESTS)
        return web.json_response({"translations": [{"text": self._tokenizer.decode(ids)} for ids in targets]})

    async def ready(self, request: web.Request) -> web.Response:
        """Answers once everything is loaded, which it is when the port is open."""
        del request
        return web.json_response({"status": "ready"})

    def _sentence(self, text: str) -> SourceSentence:
        source_ids = (*self._server.prefix, *self._tokenizer.encode(text), *self._server.suffix)
        return SourceSentence(source_ids, 0, self._server.longest)

    def _compute(self, sentences: Sequence[SourceSentence]) -> Sequence[Sequence[int]]:
        return self._translator.translate(sentences, self._server.beam_size, self._batching)


async def _serve(server: PeerServer) -> None:
    module, _, name = server.translator.partition(":")
    api = PeerApi(server, getattr(import_module(module), name)(**server.options))
    app = web.Application()
    app.router.add_post(TRANSLATE_PATH, api.translate)
    app.router.add_get("/readyz", api.ready)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", server.port).start()
    await api.batcher.run()


if __name__ == "__main__":
    asyncio.run(_serve(PeerServer.model_validate_json(sys.argv[1])))
