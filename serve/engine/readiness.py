"""Readiness of one model: its golden sentences came out right and its engines are healthy.

`dragoman.serve.registry.lifecycle` holds the state of the whole service.
"""

from collections.abc import Sequence

from dragoman.serve.engine.engine import Engine
from dragoman.serve.engine.native.engine import NativeEngine
from dragoman.serve.errors import NotReadyError
from dragoman.serve.observability.metrics import Metrics


class Readiness:
    """Decides whether a model takes requests. Not thread-safe: belongs to the event loop's thread."""

    def __init__(self, metrics: Metrics, engines: Sequence[Engine | NativeEngine]) -> None:
        """Starts unverified.

        Args:
            metrics: gets the gauge `model_ready`.
            engines: those of the model; the list may grow and shrink afterwards.
        """
        self._metrics = metrics
        self._engines = engines
        self._verified_after_failures: int | None = None

    @property
    def verified(self) -> bool:
        """True if the golden sentences came out right and no engine has become unhealthy since."""
        return self._verified_after_failures == self._failure_count

    @verified.setter
    def verified(self, verified: bool) -> None:
        self._verified_after_failures = self._failure_count if verified else None
        self.refresh()

    @property
    def healthy(self) -> bool:
        """False while an engine is unhealthy."""
        return all(engine.healthy for engine in self._engines)

    @property
    def hanging(self) -> bool:
        """True while an engine hangs; only a restart of the process is certain to end that."""
        return any(engine.hanging for engine in self._engines)

    @property
    def ready(self) -> bool:
        """True if the model would translate a request now."""
        return self.fault() is None

    @property
    def _failure_count(self) -> int:
        return sum(engine.failure_count for engine in self._engines)

    def refresh(self) -> None:
        """Updates the gauge."""
        self._metrics.set_ready(ready=self.ready)

    def fault(self) -> NotReadyError | None:
        """Returns why the model does not translate; None: it does."""
        failures = 0
        for engine in self._engines:
            healthy, count = engine.condition
            if not healthy:
                return NotReadyError("the model failed")
            failures += count
        return None if self._verified_after_failures == failures else NotReadyError("warming up")

    def check(self) -> None:
        """Checks that the model would translate a request now.

        Raises:
            NotReadyError: before the golden sentences came out right, or while an engine is unhealthy.
        """
        if fault := self.fault():
            raise fault
