"""The scheduler as requests see it: reservation, submission and cancellation, and the refusals of each.

Rows reserved for requests that are still being tokenized count as waiting: surplus requests are refused before their
texts are processed, and an admitted request always finds room later. A request that would start or finish too late is
refused by the rate at which rows become free while other sequences wait.

The queue and the engines behind it are those of a subclass. Thread-safe; independent of asyncio and of the model.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection
from typing import Self

from dragoman.serve.errors import (
    DeadlineExceededError,
    DeadlineUnmeetableError,
    DrainingError,
    QueueFullError,
    QueueTimeoutError,
)
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.sequence import DecodingSequence

# Pause between wake-ups of the event loop for tokens of streams; imperceptible for readers.
PACE_SECONDS = 0.01
# Number of recent runs in the estimate of a run's duration, which is their 90th percentile.
RUNS = 64
SLOWEST_SHARE = 0.1


class Reservation:
    """Rows reserved for one request; a context manager that releases the rows that no sequence has taken.

    Attributes:
        on_exit: called once when the request is over.
    """

    def __init__(self, rows: int, resize: Callable[["Reservation", int, int], None]) -> None:
        self.rows = rows
        self.on_exit: Callable[[], None] | None = None
        self._resize = resize

    def resize(self, rows: int, spare_rows: int = 0) -> None:
        """Changes the number of reserved rows.

        Args:
            spare_rows: rows that must stay free for other requests if the reservation grows.

        Raises QueueFullError if the reservation grows and there is no room.
        """
        self._resize(self, rows, spare_rows)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Releases the rows; a second exit does nothing."""
        if self.rows:
            self._resize(self, 0, 0)
        on_exit, self.on_exit = self.on_exit, None
        if on_exit is not None:
            on_exit()


class ThroughputEstimate:
    """The rows freed since the queue was last empty, and the durations of recent runs; not thread-safe."""

    def __init__(self, sequences: int) -> None:
        """Starts without observations.

        `sequences`: size of the window of recent sequences; the rate is unknown until the window is full.
        """
        self._freed: deque[tuple[float, int]] = deque(maxlen=max(2, sequences))
        self._freed_rows = 0
        self._runs_seconds: deque[float] = deque(maxlen=RUNS)

    def run(self, seconds: float) -> None:
        """Records how long a sequence was in an engine until it was translated or expired."""
        self._runs_seconds.append(seconds)

    def free(self, now_seconds: float, rows: int) -> None:
        """Records that a sequence of `rows` rows ended while others wait."""
        self._freed_rows += rows - (self._freed[0][1] if self.known else 0)
        self._freed.append((now_seconds, rows))

    def forget(self) -> None:
        """Discards the freed rows: with an empty queue they would measure the arrival rate."""
        self._freed.clear()
        self._freed_rows = 0

    @property
    def known(self) -> bool:
        """Whether the rate is known."""
        return len(self._freed) >= (self._freed.maxlen or 0)

    def wait_seconds(self, rows: int, now_seconds: float) -> float:
        """Estimates the time until `rows` rows become free; 0 while the rate is unknown.

        Counts time up to now, not to the last freed row: the estimate of a stalled queue grows.
        """
        if not self.known:
            return 0.0
        first_seconds, first_rows = self._freed[0]
        return rows * (now_seconds - first_seconds) / (self._freed_rows - first_rows)

    def run_seconds(self) -> float:
        """Returns the 90th percentile of recent runs; 0 while unknown.

        Not the mean: a request that is admitted and then expires wastes capacity.
        """
        runs = sorted(self._runs_seconds)
        return runs[int(len(runs) * (1 - SLOWEST_SHARE))] if runs else 0.0

    def estimate(self, rows_ahead: int, now_seconds: float) -> tuple[float, float]:
        """Returns the time until `rows_ahead` rows become free, 0 while unknown, and the time of a run after it."""
        wait_seconds = self.wait_seconds(rows_ahead, now_seconds)
        return wait_seconds, self.run_seconds() if wait_seconds else 0.0


def check_wait(
    wait_seconds: float,
    run_seconds: float,
    now_seconds: float,
    deadline_seconds: float | None,
    timeout_seconds: float | None,
) -> None:
    """Checks that a request that arrives now would start and finish in time.

    Args:
        wait_seconds: estimated time until the request starts; 0: unknown, or no wait.
        run_seconds: estimated time of its run.
        now_seconds: the time on the monotonic clock.
        deadline_seconds: on the monotonic clock; None: none.
        timeout_seconds: longest wait before the start; None: bounded by the deadline alone.

    Raises:
        DeadlineExceededError: if the deadline has passed.
        DeadlineUnmeetableError: if wait and run are estimated to end after the deadline.
        QueueTimeoutError: if the wait is estimated to exceed the timeout.
    """
    if deadline_seconds is not None and deadline_seconds <= now_seconds:
        raise DeadlineExceededError("the deadline passed before admission")
    if not wait_seconds:
        return  # without a queue, a request with a short deadline delays no other request
    wait = f"about {wait_seconds:.3g} s to wait in the queue"
    if deadline_seconds is not None:
        left_seconds = deadline_seconds - now_seconds
        if wait_seconds + run_seconds >= left_seconds:
            raise DeadlineUnmeetableError(
                f"{wait} and {run_seconds:.3g} s to translate, but {left_seconds:.3g} s to the deadline; "
                "try again later"
            )
    if timeout_seconds is not None and wait_seconds >= timeout_seconds:
        raise QueueTimeoutError(f"{wait}, expected at most {timeout_seconds:.3g} s; try again later")


