"""Whether one model would translate a request now: its golden sentences came out right, and its engines are well.

The translator's door, probes and gauges all ask here. `serve.registry.pipeline` builds it and says when the golden
sentences came out right; where the whole service is in its life, `serve.registry.lifecycle` knows.
"""

from collections.abc import Callable

from serve.errors import NotReadyError
from serve.observability.metrics import Metrics


class Readiness:
    """What is known of one model. Belongs to the event loop's thread."""

    def __init__(
        self,
        metrics: Metrics,
        engines_healthy: Callable[[], bool],
        engines_hanging: Callable[[], bool],
        engines_falls: Callable[[], int],
    ) -> None:
        """Starts without proof that the model is right.

        Args:
            metrics: gets the gauge `model_ready`.
            engines_healthy: False once the model failed in a way that it does not recover from.
            engines_hanging: True while it gives no answer at all.
            engines_falls: how often it failed in that way, also if it does not any more.
        """
        self._metrics = metrics
        self._engines_healthy = engines_healthy
        self._engines_hanging = engines_hanging
        self._engines_failure_count = engines_falls
        self._verified_after_failures: int | None = None

    @property
    def verified(self) -> bool:
        """Whether the golden sentences came out right, and nothing has failed since that would take the proof away."""
        return self._verified_after_failures == self._engines_failure_count()

    @verified.setter
    def verified(self, verified: bool) -> None:
        self._verified_after_failures = self._engines_failure_count() if verified else None
        self.refresh()

    @property
    def healthy(self) -> bool:
        """False once the model failed."""
        return self._engines_healthy()

    @property
    def hanging(self) -> bool:
        """True while the model hangs, which only another process may get over."""
        return self._engines_hanging()

    @property
    def ready(self) -> bool:
        """Whether the model would translate a request now."""
        return self.fault() is None

    def refresh(self) -> None:
        """Brings the gauge up to date."""
        self._metrics.set_ready(ready=self.ready)

    def fault(self) -> NotReadyError | None:
        """Returns what keeps the model from translating; None: nothing does."""
        if not self._engines_healthy():
            return NotReadyError("the model failed")
        if not self.verified:
            return NotReadyError("warming up")
        return None

    def check(self) -> None:
        """Lets a request in.

        Raises:
            NotReadyError: before the golden sentences came out right, or once an engine failed.
        """
        if fault := self.fault():
            raise fault
