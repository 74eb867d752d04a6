"""The engine in Python without a service: it runs the kernels of the native library or standard operators.

Engines run in threads of their own.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from queue import SimpleQueue

from prometheus_client import CollectorRegistry

from benchmarks.systems.translating import LENGTH_PENALTY, SourceSentence
from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.runtime.placement import ModelSessions
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.search.options import SearchOptions
from serve.settings import ServeSettings

# No benchmark queues more rows.
MOST_WAITING_ROWS = 1 << 24
Order = Callable[[Iterable[DecodingSequence]], list[DecodingSequence]]


class LiveEngines:
    """Engines that share a scheduler."""

    def __init__(self, sessions: ModelSessions, *, engines: int, slots: int) -> None:
        """Starts engines of `slots` rows."""
        manifest, budget = sessions.manifest, ServeSettings().prefill_token_budget
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._scheduler = Scheduler(engines * slots, MOST_WAITING_ROWS, budget, metrics, engines=engines)
        models = [sessions.runtime(slots) for _ in range(engines)]
        self._engines = [Engine(model, self._scheduler, metrics, manifest) for model in models]
        for engine in self._engines:
            engine.start()

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        finished: SimpleQueue[DecodingSequence] = SimpleQueue()
        sequences = [DecodingSequence(*spec, None, finished.put) for spec in specs]
        self._scheduler.submit(order(sequences))
        for _ in sequences:
            raise_error(finished.get())
        return sequences

    def close(self) -> None:
        """Stops the engines; sequences that still run end with an error."""
        for engine in self._engines:
            engine.stop()


@cache
def search_options(shortest: int, longest: int, beam_size: int = 1) -> SearchOptions:
    """Returns options for a translation of `shortest` to `longest` tokens."""
    return SearchOptions(
        min_target_tokens=shortest, max_target_tokens=longest, beam_size=beam_size, length_penalty=LENGTH_PENALTY
    )


def specs_of(sentences: Sequence[SourceSentence], beam_size: int) -> list[SequenceSpec]:
    """Returns sentences with their search options."""
    return [SequenceSpec(each.source_ids, search_options(*each.limits, beam_size)) for each in sentences]


def raise_error(sequence: DecodingSequence) -> None:
    """Raises the error of a sequence that has no translation."""
    if sequence.error is not None:
        raise sequence.error
