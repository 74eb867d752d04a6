"""All that is known of a run, by slice of time and by kind of request: it grows while the run goes on.

Filled by the processes that generate load, read by whoever watches, decides or reports. Knows no clock.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loadtest.client import OK
from loadtest.plan import WARM_UP, Plan, Slice
from loadtest.tally import PackedTallies, Tally


class _Part(NamedTuple):
    """A kind of requests in a window of a phase."""

    phase: str
    window: int
    kind: str


class Record:
    """What was planned and what happened.

    Attributes:
        plan: what was to be sent.
        users: in a closed loop, how many there are; None: open loop.
        sent: requests that were sent.
        outcomes: of those that have ended.
    """

    def __init__(self, plan: Plan, users: int | None = None) -> None:
        self.plan = plan
        self.users = users
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        # Not by both: an hour of many kinds would hold a histogram for each minute of each of them.
        self._by_slice: defaultdict[int, Tally] = defaultdict(Tally)
        self._by_kind: defaultdict[_Part, Tally] = defaultdict(Tally)

    def add(self, tallies: PackedTallies) -> None:
        """Adds what a process tells."""
        for cell, packed in tallies.items():
            self.sent += packed.sent
            self.outcomes += packed.outcomes
            self._by_slice[cell.slice_number].add_packed(packed)
            each = self.plan.slices[cell.slice_number]
            self._by_kind[_Part(each.phase, each.window, cell.kind)].add_packed(packed)

    @property
    def phases(self) -> list[str]:
        """The measured phases in their order."""
        return [name for name in dict.fromkeys(each.phase for each in self.plan.slices) if name != WARM_UP]

    @property
    def kinds(self) -> list[str]:
        """Kinds of requests that were sent."""
        return list(dict.fromkeys(part.kind for part in self._by_kind))

    @property
    def in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return self.sent - self.outcomes.total()

    @property
    def failed(self) -> dict[str, int]:
        """Requests that were not answered, by outcome, in the order of these."""
        return {outcome: count for outcome, count in sorted(self.outcomes.items()) if outcome != OK}

    def slices_of(self, phase: str, windows: Sequence[int] | None = None) -> list[int]:
        """Returns the numbers of the slices of a phase, or of some of its windows."""
        return [
            number
            for number, each in enumerate(self.plan.slices)
            if each.phase == phase and (windows is None or each.window in windows)
        ]

    def tally(self, slices: Iterable[int]) -> Tally:
        """Returns what is known of the requests of some slices."""
        return Tally.sum(self._by_slice[number] for number in slices if number in self._by_slice)

    def tally_of_kind(self, kind: str, phase: str, windows: Sequence[int] | None = None) -> Tally:
        """Returns what is known of the requests of a kind in a phase, or in some of its windows."""
        return Tally.sum(
            tally
            for part, tally in self._by_kind.items()
            if part.kind == kind and part.phase == phase and (windows is None or part.window in windows)
        )

    def planned(self) -> Counter[int]:
        """Returns how many requests each slice was to have."""
        return Counter(self.plan.slice_numbers())


def span(slices: Sequence[Slice]) -> tuple[float, float]:
    """Returns when the first of some slices begins, and when the last ends."""
    return slices[0].begin_seconds, slices[-1].end_seconds
