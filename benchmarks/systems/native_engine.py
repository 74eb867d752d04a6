"""The service's native engines without a service: this thread submits sequences and waits for their results."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from serve.bundle.bundle import Bundle
from serve.engine.native.engine import NativeEngine
from serve.engine.native.model import loop_config, loop_library
from serve.engine.native.scheduler import NativeScheduler
from serve.native.loop import LoopModel
from serve.observability.metrics import Metrics
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.settings import ServeSettings

# No benchmark queues more rows.
MOST_WAITING_ROWS = 1 << 24
Order = Callable[[Iterable[DecodingSequence]], list[DecodingSequence]]
# Results wake the thread earlier.
POLL_SECONDS = 10.0


class LiveNativeEngines:
    """Native engines that share a scheduler."""

    def __init__(
        self, bundle: Bundle, model: LoopModel, *, engines: int, slots: int, prefill_token_budget: int | None = None
    ) -> None:
        """Starts engines of `slots` rows; the default budget is that of the server."""
        self.slots = slots
        given: dict[str, Any] = {"engines": engines, "slots": slots}
        if prefill_token_budget is not None:
            given["prefill_token_budget"] = prefill_token_budget
        settings = ServeSettings(bundle=bundle.folder, device="cpu", **given)
        metrics = Metrics(CollectorRegistry(), bundle.manifest.name)
        self._scheduler = NativeScheduler(loop_library(), loop_config(settings, bundle), MOST_WAITING_ROWS, metrics)
        self._engines = NativeEngine.start_all(self._scheduler, model, settings, metrics)

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended.

        Raises:
            ServiceError: if an engine fails.
        """
        sequences = [DecodingSequence(*spec, None, lambda _: None) for spec in specs]
        self._scheduler.submit(order(sequences))
        while not self._scheduler.idle:
            self._scheduler.poll(POLL_SECONDS)
        for sequence in sequences:
            raise_error(sequence)
        return sequences

    def close(self) -> None:
        """Stops the engines; sequences that still run end with an error."""
        for engine in self._engines:
            engine.stop()
        self._scheduler.close()


def raise_error(sequence: DecodingSequence) -> None:
    """Raises the error of a sequence that has no translation."""
    if sequence.error is not None:
        raise sequence.error
