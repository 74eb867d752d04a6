"""A lame duck fails its probes and still admits requests."""

import asyncio

from structlog.testing import capture_logs

from serve.errors import DrainingError
from serve.observability.metrics import ServiceMetrics
from serve.registry.lame_duck import run_lame_duck
from serve.registry.lifecycle import Lifecycle, Stage
from serve.registry.registry import ModelRegistry


def test_a_lame_duck_admits_requests_but_is_not_ready() -> None:
    lifecycle = Lifecycle(ServiceMetrics(), ModelRegistry([]))
    lifecycle.enter(Stage.LAME_DUCK)
    lifecycle.check_admission()
    assert isinstance(lifecycle.unready_reason(), DrainingError)
    assert lifecycle.leaving
    assert lifecycle.live


def test_health_checks_fail_as_soon_as_the_stage_begins_and_it_ends_after_its_time() -> None:
    lifecycle = Lifecycle(ServiceMetrics(), ModelRegistry([]))
    lifecycle.enter(Stage.READY)
    seen: list[tuple[Stage, bool]] = []

    async def fail_health_checks() -> None:
        seen.append((lifecycle.stage, lifecycle.leaving))

    async def test() -> None:
        started_seconds = asyncio.get_running_loop().time()
        await run_lame_duck(lifecycle, fail_health_checks(), 0.05)
        assert asyncio.get_running_loop().time() - started_seconds >= 0.05

    with capture_logs() as logs:
        asyncio.run(test())
    assert seen == [(Stage.LAME_DUCK, True)]
    assert [(log["event"], log["seconds"]) for log in logs] == [("lame_duck", 0.05)]
