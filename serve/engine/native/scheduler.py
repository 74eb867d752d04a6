"""The scheduler in front of native engines: requests call it, the loop decides which sequences start, and when.

The loop reports through a descriptor that the event loop watches. One wake-up delivers all results so far; tokens of
streams wake it at most once per `PACE_SECONDS`, except for first tokens. While all slots are taken and sequences wait,
results are delivered at most once per `BUSY_PAUSE_SECONDS`: fewer wake-ups take less time from the engines.
"""

import asyncio
import math
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import structlog

from dragoman.serve import errors
from dragoman.serve.engine.native.records import Failure, pack, unpack
from dragoman.serve.native.loop import Loop, LoopConfig, LoopError, LoopLibrary
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.end import end_sequences
from dragoman.serve.scheduler.request_scheduler import PACE_SECONDS, RequestScheduler, ThroughputEstimate
from dragoman.serve.scheduler.sequence import (
    CANCELLED,
    EXPIRED,
    FAILED,
    QUEUED_TOO_LONG,
    SHUT_DOWN,
    DecodingSequence,
    SequenceState,
)

ERRORS: dict[Failure, tuple[type[errors.ServiceError], str]] = {
    Failure.CANCELLED: (errors.CancelledError, CANCELLED),
    Failure.DEADLINE: (errors.DeadlineExceededError, EXPIRED),
    Failure.QUEUE_TIMEOUT: (errors.QueueTimeoutError, QUEUED_TOO_LONG),
    Failure.DRAINING: (errors.DrainingError, SHUT_DOWN),
    Failure.INTERNAL: (errors.InternalError, FAILED),
    Failure.INVALID_PROBABILITIES: (errors.InternalError, FAILED),
}

# Results wait this long while all slots are taken and sequences wait.
BUSY_PAUSE_SECONDS = 0.003

log = structlog.get_logger(__name__)