class RequestScheduler(ABC):
    """A bounded, ordered queue in front of the rows of one or more engines.

    Attributes:
        paced: tokens of streams come at most once per `PACE_SECONDS`, except for first tokens.
    """

    paced = False

    def __init__(
        self,
        *,
        slots: int,
        engines: int,
        queue_limit: int,
        metrics: Metrics,
        clock: Callable[[], float],
        queue_timeout_seconds: float | None,
    ) -> None:
        """Starts empty and open.

        Args:
            slots: rows of all engines together.
            engines: number of engines that share the slots equally.
            queue_limit: maximum of waiting rows while every slot is taken.
            clock: returns the time in seconds, on the clock of the deadlines.
            queue_timeout_seconds: longest wait before the start; None: until the deadline.
        """
        self._engine_rows = slots // engines
        self._engines = engines
        self._metrics = metrics
        self._clock = clock
        self.capacity_rows = slots + queue_limit
        self._reserved_rows = 0  # of requests that are still being tokenized
        self._draining = False
        # Guards the reserved rows, the end of admission, and the queue of a subclass.
        self._lock = threading.RLock()
        self._queue_timeout_seconds = queue_timeout_seconds

    @property
    def slots(self) -> int:
        """Rows of all engines together."""
        return self._engine_rows * self._engines

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Number of sequences in the queue."""

    @property
    @abstractmethod
    def oldest_seconds(self) -> float:
        """Age of the longest waiting sequence; 0: nothing waits."""

    @property
    @abstractmethod
    def running(self) -> int:
        """Number of sequences in engines."""

    @property
    @abstractmethod
    def running_rows(self) -> int:
        """Rows of the running sequences."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True if nothing waits and nothing runs."""

    def reserve(
        self, rows: int, deadline_seconds: float | None = None, priority: int = 0, *, patient: bool = False
    ) -> Reservation:
        """Reserves rows for sequences that are not tokenized yet.

        Args:
            rows: number of rows; the reservation can be resized.
            deadline_seconds: on the monotonic clock; None: none.
            patient: exempts the sequences from the queue timeout.

        Raises:
            DrainingError: after `drain`.
            DeadlineExceededError: if the deadline has passed.
            QueueFullError: if running and waiting rows would exceed `capacity_rows`.
            DeadlineUnmeetableError: if wait and run are estimated to end after the deadline.
            QueueTimeoutError: if the wait is estimated to exceed the queue timeout.
        """
        with self._lock:
            self._check_room(rows)
            timeout_seconds = None if patient else self._queue_timeout_seconds
            now_seconds = self._clock()
            wait_seconds, run_seconds = self._estimate(deadline_seconds, priority, now_seconds)
            check_wait(wait_seconds, run_seconds, now_seconds, deadline_seconds, timeout_seconds)
            self._reserved_rows += rows
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
        with self._lock:
            reserved_rows = 0 if reservation is None else reservation.rows
            if sum(rows) > reserved_rows:
                self._check_room(sum(rows) - reserved_rows)
            else:
                self._check_open()  # the reservation has checked the room
            if reservation is not None:
                reservation.rows = 0
                self._reserved_rows -= reserved_rows
            now_seconds = self._clock()
            for group in {sequence.group for sequence in sequences}:
                group.submitted_seconds = now_seconds
                if self._queue_timeout_seconds is not None and not patient:
                    group.start_by_seconds = now_seconds + self._queue_timeout_seconds
            self._push(sequences)

    @abstractmethod
    def cancel(self, sequence: DecodingSequence) -> None:
        """Releases a sequence of a disconnected client within one step; does nothing if it has ended."""

    @abstractmethod
    def _rows(self) -> tuple[int, int]:
        """Returns the numbers of running and waiting rows. Called with the lock."""

    @abstractmethod
    def _estimate(self, deadline_seconds: float | None, priority: int, now_seconds: float) -> tuple[float, float]:
        """Estimates the time until a new sequence starts, 0 while unknown, and that of its run. Called with the lock.

        `now_seconds`: the time on the monotonic clock.
        """

    @abstractmethod
    def _push(self, sequences: Collection[DecodingSequence]) -> None:
        """Queues admitted sequences. Called with the lock."""

    def _resize(self, reservation: Reservation, rows: int, spare_rows: int) -> None:
        with self._lock:
            more_rows = rows - reservation.rows
            if more_rows > 0:
                self._check_room(more_rows + spare_rows)
            reservation.rows = rows
            self._reserved_rows += more_rows

    def _check_open(self) -> None:
        if self._draining:
            raise DrainingError("the server is shutting down")

    def _check_room(self, rows: int) -> None:
        """Checks that `rows` more rows fit next to those that run and wait; raises DrainingError or QueueFullError."""
        self._check_open()
        running_rows, waiting_rows = self._rows()
        waiting_rows += self._reserved_rows
        if running_rows + waiting_rows + rows > self.capacity_rows:
            raise QueueFullError(
                f"{rows} more rows do not fit: {running_rows} rows run and {waiting_rows} wait, "
                f"expected at most {self.capacity_rows} together; try again later"
            )
