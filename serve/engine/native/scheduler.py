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
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress

import structlog

from dragoman.serve import errors
from dragoman.serve.engine.native.records import End, Failure, Problem, Token, pack, unpack
from dragoman.serve.native.loop import Loop, LoopConfig, LoopError, LoopLibrary
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.deadline_refusal import ThroughputEstimate
from dragoman.serve.scheduler.end import end_sequence
from dragoman.serve.scheduler.request_scheduler import PACE_SECONDS, RequestScheduler
from dragoman.serve.scheduler.sequence import CANCELLED, EXPIRED, FAILED, QUEUED_TOO_LONG, SHUT_DOWN, DecodingSequence

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
        self.loop = self._create(library, config)
        self._admitting, self._delivering = threading.RLock(), threading.Lock()
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
        with self._admitting:
            self._admission.draining = True
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
            for descriptor in {self._read_end, self._write_end}:
                os.close(descriptor)

    def deliver(self, *, pause: bool = False) -> bool:
        """Delivers all results so far; returns whether tokens of streams were among them. Thread-safe.

        Args:
            pause: lets only ends and first tokens wake the event loop until a call without.
        """
        with self._delivering:
            if self._closed:
                return False
            self._clear_wake()
            streamed = False
            for record in unpack(self.loop.take(pause=pause)):
                streamed = streamed or isinstance(record, Token)
                try:
                    self._deliver(record)
                except Exception:  # a failure must not hold back other results
                    log.exception("delivery_failed")
        self.publish_load()
        return streamed

    def poll(self, timeout_seconds: float) -> None:
        """Delivers results once there are any, or after the timeout; for callers without an event loop."""
        select.select([self._read_end], [], [], timeout_seconds)
        self.deliver()

    def _wake(self) -> None:
        if self._watching is None:
            return
        load = self.loop.load()
        if load.running_rows + load.waiting_rows > self.slots:
            # The engines have work for every slot. Meanwhile more results come, which the event loop handles together.
            # A descriptor that stays readable would call this again at once.
            self._clear_wake()
            self._watching.call_later(BUSY_PAUSE_SECONDS, self._deliver_and_pause)
        else:
            self._deliver_and_pause()

    def _clear_wake(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_end, 4096)

    def _deliver_and_pause(self) -> None:
        self.deliver(pause=True)
        if not self._paused and self._watching is not None:
            self._paused = True
            self._watching.call_later(PACE_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        if self._watching is None:
            return
        if self.deliver(pause=True):
            self._watching.call_later(PACE_SECONDS, self._end_pause)
            return
        self._paused = False
        self.deliver()  # from now on, the next token wakes at once

    def _deliver(self, record: Token | End | Problem) -> None:
        if isinstance(record, Token):
            on_token = self._sequences[record.ticket].on_token
            if on_token is not None:
                on_token(record.token_id)
        elif isinstance(record, End):
            self._deliver_end(record)
        else:
            log.error(record.event, sequences=record.sequences, problem=record.message)

    def _deliver_end(self, end: End) -> None:
        sequence = self._sequences.pop(end.ticket)
        sequence.started_seconds, sequence.encoded_seconds = max(0.0, end.started_seconds), end.encoded_seconds
        sequence.first_token_seconds, sequence.decoded_tokens = end.first_token_seconds, end.decoded_tokens
        sequence.hypotheses = end.hypotheses
        if end.started_seconds >= 0:
            self._metrics.observe_queue(end.started_seconds - sequence.submitted_seconds)
            with self._admitting:
                self._throughput.free(end.finished_seconds, sequence.options.rows)
                if not sequence.cancelled:
                    self._throughput.run(end.finished_seconds - end.started_seconds)
        if end.failure is Failure.INVALID_PROBABILITIES:
            log.error("invalid_probabilities", target_tokens=end.decoded_tokens)
        end_sequence(sequence, self._error(end), self._metrics, end.finished_seconds)

    def _error(self, end: End) -> errors.ServiceError | None:
        """Returns the error of a sequence that has no translation."""
        if end.failure is Failure.NONE:
            return None
        kind, message = ERRORS[end.failure]
        return kind(message)

    def publish_load(self) -> None:
        """Updates the gauges of waiting and running sequences: after each delivery, and before they are read."""
        with self._admitting:  # gauges are set in the order of the changes
            if not self._closed:
                load = self.loop.load()
                self._metrics.set_load(load.waiting, load.running, load.running_rows, load.most_running)
                if not load.waiting:
                    self._throughput.forget()

    def _lock(self) -> AbstractContextManager[object]:
        return self._admitting

    def _rows(self) -> tuple[int, int]:
        load = self.loop.load()
        return load.running_rows, load.waiting_rows

    def _estimate(self, deadline_seconds: float | None, priority: int, now_seconds: float) -> tuple[float, float]:
        if not self._throughput.known:
            return 0.0, 0.0
        rows_ahead = self.loop.rows_before(math.inf if deadline_seconds is None else deadline_seconds, priority)
        return self._throughput.estimate(rows_ahead, now_seconds)

    def _push(self, sequences: Collection[DecodingSequence]) -> None:
        records = b"".join(pack(sequence, id(sequence), id(sequence.fairness_key)) for sequence in sequences)
        self._sequences.update((id(sequence), sequence) for sequence in sequences)
        try:
            self.loop.submit(records)
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
