"""Where the service is in its life: the one answer that probes, the door and the gauges agree on.

A lame duck says to probes that it is not ready but still serves, so that load balancers have time to look elsewhere.
`serve.service` moves from stage to stage; this module knows neither protocol. What a single model is fit for,
`serve.engine.readiness` knows.
"""

from enum import Enum, auto

from serve.errors import DrainingError, NotReadyError, ServiceError
from serve.observability.metrics import ServiceMetrics
from serve.registry.registry import ModelRegistry


class Stage(Enum):
    """The stages of a service's life, in order."""

    STARTING = auto()
    READY = auto()
    LAME_DUCK = auto()
    DRAINING = auto()


class Lifecycle:
    """The stage, and what follows from it. Belongs to the event loop's thread."""

    def __init__(self, metrics: ServiceMetrics, models: ModelRegistry) -> None:
        """Starts in `Stage.STARTING`.

        Args:
            metrics: gets the gauges `ready` and `draining`.
            models: the service is as ready as the least ready of them.
        """
        self._metrics = metrics
        self._models = models
        self.enter(Stage.STARTING)

    @property
    def live(self) -> bool:
        """False while a model hangs, which only another process may get over."""
        return not self._models.hanging

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
        self._models.refresh()
        return ready

    def unready_reason(self) -> ServiceError | None:
        """Returns what a readiness probe is told; None: ready."""
        if self.leaving:
            return DrainingError("shutting down")
        if self._stage is Stage.STARTING:
            return NotReadyError("warming up")
        return self._models.fault()

    def check_admission(self) -> None:
        """Lets a request in, as far as the whole service is concerned.

        Raises:
            NotReadyError: before every model is loaded and proven.
            DrainingError: when the lame duck's time is over.
        """
        if self._stage is Stage.DRAINING:
            raise DrainingError("shutting down, try another server")
        if self._stage is Stage.STARTING:
            raise NotReadyError("warming up")
