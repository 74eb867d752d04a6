"""Decides who runs: a bounded first-in-first-out queue in front of the slots of one or more engines.

The event loop submits, each engine admits into its free slots and reports what ended. Every sequence that was accepted
is finished exactly once. Knows neither asyncio nor the model; every method may be called from any thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection

from serve.errors import DrainingError, QueueFullError, ServiceError
from serve.metrics import Metrics
from serve.sequence import Sequence, SequenceState


class Scheduler:
    """The queue and the count of what runs. One lock guards both; no sequence is finished while it is held."""

    def __init__(
        self,
        slots: int,
        queue_limit: int,
        prefill_token_budget: int,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts empty and open.

        Args:
            slots: rows of all engines together.
            queue_limit: the most sequences that may wait while every slot is taken.
            prefill_token_budget: the most source tokens that one prefill computes, padding included, so that running
                rows do not stall; a sequence longer than that is encoded alone.
            metrics: where load, queue times and endings are counted.
            clock: the time in seconds, on the clock of the sequences' deadlines.
        """
        self._capacity = slots + queue_limit
        self._prefill_token_budget = prefill_token_budget
        self._metrics = metrics
        self._clock = clock
        self._waiting: deque[Sequence] = deque()
        self._running = 0
        self._draining = False
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences that an engine holds."""
        return self._running

    @property
    def idle(self) -> bool:
        """True if nothing waits and nothing runs."""
        with self._changed:
            return not self._waiting and not self._running

    def submit(self, sequences: Collection[Sequence]) -> None:
        """Queues all of the sequences, or none.

        Raises:
            DrainingError: after `drain`.
            QueueFullError: if more would run and wait than there are slots and places in the queue.
        """
        with self._changed:
            if self._draining:
                raise DrainingError("the server is shutting down")
            if self._running + len(self._waiting) + len(sequences) > self._capacity:
                raise QueueFullError(
                    f"{len(sequences)} texts do not fit: {self._running} run and {len(self._waiting)} wait, "
                    f"expected at most {self._capacity} together; try again later"
                )
            now_seconds = self._clock()
            for sequence in sequences:
                sequence.submitted_seconds = now_seconds
            self._waiting.extend(sequences)
            self._publish()

    def admit(self, free_slots: int) -> list[Sequence]:
        """Hands out the sequences that start now, in the order of their submission.

        Sequences that nobody waits for any more are finished first, also when no slot is free.

        Args:
            free_slots: the most sequences that the calling engine can take; it calls `finish` for each one it gets.
        """
        with self._changed:
            if not self._waiting:
                return []
            now_seconds = self._clock()
            abandoned = self._remove_abandoned(now_seconds)
            admitted = self._take(free_slots)
            for sequence in admitted:
                sequence.state = SequenceState.RUNNING
                sequence.started_seconds = now_seconds
                self._metrics.observe_queue(now_seconds - sequence.submitted_seconds)
            if abandoned or admitted:
                self._publish()
        for sequence, error in abandoned:
            self._end(sequence, error)
        return admitted

    def finish(self, sequence: Sequence, error: ServiceError | None = None) -> None:
        """Ends a running sequence, with its translation or with an error."""
        with self._changed:
            self._running -= 1
            self._publish()
        self._end(sequence, error)

    def wait(self) -> bool:
        """Blocks until a sequence waits; returns False if none ever will again, because the scheduler is drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._draining)
            return bool(self._waiting)

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Blocks until nothing waits and nothing runs; returns False if that takes longer than the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.idle, timeout_seconds)

    def drain(self) -> None:
        """Refuses new sequences from now on; those already accepted go on."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()

    def fail_all(self, error: ServiceError) -> None:
        """Ends every waiting sequence with the error; running ones go on."""
        with self._changed:
            failed = list(self._waiting)
            self._waiting.clear()
            self._publish()
        for sequence in failed:
            self._end(sequence, error)

    def _remove_abandoned(self, now_seconds: float) -> list[tuple[Sequence, ServiceError]]:
        kept: deque[Sequence] = deque()
        abandoned: list[tuple[Sequence, ServiceError]] = []
        for sequence in self._waiting:
            error = sequence.abandonment(now_seconds)
            if error is None:
                kept.append(sequence)
            else:
                abandoned.append((sequence, error))
        self._waiting = kept
        return abandoned

    def _take(self, free_slots: int) -> list[Sequence]:
        taken: list[Sequence] = []
        longest = 0
        while self._waiting and len(taken) < free_slots:
            longest = max(longest, len(self._waiting[0].source_ids))
            if taken and (len(taken) + 1) * longest > self._prefill_token_budget:
                break
            taken.append(self._waiting.popleft())
        self._running += len(taken)
        return taken

    def _publish(self) -> None:
        # Under the lock: the gauges must not be set in another order than the counts changed.
        self._metrics.set_load(len(self._waiting), self._running)
        self._changed.notify_all()

    def _end(self, sequence: Sequence, error: ServiceError | None) -> None:
        if error is not None:
            self._metrics.observe_finish(error.reason, wasted_tokens=sequence.decoded_tokens)
        elif sequence.hypotheses:
            self._metrics.observe_finish(sequence.best.finish_reason, wasted_tokens=0)
        sequence.finish(self._clock(), error)
