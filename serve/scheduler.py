"""Decides who runs: a bounded, ordered queue in front of the rows of one or more engines.

The event loop submits, each engine admits into its free rows and reports what ended. Every sequence that was accepted
is finished exactly once. `serve.waiting` knows the order, `serve.running` counts; knows neither asyncio nor the model;
every method may be called from any thread.
"""

import threading
import time
from collections.abc import Callable, Collection

from serve.errors import DrainingError, QueueFullError, ServiceError
from serve.metrics import Metrics
from serve.running import Running
from serve.sequence import Sequence, SequenceState
from serve.waiting import Waiting


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
        """
        self._capacity_rows = slots + queue_limit
        self._engine_rows = slots // engines
        self._engines = engines
        self._prefill_token_budget = prefill_token_budget
        self._metrics = metrics
        self._clock = clock
        # A sequence that is too wide for the free rows lets as many pass as an engine has, about one turn of its rows.
        self._waiting = Waiting(pass_limit_rows=self._engine_rows)
        self._running = Running(running_token_budget)
        self._stalled = False
        self._draining = False
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        with self._changed:
            return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences that an engine holds."""
        return self._running.sequences

    @property
    def idle(self) -> bool:
        """True if nothing waits and nothing runs."""
        with self._changed:
            return not self._waiting and not self._running.sequences

    def submit(self, sequences: Collection[Sequence]) -> None:
        """Queues all of the sequences, or none.

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
            if self._draining:
                raise DrainingError("the server is shutting down")
            if self._running.rows + self._waiting.rows + sum(rows) > self._capacity_rows:
                raise QueueFullError(
                    f"{len(sequences)} texts of {sum(rows)} rows do not fit: {self._running.rows} rows run and "
                    f"{self._waiting.rows} wait, expected at most {self._capacity_rows} together; try again later"
                )
            now_seconds = self._clock()
            for sequence in sequences:
                sequence.submitted_seconds = now_seconds
                self._waiting.push(sequence)
            self._publish()

    def admit(self, free_rows: int, running_rows: int) -> list[Sequence]:
        """Hands out the sequences that start now, in the order of the queue.

        Sequences that nobody waits for any more are finished first, also when no row is free.

        Args:
            free_rows: rows that the calling engine can give away; it calls `finish` for each sequence that it gets.
            running_rows: rows that its sequences take already.
        """
        with self._changed:
            if not self._waiting:
                return []
            now_seconds = self._clock()
            abandoned = self._waiting.pop_abandoned(now_seconds)
            admitted = self._take(free_rows, running_rows)
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

    def finish(self, sequence: Sequence, error: ServiceError | None = None) -> None:
        """Ends a running sequence, with its translation or with an error."""
        with self._changed:
            self._running.remove(sequence)
            self._publish()
        self._end(sequence, error)

    def wait(self) -> bool:
        """Blocks an idle engine until something may start; returns False if nothing ever will again, after `drain`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stalled if self._waiting else self._draining)
            return bool(self._waiting)

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Blocks until nothing waits and nothing runs; returns False if that takes longer than the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.idle, timeout_seconds)

    def drain(self) -> None:
        """Refuses new sequences from now on; those already accepted go on."""
        with self._changed:
            self._draining = True
            self._publish()

    def fail_all(self, error: ServiceError) -> None:
        """Ends every waiting sequence with the error; running ones go on."""
        with self._changed:
            failed = self._waiting.clear()
            self._publish()
        for sequence in failed:
            self._end(sequence, error)

    def _take(self, free_rows: int, running_rows: int) -> list[Sequence]:
        # An engine that has its share of all rows leaves the rest to the others. While something waits, one of them
        # has less than its share, thus more free rows than any that has it: whatever fits anywhere fits there, and that
        # engine is asking within one step. So no row idles for longer, and at most one sequence exceeds the share.
        all_rows = self._running.rows + self._waiting.rows
        taken: list[Sequence] = []
        prefill_tokens = 0

        def may_start(sequence: Sequence) -> bool:
            within_prefill = prefill_tokens + len(sequence.source_ids) <= self._prefill_token_budget
            return (within_prefill or not taken) and self._running.has_room(sequence)

        while running_rows * self._engines < all_rows:
            sequence = self._waiting.pop(free_rows, may_start)
            if sequence is None:
                break
            self._running.add(sequence)
            taken.append(sequence)
            prefill_tokens += len(sequence.source_ids)
            free_rows -= sequence.options.rows
            running_rows += sequence.options.rows
        return taken

    def _publish(self) -> None:
        # Under the lock: the gauges must not be set in another order than the counts changed.
        self._metrics.set_load(len(self._waiting), self._running.sequences, self._running.rows)
        # An idle engine that got nothing, because the token budget is used up, may get something after any change.
        self._stalled = False
        self._changed.notify_all()

    def _end(self, sequence: Sequence, error: ServiceError | None) -> None:
        if error is not None:
            self._metrics.observe_finish(error.reason, wasted_tokens=sequence.decoded_tokens)
        elif sequence.hypotheses:
            self._metrics.observe_finish(sequence.best.finish_reason, wasted_tokens=0)
        sequence.finish(self._clock(), error)
