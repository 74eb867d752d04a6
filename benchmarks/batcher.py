"""Request batching with a time window: whoever comes while one waits for company is computed together with it.

This is how servers are built on libraries that translate whole batches. Knows nothing of what is computed; called by
`benchmarks.online_server`.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

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
