"""Takes the times of calls inside calls.

Each call has its whole time, and its own time: without what the measured calls inside it took. For one thread. Knows
nothing of what is called; used by `benchmarks.systems.engine`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Span(NamedTuple):
    """One call.

    Attributes:
        name: of what was called.
        started_ns: when it began, in nanoseconds.
        ended_ns: when it ended.
        own_ns: how long it took without the measured calls inside it.
    """

    name: str
    started_ns: int
    ended_ns: int
    own_ns: int


class Stopwatch:
    """Writes calls down as they end; one that encloses others comes after them.

    Attributes:
        spans: the calls so far.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Starts with no call.

        Args:
            clock: the time in nanoseconds.
        """
        self.spans: list[Span] = []
        self._clock = clock
        self._inner_ns = 0

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Takes the time of the block; a call costs its encloser about a microsecond."""
        before_ns, self._inner_ns = self._inner_ns, 0
        started_ns = self._clock()
        try:
            yield
        finally:
            ended_ns = self._clock()
            elapsed_ns = ended_ns - started_ns
            self.spans.append(Span(name, started_ns, ended_ns, elapsed_ns - self._inner_ns))
            self._inner_ns = before_ns + elapsed_ns
