"""The quota of streams: requests of a stream wait for room and leave a part of it free."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dragoman.serve import errors
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.request_scheduler import Reservation
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.scheduler.stream_quota import StreamQuota
from tests.support.schedulers import make_sequence

ROOM, SPARE_ROWS = 8, 3
WAIT_SECONDS = 60.0
SOON_SECONDS = 0.05

pytestmark = pytest.mark.anyio


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(2, ROOM - 2, 100, Metrics(CollectorRegistry(), model="tiny"), queue_timeout_seconds=5.0)


@pytest.fixture
def quota(scheduler: Scheduler) -> StreamQuota:
    return StreamQuota(scheduler, SPARE_ROWS)


def reserve(
    quota: StreamQuota, rows: int, stream: FairnessKey, wait_seconds: float = WAIT_SECONDS, priority: int = 0
) -> Coroutine[Any, Any, Reservation]:
    return quota.reserve(rows, stream, time.monotonic() + wait_seconds, priority)


async def test_the_first_request_of_a_stream_may_take_all_the_room(scheduler: Scheduler, quota: StreamQuota) -> None:
    with await reserve(quota, ROOM, FairnessKey()), pytest.raises(errors.QueueFullError):
        scheduler.reserve(1)
    scheduler.reserve(ROOM)


async def test_a_further_request_of_a_stream_leaves_rows_free(quota: StreamQuota) -> None:
    stream = FairnessKey()
    with await reserve(quota, 1, stream):
        with await reserve(quota, ROOM - SPARE_ROWS - 1, stream):
            pass
        with pytest.raises(errors.DeadlineExceededError):
            await reserve(quota, ROOM - SPARE_ROWS, stream, SOON_SECONDS)
        with await reserve(quota, ROOM - 1, FairnessKey()):
            pass


async def test_a_request_of_a_stream_waits_for_room(scheduler: Scheduler, quota: StreamQuota) -> None:
    taken = scheduler.reserve(ROOM)
    waiting = asyncio.create_task(reserve(quota, 2, FairnessKey()))
    await asyncio.sleep(SOON_SECONDS)
    assert not waiting.done()
    taken.resize(0)
    assert (await waiting).rows == 2


async def test_requests_that_are_over_no_longer_count_for_their_stream(quota: StreamQuota) -> None:
    """Whether or not they were widened."""
    stream = FairnessKey()
    for _ in range(2):
        with await reserve(quota, 1, stream) as first, await reserve(quota, 1, stream):
            await quota.widen(first, 2, stream, time.monotonic() + WAIT_SECONDS)
            with pytest.raises(errors.DeadlineExceededError):
                await reserve(quota, ROOM - SPARE_ROWS - 2, stream, SOON_SECONDS)
        with await reserve(quota, ROOM, stream):
            pass


async def test_a_request_that_widens_holds_no_room_while_it_waits(quota: StreamQuota) -> None:
    """Two requests that widen at the same time, of which only one fits, take turns."""

    async def grow() -> None:
        stream = FairnessKey()
        with await reserve(quota, ROOM // 2, stream) as reservation:
            await asyncio.sleep(0)
            await quota.widen(reservation, ROOM, stream, time.monotonic() + WAIT_SECONDS)
            assert reservation.rows == ROOM

    await asyncio.gather(grow(), grow())


async def test_widening_ends_at_the_deadline(scheduler: Scheduler, quota: StreamQuota) -> None:
    stream = FairnessKey()
    with await reserve(quota, 1, stream) as reservation:
        scheduler.reserve(1)
        with pytest.raises(errors.DeadlineExceededError):
            await quota.widen(reservation, ROOM, stream, time.monotonic() + SOON_SECONDS)


async def test_a_refusal_that_waiting_does_not_mend_comes_at_once(scheduler: Scheduler, quota: StreamQuota) -> None:
    """Six rows wait and take 20 s each: too long for a request with a queue timeout, and for short deadlines."""
    now_seconds = time.monotonic()
    scheduler.submit([make_sequence(1, now_seconds, rows=2, fairness_key=number) for number in range(3)])
    for ago_seconds in (20.0, 0.0):
        scheduler._throughput.free(now_seconds - ago_seconds, 1)

    async def refused(error: type[errors.ServiceError]) -> None:
        with pytest.raises(error):
            await reserve(quota, 1, FairnessKey())

    with pytest.raises(errors.QueueTimeoutError):
        scheduler.reserve(1)
    await refused(errors.DeadlineUnmeetableError)
    with (
        await reserve(quota, 1, FairnessKey(), wait_seconds=1000.0),
        await reserve(quota, 1, FairnessKey(), priority=1),
    ):
        pass
    scheduler.drain()
    await refused(errors.DrainingError)
