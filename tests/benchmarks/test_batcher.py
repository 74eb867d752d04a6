"""Request batching with a time window."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from benchmarks.online_server import Batcher, BatcherFullError


class Doubler:
    """Doubles numbers and remembers in which batches they came."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        return [2 * item for item in items]


def submit(
    batcher_options: dict[str, int], items: int, window_seconds: float = 0.2
) -> tuple[list[int | BaseException], list[list[int]]]:
    doubler = Doubler()

    async def run() -> list[int | BaseException]:
        options = {"size": 8, "workers": 1, "waiting": 100, **batcher_options}
        batcher: Batcher[int, int] = Batcher(doubler, window_seconds=window_seconds, **options)
        running = asyncio.create_task(batcher.run())
        answers = await asyncio.gather(*map(batcher.submit, range(items)), return_exceptions=True)
        running.cancel()
        return answers

    return asyncio.run(run()), doubler.batches


def test_requests_within_the_window_share_a_batch() -> None:
    answers, batches = submit({}, 3)
    assert answers == [0, 2, 4]
    assert batches == [[0, 1, 2]]


def test_a_full_batch_does_not_wait_for_its_window() -> None:
    answers, batches = submit({"size": 2}, 4, window_seconds=60.0)
    assert answers == [0, 2, 4, 6]
    assert batches == [[0, 1], [2, 3]]


def test_queued_requests_share_a_batch_without_a_window() -> None:
    answers, _ = submit({}, 3, window_seconds=0.0)
    assert answers == [0, 2, 4]


def test_a_full_queue_rejects_at_once() -> None:
    answers, _ = submit({"waiting": 2}, 5)
    assert sum(isinstance(answer, BatcherFullError) for answer in answers) == 3


def test_a_canceled_request_is_not_computed() -> None:
    doubler = Doubler()

    async def run() -> None:
        batcher: Batcher[int, int] = Batcher(doubler, size=8, window_seconds=0.05, workers=1, waiting=9)
        gone = asyncio.create_task(batcher.submit(1))
        await asyncio.sleep(0)
        gone.cancel()
        running = asyncio.create_task(batcher.run())
        assert await batcher.submit(2) == 4
        running.cancel()

    asyncio.run(run())
    assert doubler.batches == [[2]]


def test_an_error_in_a_batch_ends_the_server_and_is_raised() -> None:
    def fail(items: Sequence[int]) -> list[int]:
        raise ValueError(f"cannot compute {list(items)}")

    async def run() -> None:
        batcher: Batcher[int, int] = Batcher(fail, size=1, window_seconds=0.0, workers=1, waiting=9)
        waiting = asyncio.create_task(batcher.submit(1))
        await asyncio.sleep(0)
        try:
            await batcher.run()
        finally:
            waiting.cancel()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())
    assert "cannot compute [1]" in str(raised.value.exceptions[0])


def test_workers_compute_concurrently() -> None:
    """Each of two batches waits for the other one."""
    barrier = threading.Barrier(2, timeout=20.0)

    def meet(items: Sequence[int]) -> list[int]:
        barrier.wait()
        return list(items)

    async def run() -> list[int]:
        batcher: Batcher[int, int] = Batcher(meet, size=1, window_seconds=0.0, workers=2, waiting=9)
        running = asyncio.create_task(batcher.run())
        answers = await asyncio.gather(batcher.submit(1), batcher.submit(2))
        running.cancel()
        return list(answers)

    assert asyncio.run(run()) == [1, 2]
