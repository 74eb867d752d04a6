"""The service's native engines without a service, and the native loop alone.

This thread submits sequences and waits for their results. The loop alone has no scheduler in Python: no admission, no
metrics, and no delivery to requests.
"""

import operator
import os
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.translating import LENGTH_PENALTY, SourceSentence
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.engines import NativeEngine
from dragoman.serve.engine.native.model import loop_config
from dragoman.serve.engine.native.records import Failure, pack, unpack
from dragoman.serve.engine.native.scheduler import NativeScheduler
from dragoman.serve.errors import ServiceError
from dragoman.serve.native.loop import Loop, LoopModel, loop_library
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.sequence import FAILED, DecodingSequence, SequenceGroup, SequenceSpec
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.settings import ServeSettings

# Results wake the thread earlier.
POLL_SECONDS = 10.0
# No benchmark queues more rows.
MAX_WAITING_ROWS = 1 << 24
Order = Callable[[Iterable[DecodingSequence]], list[DecodingSequence]]


def specs_of(sentences: Sequence[SourceSentence], beam_size: int, *, shortlist: bool = False) -> list[SequenceSpec]:
    """Returns sentences with their search options; `shortlist`: chooses tokens of the bundle's shortlist."""
    return [
        SequenceSpec(
            sentence.source_ids,
            SearchOptions(
                min_target_tokens=sentence.min_target_tokens,
                max_target_tokens=sentence.max_target_tokens,
                beam_size=beam_size,
                length_penalty=LENGTH_PENALTY,
                shortlist=shortlist,
            ),
        )
        for sentence in sentences
    ]


def settings_of(bundle: Bundle, *, engines: int, slots: int) -> ServeSettings:
    """Returns the settings of a service with some engines."""
    given = {"bundle": bundle.folder, "engines": engines, "slots": slots, "device": "cpu"}
    return ServeSettings.model_validate(given)


class Phases(NamedTuple):
    """What engines did: seconds of each phase and of the rest, decoder steps, and the sum of their rows."""

    encode: float = 0.0
    step: float = 0.0
    search: float = 0.0
    rest: float = 0.0
    steps: int = 0
    rows: int = 0

    def since(self, before: "Phases") -> "Phases":
        """Returns the difference to an earlier time."""
        return Phases(*map(operator.sub, self, before))


class LiveNativeEngines:
    """Native engines with the scheduler and the metrics of the service."""

    def __init__(self, bundle: Bundle, settings: ServeSettings, model: LoopModel) -> None:
        """Starts the engines of the settings."""
        metrics = Metrics(CollectorRegistry(), bundle.manifest.name)
        self._closing = False
        self._error: ServiceError | None = None
        self._scheduler = NativeScheduler(loop_library(), loop_config(settings, bundle), MAX_WAITING_ROWS, metrics)
        self._engines = NativeEngine.start_all(self._scheduler, model, settings, metrics)

    def submit(
        self, specs: Sequence[SequenceSpec], on_finish: Callable[[list[DecodingSequence]], object], order: Order = list
    ) -> list[DecodingSequence]:
        """Submits sequences together; a call that waits calls `on_finish` with those that have ended."""
        group = SequenceGroup(on_finish, fairness_key=object())
        sequences = [DecodingSequence(*spec, group) for spec in specs]
        self._scheduler.submit(order(sequences))
        return sequences

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        ended: list[DecodingSequence] = []
        sequences = self.submit(specs, ended.extend, order)
        self.wait(lambda: len(ended) == len(sequences))
        failed = [sequence.error for sequence in sequences if sequence.error is not None]
        if failed:
            raise BenchmarkError(str(failed[0])) from failed[0]
        return sequences

    def occupy(self, specs: Iterator[SequenceSpec], count: int) -> None:
        """Keeps `count` sequences of equal length running: whenever one ends, the next one starts.

        The first ones have different lengths, so that their ends are spread evenly over the steps.
        """

        def renew(ended: list[DecodingSequence]) -> None:
            if not self._closing:
                for sequence in ended:
                    self._error = self._error or sequence.error
                    self.submit([next(specs)], renew)

        for number in range(count):
            source_ids, options = next(specs)
            length = 1 + number * options.max_target_tokens // count
            shorter = options._replace(min_target_tokens=length, max_target_tokens=length)
            self.submit([SequenceSpec(source_ids, shorter)], renew)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition holds that changes when a sequence ends; raises the error of an occupying one."""
        while not condition():
            self._scheduler.poll(POLL_SECONDS)
            if self._error is not None:
                raise BenchmarkError(str(self._error))

    @property
    def phases(self) -> Phases:
        """The sums of all engines, by the counters of the loop."""
        found = []
        for number in range(len(self._engines)):
            encode, decode, search, rest = self._scheduler.loop.counts(number)
            found.append(Phases(encode.seconds, decode.seconds, search, rest, sum(decode.by_seconds), decode.sequences))
        return Phases(*map(sum, zip(*found, strict=True)))

    def close(self) -> None:
        """Stops the engines; sequences that still run end with an error."""
        self._closing = True
        for engine in self._engines:
            engine.stop()
        self._scheduler.close()


class BareLoop:
    """The engines of a native loop, which this thread fills itself."""

    def __init__(self, bundle: Bundle, settings: ServeSettings, model: LoopModel) -> None:
        """Starts the engines of the settings."""
        self._engines = settings.engine_count
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._loop = Loop.create(loop_library(), loop_config(settings, bundle), self._write_end)
        for number in range(self._engines):
            self._loop.add_engine(model, settings.slots)
            self._loop.start(number)

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        group = SequenceGroup(lambda _: None)
        sequences = [DecodingSequence(*spec, group) for spec in specs]
        by_ticket = {id(sequence): sequence for sequence in sequences}
        self._loop.submit(pack(order(sequences)))
        while by_ticket:
            select.select([self._read_end], [], [])
            os.read(self._read_end, 4096)
            if any(failure is not Failure.NONE for _, failure in unpack(self._loop.take(pause=False), by_ticket).ended):
                raise BenchmarkError(FAILED)
        return sequences

    def close(self) -> None:
        """Stops the engines."""
        self._loop.drain()
        for number in range(self._engines):
            self._loop.stop(number, POLL_SECONDS)
        self._loop.close()
        os.close(self._read_end)
        os.close(self._write_end)
