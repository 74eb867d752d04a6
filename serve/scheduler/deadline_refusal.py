"""Refuses requests that the queue would start or finish too late.

The estimate is the rate at which rows become free while other sequences wait; it is unknown while nothing waits. Not
thread-safe: `dragoman.serve.scheduler.scheduler` holds its lock around every call.
"""

from collections import deque

from dragoman.serve.errors import DeadlineExceededError, DeadlineUnmeetableError, QueueTimeoutError

# Number of recent runs in the estimate of a run's duration, which is their 90th percentile.
RUNS = 64
SLOWEST_SHARE = 0.1


class ThroughputEstimate:
    """The recently freed rows since the queue was last empty, and the durations of recent runs."""

    def __init__(self, sequences: int) -> None:
        """Starts without observations.

        Args:
            sequences: size of the window of recent sequences; the rate is unknown until the window is full.
        """
        self._freed: deque[tuple[float, int]] = deque(maxlen=max(2, sequences))
        self._runs_seconds: deque[float] = deque(maxlen=RUNS)

    def run(self, seconds: float) -> None:
        """Records how long a sequence was in an engine until it was translated or expired."""
        self._runs_seconds.append(seconds)

    def free(self, now_seconds: float, rows: int) -> None:
        """Records that a sequence of `rows` rows ended while others wait."""
        self._freed.append((now_seconds, rows))

    def forget(self) -> None:
        """Discards the freed rows: with an empty queue they would measure the arrival rate."""
        self._freed.clear()

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
        first_seconds = self._freed[0][0]
        freed_rows = sum(rows for _, rows in self._freed) - self._freed[0][1]
        return rows * (now_seconds - first_seconds) / freed_rows

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
