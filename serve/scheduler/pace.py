"""How fast the queue moves: rows that become free in a second while others wait for them, and how long a row is taken.

From that follows when a newcomer starts, and when it should have ended. Belongs to `serve.scheduler.scheduler`, which
holds its lock around every call.
"""

from collections import deque

# So many of the latest runs say how long a run may take: all but the slowest tenth take no longer than that.
RUNS = 64
SLOWEST_SHARE = 0.1


class Pace:
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
