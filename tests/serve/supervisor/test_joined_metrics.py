"""The metrics of all workers, read together."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman.serve.supervisor.joined_metrics import JoinedMetrics
from dragoman.serve.supervisor.worker_process import WorkerProcess
from dragoman.serve.worker import WorkerState


class FakeLink:
    """Counts the questions, and answers each after some iterations of the event loop."""

    def __init__(self) -> None:
        self.requested = 0

    async def ask(self, _name: str, **_options: Any) -> None:
        self.requested += 1
        await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_scrapes_at_the_same_time_share_two_readings() -> None:
    """The second one begins after all of them, so that each sees what was counted before it."""
    link = FakeLink()
    worker = SimpleNamespace(link=link, state=WorkerState(listening=True, ready=True), replaced=False)
    metrics = JoinedMetrics([cast("WorkerProcess", worker)])
    first = asyncio.create_task(metrics.read())
    await asyncio.sleep(0.001)
    texts = await asyncio.gather(*(metrics.read() for _ in range(100)))
    assert "dragoman_processes 1.0" in await first
    assert len(set(texts)) == 1
    assert link.requested == 2
