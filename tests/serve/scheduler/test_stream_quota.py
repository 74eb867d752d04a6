"""The quota of streams: requests of a stream wait for room and leave a part of it free."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from serve.errors import DeadlineExceededError, DrainingError, QueueFullError
from serve.observability.metrics import Metrics
from serve.scheduler.admission import Reservation
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import FairnessKey
from serve.scheduler.stream_quota import StreamQuota

ROOM, SPARE_ROWS = 8, 3
WAIT_SECONDS = 20.0


def make_quota() -> tuple[Scheduler, StreamQuota]:
    scheduler = Scheduler(2, ROOM - 2, 100, Metrics(CollectorRegistry(), model="tiny"))
    return scheduler, StreamQuota(scheduler, SPARE_ROWS)


def reserve(
    quota: StreamQuota, rows: int, stream: FairnessKey, wait_seconds: float = WAIT_SECONDS
) -> Coroutine[Any, Any, Reservation]:
    return quota.reserve(rows, stream, time.monotonic() + wait_seconds, 0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_the_first_request_of_a_stream_may_take_all_the_room() -> None:
    async def test() -> None:
        scheduler, quota = make_quota()
        with await reserve(quota, ROOM, FairnessKey()), pytest.raises(QueueFullError):
            scheduler.reserve(1)
        scheduler.reserve(ROOM)

    run(test)


def test_a_further_request_of_a_stream_leaves_rows_free() -> None:
    async def test() -> None:
        _, quota = make_quota()
        stream = FairnessKey()
        with await reserve(quota, 1, stream):
            with await reserve(quota, ROOM - SPARE_ROWS - 1, stream):
                pass
            with pytest.raises(DeadlineExceededError, match=r"^the deadline passed"):
                await reserve(quota, ROOM - SPARE_ROWS, stream, wait_seconds=0.05)
            with await reserve(quota, ROOM - 1, FairnessKey()):
                pass

    run(test)


def test_a_request_of_a_stream_waits_for_room() -> None:
    async def test() -> None:
        scheduler, quota = make_quota()
        taken = scheduler.reserve(ROOM)
        waiting = asyncio.create_task(reserve(quota, 2, FairnessKey()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        taken.resize(0)
        assert (await waiting).rows == 2

    run(test)


def test_a_request_that_is_over_no_longer_counts_for_its_stream() -> None:
    async def test() -> None:
        _, quota = make_quota()
        stream = FairnessKey()
        for _ in range(3):
            with await reserve(quota, ROOM, stream, wait_seconds=1.0):
                pass

    run(test)


def test_a_request_that_widens_holds_no_room_while_it_waits() -> None:
    """Two requests that widen at the same time, of which only one fits, take turns."""

    async def test() -> None:
        _, quota = make_quota()
        deadline_seconds = time.monotonic() + WAIT_SECONDS

        async def grow() -> None:
            stream = FairnessKey()
            with await reserve(quota, ROOM // 2, stream) as reservation:
                await asyncio.sleep(0)
                await quota.widen(reservation, ROOM, stream, deadline_seconds)
                assert reservation.rows == ROOM

        await asyncio.gather(grow(), grow())

    run(test)


def test_a_refusal_for_another_reason_does_not_wait() -> None:
    async def test() -> None:
        scheduler, quota = make_quota()
        scheduler.drain()
        with pytest.raises(DrainingError):
            await reserve(quota, 1, FairnessKey())

    run(test)
