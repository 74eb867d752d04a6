"""The service's native engines without a service, and the native loop alone.

This thread submits sequences and waits for their results. The loop alone has no scheduler in Python: no admission, no
metrics, and no delivery to requests.
"""

import os
import select
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from benchmarks.systems.engine import MOST_WAITING_ROWS, Order, raise_error
from serve.bundle.bundle import Bundle
from serve.engine.native.engine import NativeEngine
from serve.engine.native.model import loop_config, loop_library
from serve.engine.native.records import End, Failure, pack, unpack
from serve.engine.native.scheduler import NativeScheduler
from serve.errors import InternalError
from serve.native.loop import Loop, LoopModel
from serve.observability.metrics import Metrics
from serve.scheduler.sequence import FAILED, DecodingSequence, SequenceSpec
from serve.settings import ServeSettings

# Results wake the thread earlier.
POLL_SECONDS = 10.0


def settings_of(bundle: Bundle, *, engines: int, slots: int, prefill_token_budget: int | None) -> ServeSettings:
    """Returns the settings of a service with so many engines; the default budget is the server's."""
    budget = {} if prefill_token_budget is None else {"prefill_token_budget": prefill_token_budget}
    return ServeSettings.model_validate(
        {"bundle": bundle.folder, "engines": engines, "slots": slots, "device": "cpu", **budget}
    )


class PhaseSeconds(NamedTuple):
    """What an engine did since its start, in seconds, and the number of decoder steps."""

    encode: float
    step: float
    search: float
    steps: int


class LiveNativeEngines:
    """Native engines with the scheduler and the metrics of the service."""

    def __init__(self, bundle: Bundle, settings: ServeSettings, model: LoopModel) -> None:
        """Starts the engines of the settings."""
        metrics = Metrics(CollectorRegistry(), bundle.manifest.name)
        self.slots = settings.slots
        self._scheduler = NativeScheduler(loop_library(), loop_config(settings, bundle), MOST_WAITING_ROWS, metrics)
        self._engines = NativeEngine.start_all(self._scheduler, model, settings, metrics)

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        sequences = [DecodingSequence(*spec, None, lambda _: None) for spec in specs]
        self._scheduler.submit(order(sequences))
        while not self._scheduler.idle:
            self._scheduler.poll(POLL_SECONDS)
        for sequence in sequences:
            raise_error(sequence)
        return sequences

    @property
    def phases(self) -> PhaseSeconds:
        """The phases of the first engine, by the counters of the loop."""
        encode, decode, search_seconds = self._scheduler.loop.counts(0)
        return PhaseSeconds(encode.seconds, decode.seconds, search_seconds, sum(decode.by_seconds))

    def close(self) -> None:
        """Stops the engines; sequences that still run end with an error."""
        for engine in self._engines:
            engine.stop()
        self._scheduler.close()


class BareLoop:
    """The engines of a native loop, which this thread fills itself."""

    def __init__(self, bundle: Bundle, settings: ServeSettings, model: LoopModel) -> None:
        """Starts the engines of the settings."""
        self.slots = settings.slots
        self._engines = settings.engine_count
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._loop = Loop.create(loop_library(), loop_config(settings, bundle), self._write_end)
        for number in range(self._engines):
            self._loop.add_engine(model, settings.slots)
            self._loop.start(number)

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        sequences = [DecodingSequence(*spec, None, lambda _: None) for spec in specs]
        by_ticket = {id(each): each for each in sequences}
        self._loop.submit(b"".join(pack(each, id(each), 0) for each in order(sequences)))
        for end in self._ends(len(sequences)):
            if end.failure is not Failure.NONE:
                raise InternalError(FAILED)
            by_ticket[end.ticket].hypotheses = end.hypotheses
        return sequences

    def close(self) -> None:
        """Stops the engines."""
        self._loop.drain()
        for number in range(self._engines):
            self._loop.stop(number, POLL_SECONDS)
        self._loop.close()
        os.close(self._read_end)
        os.close(self._write_end)

    def _ends(self, count: int) -> Iterator[End]:
        while count:
            select.select([self._read_end], [], [])
            os.read(self._read_end, 4096)
            for record in unpack(self._loop.take(pause=False)):
                if isinstance(record, End):
                    count -= 1
                    yield record
