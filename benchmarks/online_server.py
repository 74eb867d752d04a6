"""A baseline server: asyncio and a batching window around a library that translates whole batches.

Requests that arrive within the window of the first one share its batch. `python -m benchmarks.online_server JSON`
serves a `BaselineServer` until it is killed, with the part of Dragoman's REST API that the load generator uses.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.systems.translating import Batching, SourceSentence, Translator
from loadtest.clients import TRANSLATE_PATH
from model.tokenizer.tokenizer import Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatcherFullError(Exception):
    """The queue is full."""


class Batcher(Generic[Item, Result]):
    """Collects items into batches, which threads compute."""

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        size: int,
        window_seconds: float,
        workers: int,
        waiting: int,
    ) -> None:
        """Computes at most `workers` batches of `size` items at a time, each in a thread, and queues `waiting` items.

        The first item of a batch waits `window_seconds` for others.
        """
        self._compute = compute
        self._size = size
        self._window_seconds = window_seconds
        self._workers = workers
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue(waiting)
        self._pool = ThreadPoolExecutor(workers)

    async def submit(self, item: Item) -> Result:
        """Returns the result of an item.

        Raises:
            BatcherFullError: immediately, if the queue is full.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((item, future))
        except asyncio.QueueFull:
            raise BatcherFullError from None
        return await future

    async def run(self) -> None:
        """Computes batches until it is canceled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            # A future that is done was canceled by its client.
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
            # The timeout may win over items that are already queued.
            while len(batch) < self._size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
        return batch


class BaselineServer(BaseModel):
    """The configuration of a server; for the last four fields see `Batcher`.

    Attributes:
        translator: `module:class` of a `benchmarks.systems.translating.Translator`.
        options: arguments of that class.
        prefix, suffix: tokens around every source.
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
    """The only supported option."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    beam_size: int = 1


class _Body(BaseModel):
    text: list[str]
    options: _Options = _Options()


class BaselineApi:
    """The request handlers."""

    def __init__(self, server: BaselineServer, translator: Translator) -> None:
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
        """Answers like Dragoman's REST API, in the fields that the load generator reads."""
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
        """Reports readiness: the port opens only after everything is loaded."""
        del request
        return web.json_response({"status": "ready"})

    def _sentence(self, text: str) -> SourceSentence:
        source_ids = (*self._server.prefix, *self._tokenizer.encode(text), *self._server.suffix)
        return SourceSentence(source_ids, 0, self._server.longest)

    def _compute(self, sentences: Sequence[SourceSentence]) -> Sequence[Sequence[int]]:
        return self._translator.translate(sentences, self._server.beam_size, self._batching)


async def _serve(server: BaselineServer) -> None:
    api = BaselineApi(server, resolve_name(server.translator)(**server.options))
    app = web.Application()
    app.router.add_post(TRANSLATE_PATH, api.translate)
    app.router.add_get("/readyz", api.ready)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", server.port).start()
    await api.batcher.run()


if __name__ == "__main__":
    asyncio.run(_serve(BaselineServer.model_validate_json(sys.argv[1])))
