"""The scheduler in Python: a bounded, ordered queue in front of the rows of one or more engines.

The event loop submits sequences; each engine takes them into its free rows and reports finished ones. Every accepted
sequence is finished exactly once. Thread-safe; independent of asyncio and of the model.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from dragoman.serve.errors import ServiceError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.end import end_sequences
from dragoman.serve.scheduler.queue import FairQueue
from dragoman.serve.scheduler.request_scheduler import RequestScheduler, ThroughputEstimate
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceState


@dataclass(slots=True)
class Running:
    """Counts of the running sequences over all engines.

    Attributes:
        token_budget: maximum of tokens that run together; None: no bound. A larger sequence runs alone.
        tokens: sum of `max_tokens` over the sequences.
    """

    token_budget: int | None
    sequences: int = 0
    rows: int = 0
    tokens: int = 0

    def has_room(self, sequence: DecodingSequence) -> bool:
        """Whether the token budget lets the sequence start now."""
        if self.token_budget is None or not self.sequences:
            return True
        return self.tokens + max_tokens(sequence) <= self.token_budget

    def add(self, sequence: DecodingSequence) -> None:
        """Counts a starting sequence."""
        self.sequences += 1
        self.rows += sequence.options.rows
        self.tokens += max_tokens(sequence)

    def remove(self, sequence: DecodingSequence) -> None:
        """Counts a finished sequence."""
        self.sequences -= 1
        self.rows -= sequence.options.rows
        self.tokens -= max_tokens(sequence)


def max_tokens(sequence: DecodingSequence) -> int:
    """Returns rows x (source tokens + longest target), an upper bound of the tokens of the sequence."""
    return sequence.options.rows * (len(sequence.source_ids) + sequence.options.max_target_tokens)


class Scheduler(RequestScheduler):
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
            clock: returns the time in seconds, on the clock of the deadlines.
            engines: number of engines that share the slots equally.
            running_token_budget: maximum of tokens that run together, counted as rows x (source tokens + longest
                target); None: no bound. A larger sequence runs alone.
            queue_timeout_seconds: longest wait before the start; None: until the deadline.
        """
        super().__init__(
            slots=slots,
            engines=engines,
            queue_limit=queue_limit,
            metrics=metrics,
            clock=clock,
            queue_timeout_seconds=queue_timeout_seconds,
        )
        self._prefill_token_budget = prefill_token_budget
        # As many rows may pass a wide sequence as an engine has: about one pass of its rows.
        self._waiting = FairQueue(pass_limit_rows=self._engine_rows)
        self._running = Running(running_token_budget)
        self._throughput = ThroughputEstimate(slots)
        self._stalled = False
        self._changed = threading.Condition(self._lock)

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

    def cancel(self, sequence: DecodingSequence) -> None:
        """Releases a sequence of a disconnected client within one step; does nothing if it has ended."""
        sequence.cancelled_seconds = self._clock()
        sequence.cancelled = True
        self._waiting.notice_cancelled()

    def schedule(self, free_rows: int, running_rows: int) -> list[DecodingSequence]:
        """Returns the sequences that start now, in the order of the queue.

        Finishes canceled and expired sequences first, also when no row is free.

        Args:
            free_rows: free rows of the calling engine, which calls `finish` for each returned sequence.
            running_rows: rows of the engine's running sequences.
        """
        with self._changed:
            if not self._waiting:
                return []
            now_seconds = self._clock()
            abandoned = self._waiting.pop_abandoned(now_seconds)
            scheduled = self._take(free_rows, running_rows)
            for sequence in scheduled:
                sequence.state = SequenceState.RUNNING
                sequence.started_seconds = now_seconds
            if abandoned or scheduled:
                self._publish()
            if not scheduled and not running_rows:
                self._stalled = True
        self._end(abandoned)
        return scheduled

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
        self._end([(sequence, error)])

    def wait(self) -> bool:
        """Blocks an idle engine until a sequence may start; returns False after `drain` if none is left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stalled if self._waiting else self._draining)
            return bool(self._waiting)

    def drain(self) -> None:
        """Refuses new sequences from now on; accepted ones continue."""
        with self._changed:
            self._draining = True
            self._publish()

    def fail_all(self, error: ServiceError) -> None:
        """Finishes every waiting sequence with the error; running ones continue."""
        with self._changed:
            failed = self._waiting.clear()
            self._publish()
        self._end([(sequence, error) for sequence in failed])

    def _end(self, ended: Iterable[tuple[DecodingSequence, ServiceError | None]]) -> None:
        now_seconds, sequences = self._clock(), []
        for sequence, error in ended:
            sequence.error, sequence.finished_seconds = error, now_seconds
            sequences.append(sequence)
        end_sequences(sequences, self._metrics)

    def _rows(self) -> tuple[int, int]:
        return self._running.rows, self._waiting.rows

    def _estimate(self, deadline_seconds: float | None, priority: int, now_seconds: float) -> tuple[float, float]:
        rows_ahead = self._waiting.rows_before(deadline_seconds, priority)
        return self._throughput.estimate(rows_ahead, now_seconds)

    def _push(self, sequences: Collection[DecodingSequence]) -> None:
        for sequence in sequences:
            self._waiting.push(sequence)
        self._publish()

    def _take(self, free_rows: int, running_rows: int) -> list[DecodingSequence]:
        # An engine with its share of all rows leaves the rest to the others. While a sequence waits, some engine has
        # less than its share, thus more free rows than any engine with its share: what fits anywhere fits there, and
        # that engine calls within one step. So no row idles longer, and at most one sequence exceeds the share.
        all_rows = self._running.rows + self._waiting.rows
        taken: list[DecodingSequence] = []
        prefill_tokens = 0

        def may_start(sequence: DecodingSequence) -> bool:
            within_prefill = prefill_tokens + len(sequence.source_ids) <= self._prefill_token_budget
            return (within_prefill or not taken) and self._running.has_room(sequence)

        while free_rows and running_rows * self._engines < all_rows:
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
        # Under the lock, so that gauges are set in the order of the changes.
        self._metrics.set_load(len(self._waiting), self._running.sequences, self._running.rows)
        if not self._waiting:
            self._throughput.forget()
        # Any change may let an engine start a sequence that the token budget held back.
        self._stalled = False
        self._changed.notify_all()
