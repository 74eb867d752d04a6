"""The queue: what waits, in the order in which it starts.

Higher priority first; then the lower round of fair queuing (`serve.scheduler.queue`), the earlier deadline, the earlier
submission. A wide sequence that does not fit may be passed by narrower ones, so that no row idles, but not for ever.
Knows no engines and no budgets; belongs to `serve.scheduler.scheduler`, which holds its lock around every call.

Fair queuing among the flows of one priority: which round each sequence of a flow belongs to.

Lower rounds start first. The first sequence of every flow belongs to the current round and each further one to a later
round, so that the second text of a long request waits behind the first text of everybody else. Knows flows and rounds,
not sequences; called by `serve.scheduler.queue`, under the scheduler's lock.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

from serve.errors import ServiceError
from serve.scheduler.sequence import DecodingSequence


@dataclass(slots=True)
class _KeyState:
    next_round: int
    waiting: int


class FairRounds:
    """The flows that have something waiting, and the current round.

    Start-time fair queuing (Goyal, Vin and Cheng 1996, "Start-time fair queuing", section 2): sequence k of a flow gets
    the start tag S_k = max(v, S_(k-1) + rows_(k-1)), so that flows share rows, not sequences. The virtual time v is one
    round past the latest start, where the paper takes that start itself: its flows are lasting connections, ours are
    requests, and a stream of new ones would keep v where it is and starve every second text.

    Attributes:
        current_round: v, the round of the first sequence of a flow that comes now.
    """

    def __init__(self) -> None:
        self.current_round = 0
        self._rounds: dict[Hashable, _KeyState] = {}

    def __len__(self) -> int:
        return len(self._rounds)

    def enter(self, fairness_key: Hashable, rows: int) -> int:
        """Returns the round of a sequence of `rows` rows that joins the flow."""
        state = self._rounds.setdefault(fairness_key, _KeyState(self.current_round, 0))
        entered_round = max(self.current_round, state.next_round)
        state.next_round = entered_round + rows
        state.waiting += 1
        return entered_round

    def start(self, started_round: int) -> None:
        """Moves the current round past that of a sequence which starts now."""
        self.current_round = max(self.current_round, started_round + 1)

    def leave(self, fairness_key: Hashable) -> None:
        """Takes one sequence out of the flow, and forgets a flow that has none left."""
        state = self._rounds[fairness_key]
        state.waiting -= 1
        if not state.waiting:
            del self._rounds[fairness_key]


@dataclass(slots=True, eq=False)
class _Place:
    sequence: DecodingSequence
    round: int
    order: tuple[int, int, float, int]
    passed_rows: int = 0

    def __lt__(self, other: "_Place") -> bool:
        return self.order < other.order


def _order(
    priority: int, entered_round: int, deadline_seconds: float | None, number: int
) -> tuple[int, int, float, int]:
    return -priority, entered_round, math.inf if deadline_seconds is None else deadline_seconds, number


class FairQueue:
    """Sequences in order, one heap for each number of rows, so that the first that fits is found without a search."""

    def __init__(self, pass_limit_rows: int) -> None:
        """Starts empty.

        Args:
            pass_limit_rows: the most rows that start past the first sequence because it is too wide for them.
        """
        self._pass_limit_rows = pass_limit_rows
        self._heaps: defaultdict[int, list[_Place]] = defaultdict(list)
        self._rounds: defaultdict[int, FairRounds] = defaultdict(
            FairRounds
        )  # by priority: rounds of several do not compare
        self._numbers = count()
        # Before that moment nobody is too late, and without a notice nobody was cancelled: thousands need no search.
        self._next_departure_seconds = math.inf
        self._some_cancelled = False

    def __len__(self) -> int:
        return sum(len(heap) for heap in self._heaps.values())

    @property
    def rows(self) -> int:
        """Rows that all of the sequences will take."""
        return sum(rows * len(heap) for rows, heap in self._heaps.items())

    @property
    def fairness_keys(self) -> int:
        """Flows that are remembered."""
        return sum(len(fairness_keys) for fairness_keys in self._rounds.values())

    @property
    def oldest_seconds(self) -> float | None:
        """When the sequence was admitted that waits longest; None: nothing waits."""
        return min((place.sequence.submitted_seconds for heap in self._heaps.values() for place in heap), default=None)

    def rows_before(self, deadline_seconds: float | None, priority: int) -> int:
        """Returns how many rows start before the first sequence of a flow that came now."""
        fairness_keys = self._rounds.get(priority)
        first_round = 0 if fairness_keys is None else fairness_keys.current_round
        order = _order(priority, first_round, deadline_seconds, next(self._numbers))
        return sum(rows for rows, heap in self._heaps.items() for place in heap if place.order < order)

    def push(self, sequence: DecodingSequence) -> None:
        """Queues the sequence."""
        rows = sequence.options.rows
        entered_round = self._rounds[sequence.priority].enter(sequence.fairness_key, rows)
        order = _order(sequence.priority, entered_round, sequence.deadline_seconds, next(self._numbers))
        heappush(self._heaps[rows], _Place(sequence, entered_round, order))
        self._next_departure_seconds = min(self._next_departure_seconds, sequence.latest_start_seconds)
        if sequence.cancelled:
            self._some_cancelled = True

    def pop(self, free_rows: int, may_start: Callable[[DecodingSequence], bool]) -> DecodingSequence | None:
        """Takes out the sequence that starts next in so many free rows.

        That is the first of those that fit. It counts against the first of all if it passes that one, and stays when
        the pass limit is reached: the free rows are kept until there are enough for the first.

        Args:
            free_rows: rows that it may take.
            may_start: says no if it has to wait for something else; then nothing starts in its place.
        """
        first = self._first(self._heaps)
        fitting = self._first(rows for rows in self._heaps if rows <= free_rows)
        if first is None or fitting is None:
            return None
        sequence = fitting.sequence
        rows = sequence.options.rows
        passed_rows = 0 if fitting is first else first.passed_rows + rows
        if passed_rows > self._pass_limit_rows or not may_start(sequence):
            return None
        if fitting is not first:
            first.passed_rows = passed_rows
        heappop(self._heaps[rows])
        self._rounds[sequence.priority].start(fitting.round)
        self._leave_round(sequence)
        return sequence

    def notice_cancelled(self) -> None:
        """Says that a sequence which may wait here was cancelled, before this call. Needs no lock."""
        self._some_cancelled = True

    def pop_abandoned(self, now_seconds: float) -> list[tuple[DecodingSequence, ServiceError]]:
        """Takes out every sequence that nobody waits for any more, and tells why."""
        if not self._some_cancelled and now_seconds < self._next_departure_seconds:
            return []
        self._some_cancelled = False  # before the search: who is cancelled meanwhile is found by the next one
        abandoned: list[tuple[DecodingSequence, ServiceError]] = []
        for heap in self._heaps.values():
            gone = {place: error for place in heap if (error := place.sequence.abandonment(now_seconds)) is not None}
            if gone:
                heap[:] = [place for place in heap if place not in gone]
                heapify(heap)
                abandoned += ((place.sequence, error) for place, error in gone.items())
        for sequence, _ in abandoned:
            self._leave_round(sequence)
        self._next_departure_seconds = min(
            (place.sequence.latest_start_seconds for heap in self._heaps.values() for place in heap), default=math.inf
        )
        return abandoned

    def clear(self) -> list[DecodingSequence]:
        """Takes out everything."""
        sequences = [place.sequence for heap in self._heaps.values() for place in heap]
        self._heaps.clear()
        self._rounds.clear()
        return sequences

    def _first(self, widths: Iterable[int]) -> _Place | None:
        heaps = (self._heaps[rows] for rows in widths)
        return min((heap[0] for heap in heaps if heap), default=None)

    def _leave_round(self, sequence: DecodingSequence) -> None:
        fairness_keys = self._rounds[sequence.priority]
        fairness_keys.leave(sequence.fairness_key)
        if not fairness_keys:
            del self._rounds[sequence.priority]
