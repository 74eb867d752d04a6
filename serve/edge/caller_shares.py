"""Shares of callers in the requests in flight: while others come, no caller fills the queue alone."""

import math
from collections import Counter
from collections.abc import Callable

# A caller counts as coming for this long after its last request.
COMING_SECONDS = 10.0


class CallerShares:
    """The slots that each caller has. Belongs to the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._taken = Counter[str]()
        self._last_caller = ""
        self._last_seconds = self._last_of_another_seconds = -math.inf

    def note(self, caller: str) -> None:
        """Notes that a caller has come."""
        if caller != self._last_caller:
            self._last_of_another_seconds = self._last_seconds
            self._last_caller = caller
        self._last_seconds = self._clock()

    def allow(self, caller: str, capacity: int) -> bool:
        """Returns whether the caller that came last may have one more of all slots: half of them, or any if alone."""
        alone = self._clock() >= self._last_of_another_seconds + COMING_SECONDS
        return alone or self._taken[caller] < capacity // 2

    def take(self, caller: str) -> None:
        """Gives a slot to a caller."""
        self._taken[caller] += 1

    def free(self, caller: str) -> None:
        """Takes a slot back."""
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
