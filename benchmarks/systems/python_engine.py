"""The engine in Python without a service: it runs the kernels of the native library or standard operators."""

from collections.abc import Sequence
from queue import SimpleQueue

from prometheus_client import CollectorRegistry

from benchmarks.systems.engine import MAX_WAITING_ROWS, Order, raise_error
from dragoman.serve.engine.engine import Engine
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.runtime.placement import ModelSessions
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, SequenceSpec
from dragoman.serve.settings import ServeSettings


class LiveEngines:
    """Engines that share a scheduler, each in its own thread."""

    def __init__(self, sessions: ModelSessions, *, engines: int, slots: int) -> None:
        """Starts engines of `slots` rows."""
        manifest, budget = sessions.manifest, ServeSettings().prefill_token_budget
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._scheduler = Scheduler(engines * slots, MAX_WAITING_ROWS, budget, metrics, engines=engines)
        models = [sessions.runtime(slots) for _ in range(engines)]
        self._engines = [Engine(model, self._scheduler, metrics, manifest) for model in models]
        for engine in self._engines:
            engine.start()

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        finished: SimpleQueue[list[DecodingSequence]] = SimpleQueue()
        group = SequenceGroup(finished.put)
        sequences = [DecodingSequence(*spec, group) for spec in specs]
        self._scheduler.submit(order(sequences))
        left = len(sequences)
        while left:
            ended = finished.get()
            left -= len(ended)
            for sequence in ended:
                raise_error(sequence)
        return sequences

    def close(self) -> None:
        """Stops the engines; sequences that still run end with an error."""
        for engine in self._engines:
            engine.stop()
