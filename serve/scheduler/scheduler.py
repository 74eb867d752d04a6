"""The scheduler: a bounded, ordered queue in front of the rows of one or more engines.

The event loop submits sequences; each engine admits them into its free rows and reports finished ones. Every accepted
sequence is finished exactly once. Thread-safe; independent of asyncio and of the model.
"""

import threading
import time
from collections.abc import Callable, Collection

from serve.errors import CancelledError, DeadlineExceededError, ServiceError
from serve.observability.metrics import Metrics
from serve.scheduler.admission import Admission, Reservation, Running
from serve.scheduler.deadline_refusal import ThroughputEstimate, check_wait
from serve.scheduler.queue import FairQueue
from serve.scheduler.sequence import DecodingSequence, SequenceState


class Scheduler:
    """The queue and the counts of running sequences. One lock guards both; sequences finish outside of it."""

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
            queue_limit: maximum of waiting rows while every slot is taken.
            prefill_token_budget: maximum of source tokens that start at once in one engine, so that running rows do not
                stall; a longer sequence starts alone.
            metrics: of the model.
            clock: returns the time in seconds, on the clock of the deadlines.
            engines: number of engines that share the slots equally.
            running_token_budget: maximum of tokens that run together, counted as rows x (source tokens + longest
                target); None: no bound. A larger sequence runs alone.
            queue_timeout_seconds: longest wait before the start; None: until the deadline.
        """
        self._engine_rows = slots // engines
        self._engines = engines
        self._prefill_token_budget = prefill_token_budget
        self._metrics = metrics
        self._clock = clock
        # As many rows may pass a wide sequence as an engine has: about one turn of its rows.
        self._waiting = FairQueue(pass_limit_rows=self._engine_rows)
        self._running = Running(running_token_budget)
        self._throughput = ThroughputEstimate(slots)
        self._admission = Admission(slots + queue_limit, self._waiting, self._running)
        self._queue_timeout_seconds = queue_timeout_seconds
        self._stalled = False
        self._changed = threading.Condition()

    @property
    def slots(self) -> int:
        """Rows of all engines together."""
        return self._engine_rows * self._engines

    @property
    def capacity_rows(self) -> int:
        """Maximum of rows that run and wait together."""
        return self._admission.capacity_rows

    @property
    def waiting(self) -> int:
        """Number of sequences in the queue."""
        with self._changed:
            return len(self._waiting)

    @property
    def oldest_seconds(self) -> float:
        """Age of the longest waiting sequence; 0: nothing waits."""
        with self._changed:
            oldest_seconds = self._waiting.oldest_seconds
        return 0.0 if oldest_seconds is None else self._clock() - oldest_seconds

    @property
    def running(self) -> int:
        """Number of sequences in engines."""
        return self._running.sequences

    @property
    def running_rows(self) -> int:
        """Rows of the running sequences."""
        return self._running.rows

    @property
    def idle(self) -> bool:
        """True if nothing waits and nothing runs."""
        with self._changed:
            return not self._waiting and not self._running.sequences

    def reserve(
        self, rows: int, deadline_seconds: float | None = None, priority: int = 0, *, patient: bool = False
    ) -> Reservation:
        """Reserves rows for sequences that are not tokenized yet.

        Args:
            rows: number of rows; the reservation can be resized.
            deadline_seconds: on the monotonic clock; None: none.
            priority: of the sequences.
            patient: exempts the sequences from the queue timeout.

        Raises:
            DrainingError: after `drain`.
            DeadlineExceededError: if the deadline has passed.
            QueueFullError: if running and waiting rows would exceed `capacity_rows`.
            DeadlineUnmeetableError: if wait and run are estimated to end after the deadline.
            QueueTimeoutError: if the wait is estimated to exceed the queue timeout.
        """
        with self._changed:
            self._admission.check_room(rows)
            timeout_seconds = None if patient else self._queue_timeout_seconds
            rows_ahead = self._waiting.rows_before(deadline_seconds, priority)
            check_wait(self._throughput, rows_ahead, self._clock(), deadline_seconds, timeout_seconds)
            self._admission.reserved_rows += rows
        return Reservation(rows, self._resize)

    def submit(
        self, sequences: Collection[DecodingSequence], reservation: Reservation | None = None, *, patient: bool = False
    ) -> None:
        """Queues all sequences of a request, or none.

        Args:
            sequences: all sequences of the request.
            reservation: rows reserved for the sequences, which take their place; empty afterwards.
            patient: exempts the sequences from the queue timeout.

        Raises:
            ValueError: if a sequence takes more rows than an engine has; the request should have been refused.
            DrainingError: after `drain`.
            QueueFullError: if running and waiting rows would exceed `capacity_rows`.
        """
        rows = [sequence.options.rows for sequence in sequences]
        if max(rows, default=0) > self._engine_rows:
            raise ValueError(f"sequence: {max(rows)} rows, expected at most {self._engine_rows}, the rows of an engine")
        with self._changed:
            reserved_rows = 0 if reservation is None else reservation.rows
            if sum(rows) > reserved_rows:
                self._admission.check_room(sum(rows) - reserved_rows)
            else:
                self._admission.check_open()  # the reservation has checked the room
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
        """Releases a sequence of a disconnected client within one step; does nothing if it has ended."""
        sequence.cancelled_seconds = self._clock()
        sequence.cancelled = True
        self._waiting.notice_cancelled()

    def admit(self, free_rows: int, running_rows: int, prefetched_rows: int = 0) -> list[DecodingSequence]:
        """Returns the sequences that start now, in the order of the queue.

        Finishes canceled and expired sequences first, also when no row is free.

        Args:
            free_rows: free rows of the calling engine, which calls `finish` for each returned sequence.
            running_rows: rows of the engine's running sequences.
            prefetched_rows: once the free rows are taken, so many further sequences of one row each may start too. They
                are encoded with the others and wait in the engine for its next free rows.
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
        """Finishes a running sequence, with its translation or an error; does nothing if it has ended.

        An engine that hung and was abandoned may finish a sequence a second time when it continues.
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
        """Blocks an idle engine until a sequence may start; returns False after `drain` if none is left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stalled if self._waiting else self._admission.draining)
            return bool(self._waiting)

    def drain(self) -> None:
        """Refuses new sequences from now on; accepted ones continue."""
        with self._changed:
            self._admission.draining = True
            self._publish()

    def fail_all(self, error: ServiceError) -> None:
        """Finishes every waiting sequence with the error; running ones continue."""
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
        # An engine with its share of all rows leaves the rest to the others. While a sequence waits, some engine has
        # less than its share, thus more free rows than any engine with its share: what fits anywhere fits there, and
        # that engine calls within one step. So no row idles longer, and at most one sequence exceeds the share.
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
                prefetched_rows = 0  # prefetched rows come last, and a wide sequence is never prefetched
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
        # Under the lock, so that gauges are set in the order of the changes.
        self._metrics.set_load(len(self._waiting), self._running.sequences, self._running.rows)
        if not self._waiting:
            self._throughput.forget()
        # Any change may let an engine start a sequence that the token budget held back.
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
