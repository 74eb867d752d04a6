"""Who may come in: as long as there is room for it, and as long as it would start and end in time.

What is kept for requests that are still made into sequences counts as if it waited. Belongs to
`serve.scheduler.scheduler`, which holds its lock around every call.

How fast the queue moves: rows that become free in a second while others wait for them, and how long a row is taken.

From that follows when a newcomer starts, and when it should have ended. Belongs to `serve.scheduler.scheduler`, which
holds its lock around every call.

Rows that are kept for a request while its texts are made into sequences.

Made by `serve.scheduler.scheduler`, which counts them as if they waited: what comes too much is refused before
anybody has looked at its texts, and what was let in is never refused afterwards for want of room.

What runs now, in sequences, rows and tokens, and whether one more may.

Counts over all engines; which row belongs to whom is known to each engine alone. Belongs to
`serve.scheduler.scheduler`, which holds its lock around every call.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from serve.errors import (
    DeadlineExceededError,
    DeadlineUnmeetableError,
    DrainingError,
    QueueFullError,
    QueueTimeoutError,
)
from serve.scheduler.queue import FairQueue
from serve.scheduler.sequence import DecodingSequence

# So many of the latest runs say how long a run may take: all but the slowest tenth take no longer than that.
RUNS = 64
SLOWEST_SHARE = 0.1


class ThroughputEstimate:
    """The latest rows that became free, for as long as the queue has not been empty since."""

    def __init__(self, sequences: int) -> None:
        """Knows nothing yet.

        Args:
            sequences: how many of the latest ones count; the pace is known when as many have ended.
        """
        self._freed: deque[tuple[float, int]] = deque(maxlen=max(2, sequences))
        self._runs_seconds: deque[float] = deque(maxlen=RUNS)

    def run(self, seconds: float) -> None:
        """Counts a run: how long a sequence was in the engine until it was translated, or too late."""
        self._runs_seconds.append(seconds)

    def free(self, now_seconds: float, rows: int) -> None:
        """Counts a sequence that has ended while others wait."""
        self._freed.append((now_seconds, rows))

    def forget(self) -> None:
        """Begins anew: nothing waits any more, and what follows would measure how seldom somebody comes."""
        self._freed.clear()

    def wait_seconds(self, rows: int, now_seconds: float) -> float:
        """Returns how long it takes until so many rows have become free; 0 while that is not known.

        A queue that stands still makes the answer longer: time runs to the present, not to the last row.
        """
        if len(self._freed) < (self._freed.maxlen or 0):
            return 0.0
        first_seconds = self._freed[0][0]
        freed_rows = sum(rows for _, rows in self._freed) - self._freed[0][1]
        return rows * (now_seconds - first_seconds) / freed_rows

    def run_seconds(self) -> float:
        """Returns how long a run may well take; 0 while that is not known.

        Not the mean: who is let in and then runs out of time has cost others theirs.
        """
        runs = sorted(self._runs_seconds)
        return runs[int(len(runs) * (1 - SLOWEST_SHARE))] if runs else 0.0


class Reservation:
    """Rows of one request; a context manager, which gives back what no sequence has taken.

    Attributes:
        rows: how many are kept now.
        on_exit: called when the request is over.
    """

    def __init__(self, rows: int, resize: Callable[["Reservation", int, int], None]) -> None:
        """Keeps nothing by itself.

        Args:
            rows: that the scheduler has kept.
            resize: the scheduler's.
        """
        self.rows = rows
        self.on_exit: Callable[[], None] = lambda: None
        self._resize = resize

    def resize(self, rows: int, spare_rows: int = 0) -> None:
        """Keeps so many rows instead.

        Args:
            rows: how many.
            spare_rows: how many more must be free, for others, if they are more than before.

        Raises:
            QueueFullError: if they are more, and there is no room for them.
        """
        self._resize(self, rows, spare_rows)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives the rows back; a second time, there is nothing left to do."""
        self._resize(self, 0, 0)
        on_exit, self.on_exit = self.on_exit, lambda: None
        on_exit()


