"""The stages of the service, shared by probes, requests and gauges.

A lame duck fails its probes but still serves: load balancers notice the failed probes and send new requests to other
servers before this one refuses any. A process that retires serves what it has and passes its probes, because other
processes of the service take over. `dragoman.serve.engine.engines` decides the readiness of a single model.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto

import structlog

from dragoman.serve.errors import DrainingError, NotReadyError, ServiceError
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.registry import ModelRegistry, Uses

_log = structlog.get_logger("dragoman")


class Stage(Enum):
    """The stages of a service's life, in order."""

    STARTING = auto()
    READY = auto()
    RETIRING = auto()
    LAME_DUCK = auto()
    DRAINING = auto()


class Lifecycle:
    """The stage of the service and its consequences. Not thread-safe: used in the event loop's thread.

    Attributes:
        stage: the current one; `enter` changes it.
        requests: the accepted ones that have not ended.
        others_ready: whether the other processes of the service are ready.
        lost_interface: returns the name of an interface that has stopped listening; None: all listen.
    """

    def __init__(self, metrics: ServiceMetrics, models: ModelRegistry) -> None:
        self._metrics = metrics
        self._models = models
        self.others_ready = True
        self.lost_interface: Callable[[], str | None] = lambda: None
        self.requests = Uses()
        self.enter(Stage.STARTING)

    @property
    def live(self) -> bool:
        """False while a model hangs, because only a restart of the process reliably ends that."""
        return not self._models.hanging

    @property
    def leaving(self) -> bool:
        """True from the stop signal on: clients should open other connections."""
        return self.stage in (Stage.RETIRING, Stage.LAME_DUCK, Stage.DRAINING)

    def enter(self, stage: Stage) -> None:
        """Moves the service to `stage`."""
        self.stage = stage
        self.refresh()

    def refresh(self) -> None:
        """Updates the gauges."""
        self._metrics.set_state(ready=self.unready_reason() is None, draining=self.leaving)
        self._models.refresh()

    def unready_reason(self) -> ServiceError | None:
        """Returns the reason of a failing readiness probe; None: ready."""
        reason = self.own_unready_reason()
        if reason is None and not self.others_ready:
            return NotReadyError("another process is not ready")
        return reason

    def own_unready_reason(self) -> ServiceError | None:
        """Returns why this process is not ready; None: it is ready, or other processes take over."""
        if self.stage is Stage.RETIRING:
            return None
        if self.leaving:
            return DrainingError("shutting down")
        if self.stage is Stage.STARTING:
            return NotReadyError("warming up")
        if (interface := self.lost_interface()) is not None:
            return NotReadyError(f"{interface} no longer listens")
        return self._models.fault()

    def check_accepting(self) -> None:
        """Checks that the stage of the service accepts requests.

        Raises:
            NotReadyError: until every model is loaded and verified.
            DrainingError: after the lame duck stage.
        """
        if self.stage is Stage.DRAINING:
            raise DrainingError("shutting down, try another server")
        if self.stage is Stage.STARTING:
            raise NotReadyError("warming up")

    def begin_request(self) -> Uses:
        """Begins a request, one of `requests` while the returned block runs; raises the errors of `check_accepting`."""
        self.check_accepting()
        return self.requests

    async def run_lame_duck(self, fail_health_checks: Awaitable[None], seconds: float) -> None:
        """Fails probes and the gRPC health checks, and returns after `seconds`."""
        self.enter(Stage.LAME_DUCK)
        await fail_health_checks
        _log.info("lame_duck", seconds=seconds)
        await asyncio.sleep(seconds)
