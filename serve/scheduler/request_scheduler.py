"""The scheduler as requests see it: reservation, submission and cancellation.

The queue and the engines behind it are those of a subclass. Thread-safe; independent of asyncio and of the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.admission import Admission, Reservation
from dragoman.serve.scheduler.deadline_refusal import check_wait
from dragoman.serve.scheduler.sequence import DecodingSequence

# Pause between wake-ups of the event loop for tokens of streams; imperceptible for readers.
PACE_SECONDS = 0.01


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
        self._admission = Admission(slots + queue_limit)
        self._queue_timeout_seconds = queue_timeout_seconds

    @property
    def slots(self) -> int:
        """Rows of all engines together."""
        return self._engine_rows * self._engines

    @property
    def capacity_rows(self) -> int:
        """Maximum of rows that run and wait together."""
        return self._admission.capacity_rows

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
        with self._lock():
            self._check_room(rows)
            timeout_seconds = None if patient else self._queue_timeout_seconds
            now_seconds = self._clock()
            wait_seconds, run_seconds = self._estimate(deadline_seconds, priority, now_seconds)
            check_wait(wait_seconds, run_seconds, now_seconds, deadline_seconds, timeout_seconds)
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
        with self._lock():
            reserved_rows = 0 if reservation is None else reservation.rows
            if sum(rows) > reserved_rows:
                self._check_room(sum(rows) - reserved_rows)
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
            self._push(sequences)

    @abstractmethod
    def cancel(self, sequence: DecodingSequence) -> None:
        """Releases a sequence of a disconnected client within one step; does nothing if it has ended."""

    @abstractmethod
    def _lock(self) -> AbstractContextManager[object]:
        """Returns the lock that guards admission."""

    @abstractmethod
    def _rows(self) -> tuple[int, int]:
        """Returns the numbers of running and waiting rows. Called with the lock."""

    @abstractmethod
    def _estimate(self, deadline_seconds: float | None, priority: int, now_seconds: float) -> tuple[float, float]:
        """Estimates the time until a new sequence starts, 0 while unknown, and that of its run. Called with the lock.

        Args:
            now_seconds: the time on the monotonic clock.
        """

    @abstractmethod
    def _push(self, sequences: Collection[DecodingSequence]) -> None:
        """Queues admitted sequences. Called with the lock."""

    def _resize(self, reservation: Reservation, rows: int, spare_rows: int) -> None:
        with self._lock():
            more_rows = rows - reservation.rows
            if more_rows > 0:
                self._check_room(more_rows + spare_rows)
            reservation.rows = rows
            self._admission.reserved_rows += more_rows

    def _check_room(self, rows: int) -> None:
        running_rows, waiting_rows = self._rows()
        self._admission.check_room(rows, running_rows=running_rows, waiting_rows=waiting_rows)
