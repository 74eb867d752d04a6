"""A bundle as a translator: scheduler, engines and models of the server, without tokenizer and network.

As a program it is the process of `benchmarks.harness.process`; it imports no torch, whose memory would be
counted.
"""

from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

from prometheus_client import CollectorRegistry

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, take_turns
from serve.bundle.bundle import Bundle
from serve.engine.prefill import longest_first
from serve.errors import ServiceError
from serve.observability.logs import configure_logs
from serve.observability.metrics import Metrics
from serve.registry.pipeline import Pipeline
from serve.runtime.cpu import Runtime, Sessions, prefetched_rows
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions
from serve.settings import ServeSettings

# All sentences wait at once; no benchmark has more.
MOST_WAITING_ROWS = 1 << 24


class EngineTranslator:
    """Running engines behind a scheduler.

    Attributes:
        slots: rows of each engine now.
    """

    def __init__(self, folder: str, copies: int, threads: int, slots: int) -> None:
        """Starts the engines.

        Args:
            folder: of the bundle.
            copies: engines.
            threads: of each engine.
            slots: rows of each engine.
        """
        self._bundle = Bundle.open(Path(folder))
        self._sessions = Sessions.load(self._bundle, threads)
        self._copies = copies
        self._threads = threads
        self.slots = slots
        self._pipeline = self._open()

    def translate(
        self,
        sentences: Sequence[SourceSentence],
        beam_size: int,
        batching: Batching,
    ) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence.

        Args:
            sentences: in any order.
            beam_size: 1 is greedy search.
            batching: may tell the rows of each engine, from now on; what runs together, the scheduler decides.

        Raises:
            ServiceError: if an engine fails.
        """
        if batching.unit == "rows" and batching.size != self.slots:
            self.close()
            self.slots = batching.size
            self._pipeline = self._open()
        finished: SimpleQueue[ServiceError | None] = SimpleQueue()
        sequences = [
            DecodingSequence(
                sentence.source_ids,
                _options(sentence, beam_size),
                deadline_seconds=None,
                on_finish=lambda sequence: finished.put(sequence.error),
            )
            for sentence in sentences
        ]
        # As the sequences of one request, which is answered when all are finished.
        self._pipeline.scheduler.submit(longest_first(sequences))
        for _ in sequences:
            error = finished.get()
            if error is not None:
                raise error
        return [sequence.best.target_ids for sequence in sequences]

    def close(self) -> None:
        """Stops the engines."""
        self._pipeline.stop()

    def _open(self) -> Pipeline:
        settings = ServeSettings(
            bundle=self._bundle.folder,
            engines=self._copies,
            threads_per_engine=self._threads,
            slots=self.slots,
            queue_limit=MOST_WAITING_ROWS,
        )
        pipeline = Pipeline(settings, self._bundle, Metrics(CollectorRegistry(), self._bundle.manifest.name))
        prefetched = prefetched_rows(self.slots)
        pipeline.start([Runtime(self._sessions, self.slots, prefetched) for _ in range(self._copies)])
        return pipeline


def _options(sentence: SourceSentence, beam_size: int) -> SearchOptions:
    return SearchOptions(
        min_target_tokens=sentence.min_target_tokens,
        max_target_tokens=sentence.max_target_tokens,
        beam_size=beam_size,
        length_penalty=LENGTH_PENALTY,
    )


if __name__ == "__main__":
    configure_logs("console")  # standard output is for answers
    take_turns(EngineTranslator)
