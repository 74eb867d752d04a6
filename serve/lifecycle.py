"""Where the service is in its life: the one answer that probes, the translator's door and the gauges agree on.

A lame duck says to probes that it is not ready but still serves, so that load balancers have time to look elsewhere.
`serve.app` moves the service from stage to stage; this module knows neither protocol.
"""

from collections.abc import Callable
from enum import Enum, auto

from serve.errors import DrainingError, NotReadyError, ServiceError
from serve.metrics import Metrics


class Stage(Enum):
    """The stages of a service's life, in order."""

    STARTING = auto()
    READY = auto()
    LAME_DUCK = auto()
    DRAINING = auto()


class Lifecycle:
    """The stage, and what follows from it. Belongs to the event loop's thread."""

    def __init__(
        self, metrics: Metrics, engines_healthy: Callable[[], bool], engines_hanging: Callable[[], bool]
    ) -> None:
        """Starts in `Stage.STARTING`.

        Args:
            metrics: gets the gauges `ready` and `draining`.
            engines_healthy: False once a model failed in a way that it does not recover from.
            engines_hanging: True while a model gives no answer at all.
        """
        self._metrics = metrics
        self._engines_healthy = engines_healthy
        self._engines_hanging = engines_hanging
        self.enter(Stage.STARTING)

    @property
    def live(self) -> bool:
        """False while a model hangs, which only another process may get over."""
        return not self._engines_hanging()

    @property
    def stage(self) -> Stage:
        """Where the service is."""
        return self._stage

    @property
    def leaving(self) -> bool:
        """True from the signal to stop on: clients had better open no new connections."""
        return self._stage in (Stage.LAME_DUCK, Stage.DRAINING)

    def enter(self, stage: Stage) -> None:
        """Moves the service to `stage`."""
        self._stage = stage
        self.refresh()

    def refresh(self) -> bool:
        """Brings the gauges up to date and returns whether the service is ready."""
        ready = self.unready_reason() is None
        self._metrics.set_state(ready=ready, draining=self.leaving)
        return ready

    def unready_reason(self) -> ServiceError | None:
        """Returns what a readiness probe is told; None: ready."""
        if self.leaving:
            return DrainingError("shutting down")
        return self._fault()

    def check_admission(self) -> None:
        """Lets a request in.

        Raises:
            NotReadyError: before the warm-up is over, or once an engine failed.
            DrainingError: when the lame duck's time is over.
        """
        if self._stage is Stage.DRAINING:
            raise DrainingError("shutting down, try another server")
        if fault := self._fault():
            raise fault

    def _fault(self) -> NotReadyError | None:
        if not self._engines_healthy():
            return NotReadyError("the model failed")
        if self._stage is Stage.STARTING:
            return NotReadyError("warming up")
        return None
