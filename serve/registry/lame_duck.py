"""Lame duck: after the stop signal, the server fails its probes for a while and still serves every request.

Load balancers notice the failed probes and send new requests to other servers before this one refuses any.
"""

import asyncio
from collections.abc import Awaitable

import structlog

from dragoman.serve.registry.lifecycle import Lifecycle, Stage

_log = structlog.get_logger("dragoman")


async def run_lame_duck(lifecycle: Lifecycle, fail_health_checks: Awaitable[None], seconds: float) -> None:
    """Fails probes and health checks, and returns after `seconds`.

    Args:
        lifecycle: enters the stage, which fails the REST probes.
        fail_health_checks: fails the gRPC health checks.
    """
    lifecycle.enter(Stage.LAME_DUCK)
    await fail_health_checks
    _log.info("lame_duck", seconds=seconds)
    await asyncio.sleep(seconds)