class NativeScheduler(RequestScheduler):
    """The queue of the loop, and its sequences until their results have been delivered."""

    paced = True
    _closed = True

    def __init__(
        self,
        library: LoopLibrary,
        config: LoopConfig,
        queue_limit: int,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        *,
        queue_timeout_seconds: float | None = None,
    ) -> None:
        """Starts empty and open.

        Args:
            config: slots, engines, budgets and the model.
            queue_limit: maximum of waiting rows while every slot is taken.
            clock: that of the loop.
            queue_timeout_seconds: longest wait before the start; None: until the deadline.
        """
        super().__init__(
            slots=config.engine_rows * config.engines,
            engines=config.engines,
            queue_limit=queue_limit,
            metrics=metrics,
            clock=clock,
            queue_timeout_seconds=queue_timeout_seconds,
        )
        self._read_end, self._write_end = _wake_descriptors()
        try:
            self.loop = self._create(library, config)
        except LoopError:
            self._close_descriptors()
            raise
        self._delivering = threading.Lock()
        # Sequences that wait, run or are not delivered, by ticket, which is the identity of the sequence.
        self._sequences: dict[int, DecodingSequence] = {}
        self._closed = False
        self._watching: asyncio.AbstractEventLoop | None = None
        self._paused = False
        self._throughput = ThroughputEstimate(self.slots)

    def __del__(self) -> None:
        self._free()

    def _create(self, library: LoopLibrary, config: LoopConfig) -> Loop:
        return Loop.create(library, config, self._write_end)

    @property
    def waiting(self) -> int:
        """Number of sequences in the queue."""
        return 0 if self._closed else self.loop.load().waiting

    @property
    def oldest_seconds(self) -> float:
        """Age of the longest waiting sequence; 0: nothing waits."""
        oldest_seconds = math.inf if self._closed else self.loop.oldest_seconds()
        return self._clock() - oldest_seconds if math.isfinite(oldest_seconds) else 0.0

    @property
    def running(self) -> int:
        """Number of sequences in engines."""
        return 0 if self._closed else self.loop.load().running

    @property
    def running_rows(self) -> int:
        """Rows of the running sequences."""
        return 0 if self._closed else self.loop.load().running_rows

    @property
    def idle(self) -> bool:
        """True if nothing waits or runs, and every result has been delivered."""
        return not self._sequences

    def cancel(self, sequence: DecodingSequence) -> None:
        """Releases a sequence of a disconnected client within one step; does nothing if it has ended."""
        sequence.cancelled_seconds = self._clock()
        sequence.cancelled = True
        if not self._closed:
            self.loop.cancel(id(sequence))

    def drain(self) -> None:
        """Refuses new sequences from now on; accepted ones continue."""
        with self._lock:
            self._draining = True
            if not self._closed:
                self.loop.drain()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Delivers results in the event loop from now on, until `close`. Called in its thread."""
        self._watching = loop
        loop.add_reader(self._read_end, self._wake)

    def close(self) -> None:
        """Frees the loop, whose engines have been stopped. Called in the thread of the event loop."""
        self.deliver()
        if self._watching is not None:
            self._watching.remove_reader(self._read_end)
            self._watching = None
        self._free()

    def _free(self) -> None:
        if not self._closed:
            self._closed = True
            self.loop.close()
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptor in {self._read_end, self._write_end}:  # an eventfd is both ends
            os.close(descriptor)

    def deliver(self, *, pause: bool = False) -> bool:
        """Delivers all results so far; returns whether tokens of streams were among them. Thread-safe.

        `pause`: lets only ends and first tokens wake the event loop until a call without.
        """
        with self._delivering:
            if self._closed:
                return False
            waiting = self.loop.load().waiting
            results = unpack(self.loop.take(pause=pause), self._sequences)
            for sequence, token_id in results.tokens:
                if sequence.on_token is not None:
                    sequence.on_token(token_id)
            if results.ended:
                self._end(results.ended, waiting)
            for event, problem, count in results.problems:
                log.error(event, sequences=count, problem=problem)
        return bool(results.tokens)

    def poll(self, timeout_seconds: float) -> None:
        """Delivers results once there are any, or after the timeout; for callers without an event loop."""
        select.select([self._read_end], [], [], timeout_seconds)
        self._clear_wake()
        self.deliver()

    def _wake(self) -> None:
        if self._watching is None:
            return
        # A descriptor that stays readable would call this again at once.
        self._clear_wake()
        load = self.loop.load()
        if load.running_rows + load.waiting_rows > self.slots:
            # The engines have work for every slot. Meanwhile more results come, which the event loop handles together.
            self._watching.call_later(BUSY_PAUSE_SECONDS, self._deliver_and_pause)
        else:
            self._deliver_and_pause()

    def _clear_wake(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_end, 4096)

    def _deliver_and_pause(self) -> None:
        """Delivers results; after tokens of streams, the next ones come after a pause."""
        if self.deliver(pause=self._paused) and not self._paused and self._watching is not None:
            self._paused = True
            self.deliver(pause=True)
            self._watching.call_later(PACE_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        if self._watching is None:
            return
        if self.deliver(pause=True):
            self._watching.call_later(PACE_SECONDS, self._end_pause)
            return
        self._paused = False
        self.deliver()  # from now on, the next token wakes at once

    def _end(self, ended: Sequence[tuple[DecodingSequence, Failure]], waiting: int) -> None:
        """Ends sequences whose results came together, while others may wait."""
        with self._lock:
            for sequence, failure in ended:
                if failure is not Failure.NONE:
                    sequence.error = self._error(sequence, failure)
                if sequence.state is SequenceState.RUNNING:
                    if waiting:
                        self._throughput.free(sequence.finished_seconds, sequence.options.rows)
                    if not sequence.cancelled:
                        self._throughput.run(sequence.finished_seconds - sequence.started_seconds)
            if not waiting:
                self._throughput.forget()
        end_sequences([sequence for sequence, _ in ended], self._metrics)

    def _error(self, sequence: DecodingSequence, failure: Failure) -> errors.ServiceError:
        if failure is Failure.INVALID_PROBABILITIES:
            log.error("invalid_probabilities", target_tokens=sequence.decoded_tokens)
        kind, message = ERRORS[failure]
        return kind(message)

    def publish_load(self) -> None:
        """Updates the gauges of waiting and running sequences, before they are read."""
        with self._lock:  # gauges are set in the order of the changes
            if not self._closed:
                load = self.loop.load()
                self._metrics.set_load(load.waiting, load.running, load.running_rows, load.most_running)
                if not load.waiting:
                    self._throughput.forget()

    def _rows(self) -> tuple[int, int]:
        load = self.loop.load()
        return load.running_rows, load.waiting_rows

    def _estimate(self, deadline_seconds: float | None, priority: int, now_seconds: float) -> tuple[float, float]:
        if not self._throughput.known:
            return 0.0, 0.0
        rows_ahead = self.loop.rows_before(math.inf if deadline_seconds is None else deadline_seconds, priority)
        return self._throughput.estimate(rows_ahead, now_seconds)

    def _push(self, sequences: Collection[DecodingSequence]) -> None:
        self._sequences.update(zip(map(id, sequences), sequences, strict=True))
        try:
            self.loop.submit(pack(sequences))
        except LoopError:
            for sequence in sequences:
                del self._sequences[id(sequence)]
            raise


def _wake_descriptors() -> tuple[int, int]:
    """Returns a descriptor to read and one to write, perhaps the same; neither blocks."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return descriptor, descriptor
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    return read_end, write_end
