"""Decides who runs: a bounded, ordered queue in front of the rows of one or more engines.

The event loop submits, each engine admits into its free rows and reports what ended. Every sequence that was accepted
is finished exactly once. `serve.scheduler.admission` says who may come in, `serve.scheduler.queue` knows the order,
`serve.scheduler.admission` counts; knows neither asyncio nor the model; every method may be called from any thread.
"""

import threading
import time
from collections.abc import Callable, Collection

from serve.errors import CancelledError, DeadlineExceededError, ServiceError
from serve.observability.metrics import Metrics
from serve.scheduler.admission import Admission, Reservation, Running, ThroughputEstimate
from serve.scheduler.queue import FairQueue
from serve.scheduler.sequence import DecodingSequence, SequenceState


class Scheduler:
    """The queue and the count of what runs. One lock guards both; no sequence is finished while it is held."""

    def __init__(
        self,
        slots: int,
        queue_limit: int,
        prefill_token_budget: int,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        *,
        engines: int = 1,
        running_token_budget: int | None = None,
        queue_timeout_seconds: float | None = None,
    ) -> None:
        """Starts empty and open.

        Args:
            slots: rows of all engines together.
            queue_limit: the most rows that may wait while every slot is taken.
            prefill_token_budget: the most source tokens that start at once in one engine, so that its running rows do
                not stall; a sequence longer than that starts alone.
            metrics: where load, queue times and endings are counted.
            clock: the time in seconds, on the clock of the sequences' deadlines.
            engines: how many share the slots, each with as many as any other.
            running_token_budget: the most tokens that run together, counted as rows x (source tokens + longest target);
                None: no bound. A sequence that is larger runs alone.
            queue_timeout_seconds: how long a sequence may wait before it starts; None: as long as its deadline lets it.
        """
        self._engine_rows = slots // engines
        self._engines = engines
        self._prefill_token_budget = prefill_token_budget
        self._metrics = metrics
        self._clock = clock
        # A sequence that is too wide for the free rows lets as many pass as an engine has, about one turn of its rows.
        self._waiting = FairQueue(pass_limit_rows=self._engine_rows)
        self._running = Running(running_token_budget)
        self._throughput = ThroughputEstimate(slots)
        self._admission = Admission(slots + queue_limit, self._waiting, self._running, self._throughput)
        self._queue_timeout_seconds = queue_timeout_seconds
        self._stalled = False
        self._changed = threading.Condition()

    @property
    def slots(self) -> int:
        """Rows of all engines together."""
        return self._engine_rows * self._engines

    @property
    def capacity_rows(self) -> int:
        """The most rows that run and wait together."""
        return self._admission.capacity_rows

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        with self._changed:
            return len(self._waiting)

    @property
    def oldest_seconds(self) -> float:
        """How long the sequence waits that waits longest; 0: nothing waits."""
        with self._changed:
            oldest_seconds = self._waiting.oldest_seconds
        return 0.0 if oldest_seconds is None else self._clock() - oldest_seconds

    @property
    def running(self) -> int:
        """Sequences that an engine holds."""
        return self._running.sequences

    @property
    def running_rows(self) -> int:
        """Rows of these sequences."""
        return self._running.rows

    @property
    def idle(self) -> bool:
        """True if nothing waits and nothing runs."""
        with self._changed:
            return not self._waiting and not self._running.sequences

    def reserve(
        self, rows: int, deadline_seconds: float | None = None, priority: int = 0, *, patient: bool = False
    ) -> Reservation:
        """Keeps rows for sequences that are still to be made.

        Args:
            rows: how many; the reservation may be resized.
            deadline_seconds: when the client stops waiting (monotonic clock); None: never.
            priority: that of the sequences.
            patient: whether they may wait for longer than the queue's timeout.

        Raises:
            DrainingError: after `drain`.
            DeadlineExceededError: if the deadline has passed.
            QueueFullError: if more rows would run and wait than there are slots and places in the queue.
            DeadlineUnmeetableError: if the queue moves so slowly that hardly anything would be translated in time.
            QueueTimeoutError: if it moves so slowly that nothing would start in time.
        """
        with self._changed:
            self._admission.check_room(rows)
            timeout_seconds = None if patient else self._queue_timeout_seconds
            self._admission.check_wait(self._clock(), deadline_seconds, priority, timeout_seconds)
            self._admission.reserved_rows += rows
        return Reservation(rows, self._resize)

    def submit(
        self, sequences: Collection[DecodingSequence], reservation: Reservation | None = None, *, patient: bool = False
    ) -> None:
        """Queues all of the sequences, or none.

        Args:
            sequences: all of one request.
            reservation: what was kept for them; they take their rows from it, and it is used up.
            patient: whether they may wait for longer than the queue's timeout.

        Raises:
            ValueError: if a sequence takes more rows than an engine has; whoever makes options must not let it through.
            DrainingError: after `drain`.
            QueueFullError: if more rows would run and wait than there are slots and places in the queue.
        """
        rows = [sequence.options.rows for sequence in sequences]
        if max(rows, default=0) > self._engine_rows:
            raise ValueError(
                f"a sequence of {max(rows)} rows, expected at most those of an engine, {self._engine_rows}"
            )
        with self._changed:
            reserved_rows = 0 if reservation is None else reservation.rows
            self._admission.check_room(sum(rows) - reserved_rows)
            if reservation is not None:
                reservation.rows = 0
                self._admission.reserved_rows -= reserved_rows
            now_seconds = self._clock()
            for sequence in sequences:
                sequence.submitted_seconds = now_seconds
                if self._queue_timeout_seconds is not None and not patient:
                    sequence.start_by_seconds = now_seconds + self._queue_timeout_seconds
                self._waiting.push(sequence)
            self._publish()

    def cancel(self, sequence: DecodingSequence) -> None:
        """Lets go of a sequence whose client went away, within one step; does nothing if it has ended already."""
        sequence.cancelled_seconds = self._clock()
        sequence.cancelled = True
        self._waiting.notice_cancelled()

    def admit(self, free_rows: int, running_rows: int, prefetched_rows: int = 0) -> list[DecodingSequence]:
        """Hands out the sequences that start now, in the order of the queue.

        Sequences that nobody waits for any more are finished first, also when no row is free.

        Args:
            free_rows: rows that the calling engine can give away; it calls `finish` for each sequence that it gets.
            running_rows: rows that its sequences take already.
            prefetched_rows: when the free rows are given away, so many further sequences of one row each start with
            those,
                to be encoded in their company and wait inside the engine for its next free rows.
        """
        with self._changed:
            if not self._waiting:
                return []
            now_seconds = self._clock()
            abandoned = self._waiting.pop_abandoned(now_seconds)
            admitted = self._take(free_rows, running_rows, prefetched_rows)
            for sequence in admitted:
                sequence.state = SequenceState.RUNNING
                sequence.started_seconds = now_seconds
                self._metrics.observe_queue(now_seconds - sequence.submitted_seconds)
            if abandoned or admitted:
                self._publish()
            if not admitted and not running_rows:
                self._stalled = True
        for sequence, error in abandoned:
            self._end(sequence, error)
        return admitted

    def finish(self, sequence: DecodingSequence, error: ServiceError | None = None) -> None:
        """Ends a running sequence, with its translation or with an error; does nothing if it has ended already.

        Who ends it twice is an engine that was left behind because it hung, and goes on after all.
        """
        with self._changed:
            if sequence.state is SequenceState.FINISHED:
                return
            self._running.remove(sequence)
            now_seconds = self._clock()
            self._throughput.free(now_seconds, sequence.options.rows)
            if not sequence.cancelled:
                self._throughput.run(now_seconds - sequence.started_seconds)
            self._publish()
        self._end(sequence, error)

    def wait(self) -> bool:
        """Blocks an idle engine until something may start; returns False if nothing ever will again, after `drain`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stalled if self._waiting else self._admission.draining)
            return bool(self._waiting)

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Blocks until nothing waits and nothing runs; returns False if that takes longer than the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.idle, timeout_seconds)

    def drain(self) -> None:
        """Refuses new sequences from now on; those already accepted go on."""
        with self._changed:
            self._admission.draining = True
            self._publish()

    def fail_all(self, error: ServiceError) -> None:
        """Ends every waiting sequence with the error; running ones go on."""
        with self._changed:
            failed = self._waiting.clear()
            self._publish()
        for sequence in failed:
            self._end(sequence, error)

    def _resize(self, reservation: Reservation, rows: int, spare_rows: int) -> None:
        with self._changed:
            more_rows = rows - reservation.rows
            if more_rows > 0:
                self._admission.check_room(more_rows + spare_rows)
            reservation.rows = rows
            self._admission.reserved_rows += more_rows

    def _take(self, free_rows: int, running_rows: int, prefetched_rows: int) -> list[DecodingSequence]:
        # An engine that has its share of all rows leaves the rest to the others. While something waits, one of them
        # has less than its share, thus more free rows than any that has it: whatever fits anywhere fits there, and that
        # engine is asking within one step. So no row idles for longer, and at most one sequence exceeds the share.
        all_rows = self._running.rows + self._waiting.rows
        taken: list[DecodingSequence] = []
        prefill_tokens = 0

        def may_start(sequence: DecodingSequence) -> bool:
            within_prefill = prefill_tokens + len(sequence.source_ids) <= self._prefill_token_budget
            return (within_prefill or not taken) and self._running.has_room(sequence)

        while running_rows * self._engines < all_rows:
            sequence = self._waiting.pop(free_rows or min(1, prefetched_rows), may_start)
            if sequence is None:
                break
            rows = sequence.options.rows
            if rows > 1:
                prefetched_rows = 0  # in an engine the last rows wait, and none of these may be a wide sequence's
            self._running.add(sequence)
            taken.append(sequence)
            prefill_tokens += len(sequence.source_ids)
            if free_rows:
                free_rows -= rows
            else:
                prefetched_rows -= 1
            running_rows += rows
        return taken

    def _publish(self) -> None:
        # Under the lock: the gauges must not be set in another order than the counts changed.
        self._metrics.set_load(len(self._waiting), self._running.sequences, self._running.rows)
        if not self._waiting:
            self._throughput.forget()
        # An idle engine that got nothing, because the token budget is used up, may get something after any change.
        self._stalled = False
        self._changed.notify_all()

    def _end(self, sequence: DecodingSequence, error: ServiceError | None) -> None:
        now_seconds = self._clock()
        if error is not None:
            self._metrics.observe_finish(error.reason, wasted_tokens=sequence.decoded_tokens)
            if isinstance(error, CancelledError):
                self._metrics.observe_release(error.reason, now_seconds - sequence.cancelled_seconds)
            if isinstance(error, DeadlineExceededError) and sequence.deadline_seconds is not None:
                self._metrics.observe_release(error.reason, now_seconds - sequence.deadline_seconds)
        elif sequence.hypotheses:
            self._metrics.observe_finish(sequence.best.finish_reason, wasted_tokens=0)
            self._metrics.observe_phases(
                encode_seconds=sequence.encoded_seconds - sequence.started_seconds,
                decode_seconds=now_seconds - sequence.encoded_seconds,
            )
        sequence.finish(now_seconds, error)
