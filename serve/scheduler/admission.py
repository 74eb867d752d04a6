"""Who may come in: as long as there is room for it, and as long as it would start and end in time.

What is kept for requests that are still made into sequences counts as if it waited. Belongs to
`serve.scheduler.scheduler`, which holds its lock around every call.
"""

from dataclasses import dataclass

from serve.errors import (
    DeadlineExceededError,
    DeadlineUnmeetableError,
    DrainingError,
    QueueFullError,
    QueueTimeoutError,
)
from serve.scheduler.pace import Pace
from serve.scheduler.queue import Waiting
from serve.scheduler.running import Running


@dataclass(slots=True)
class Admission:
    """The rules by which sequences are let in.

    Attributes:
        capacity_rows: the most rows that run and wait together.
        waiting: the queue.
        running: what runs.
        pace: how fast the queue moves.
        reserved_rows: what is kept for sequences that are still to be made.
        draining: whether nothing is let in any more.
    """

    capacity_rows: int
    waiting: Waiting
    running: Running
    pace: Pace
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
        wait_seconds = self.pace.wait_seconds(self.waiting.rows_before(deadline_seconds, priority), now_seconds)
        if not wait_seconds:
            return  # how long a translation takes is for its client to judge; what counts here is others' time
        wait = f"about {wait_seconds:.3g} s to wait in the queue"
        if deadline_seconds is not None:
            run_seconds, left_seconds = self.pace.run_seconds(), deadline_seconds - now_seconds
            if wait_seconds + run_seconds >= left_seconds:
                raise DeadlineUnmeetableError(
                    f"{wait} and {run_seconds:.3g} s to translate, but {left_seconds:.3g} s to the deadline; "
                    "try again later"
                )
        if timeout_seconds is not None and wait_seconds >= timeout_seconds:
            raise QueueTimeoutError(f"{wait}, expected at most {timeout_seconds:.3g} s; try again later")