@dataclass(slots=True)
class Running:
    """Counts of the sequences that engines hold.

    Attributes:
        token_budget: the most tokens that run together; None: no bound. A sequence that is larger runs alone.
        sequences: how many there are.
        rows: rows that they take.
        tokens: tokens that they may come to hold, as `most_tokens` counts them.
    """

    token_budget: int | None
    sequences: int = 0
    rows: int = 0
    tokens: int = 0

    def has_room(self, sequence: DecodingSequence) -> bool:
        """Whether the token budget lets the sequence start now."""
        if self.token_budget is None or not self.sequences:
            return True
        return self.tokens + most_tokens(sequence) <= self.token_budget

    def add(self, sequence: DecodingSequence) -> None:
        """Counts a sequence that starts."""
        self.sequences += 1
        self.rows += sequence.options.rows
        self.tokens += most_tokens(sequence)

    def remove(self, sequence: DecodingSequence) -> None:
        """Counts a sequence that ended."""
        self.sequences -= 1
        self.rows -= sequence.options.rows
        self.tokens -= most_tokens(sequence)


def most_tokens(sequence: DecodingSequence) -> int:
    """Returns rows x (source tokens + longest target): what the sequence holds in the end if nothing ends it early."""
    return sequence.options.rows * (len(sequence.source_ids) + sequence.options.max_target_tokens)


@dataclass(slots=True)
class Admission:
    """The rules by which sequences are let in.

    Attributes:
        capacity_rows: the most rows that run and wait together.
        waiting: the queue.
        running: what runs.
        throughput: how fast the queue moves.
        reserved_rows: what is kept for sequences that are still to be made.
        draining: whether nothing is let in any more.
    """

    capacity_rows: int
    waiting: FairQueue
    running: Running
    throughput: ThroughputEstimate
    reserved_rows: int = 0
    draining: bool = False

    def check_room(self, rows: int) -> None:
        """Checks that there is room for so many more rows.

        Raises:
            DrainingError: if nothing is let in any more.
            QueueFullError: if there is none.
        """
        if self.draining:
            raise DrainingError("the server is shutting down")
        waiting_rows = self.waiting.rows + self.reserved_rows
        if self.running.rows + waiting_rows + rows > self.capacity_rows:
            raise QueueFullError(
                f"{rows} more rows do not fit: {self.running.rows} rows run and {waiting_rows} wait, "
                f"expected at most {self.capacity_rows} together; try again later"
            )

    def check_wait(
        self, now_seconds: float, deadline_seconds: float | None, priority: int, timeout_seconds: float | None
    ) -> None:
        """Checks that what comes now would be translated in time, as far as the queue has a say in it.

        Args:
            now_seconds: the time on the monotonic clock.
            deadline_seconds: when its client stops waiting (monotonic clock); None: never.
            priority: its own.
            timeout_seconds: how long it may wait before it starts; None: as long as its deadline lets it.

        Raises:
            DeadlineExceededError: if the deadline has passed.
            DeadlineUnmeetableError: if the queue moves so slowly that hardly anything would be translated in time.
            QueueTimeoutError: if it moves so slowly that nothing would start in time.
        """
        if deadline_seconds is not None and deadline_seconds <= now_seconds:
            raise DeadlineExceededError("the deadline passed before the request was looked at")
        wait_seconds = self.throughput.wait_seconds(self.waiting.rows_before(deadline_seconds, priority), now_seconds)
        if not wait_seconds:
            return  # how long a translation takes is for its client to judge; what counts here is others' time
        wait = f"about {wait_seconds:.3g} s to wait in the queue"
        if deadline_seconds is not None:
            run_seconds, left_seconds = self.throughput.run_seconds(), deadline_seconds - now_seconds
            if wait_seconds + run_seconds >= left_seconds:
                raise DeadlineUnmeetableError(
                    f"{wait} and {run_seconds:.3g} s to translate, but {left_seconds:.3g} s to the deadline; "
                    "try again later"
                )
        if timeout_seconds is not None and wait_seconds >= timeout_seconds:
            raise QueueTimeoutError(f"{wait}, expected at most {timeout_seconds:.3g} s; try again later")
