"""The queue: the order in which waiting sequences start.

Higher priority comes first, then the lower round of fair queuing, the earlier deadline, the earlier submission. The
first sequence of every fairness key belongs to the current round and each further one to a later round: the second text
of a long request waits behind the first text of every other request. Narrow sequences may pass a wide one that does not
fit, so that no row idles, but only a bounded number of rows. Not thread-safe: the scheduler holds its lock around every
call.
"""

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count

from dragoman.serve.errors import ServiceError
from dragoman.serve.scheduler.sequence import DecodingSequence

# Negative priority, round, deadline, number of the submission: the smallest is first.
Order = tuple[int, int, float, int]


@dataclass(slots=True)
class _KeyState:
    next_round: int
    waiting: int


class FairRounds:
    """The rounds of the fairness keys that have waiting sequences.

    Start-time fair queuing (Goyal, Vin and Cheng 1996, "Start-time fair queuing", section 2): sequence k of a flow (our
    fairness key) gets the start tag S_k = max(v, S_(k-1) + rows_(k-1)), so that flows share rows, not sequences. Our
    virtual time v is one round past the latest start, where the paper takes that start itself. The paper's flows are
    lasting connections; ours are requests, and a series of new ones would hold v back and starve every second text.

    Attributes:
        current_round: v, the round of the first sequence of a key that arrives now.
    """

    def __init__(self) -> None:
        self.current_round = 0
        self._rounds: dict[Hashable, _KeyState] = {}

    def __len__(self) -> int:
        return len(self._rounds)

    def enter(self, fairness_key: Hashable, rows: int) -> int:
        """Adds a sequence of `rows` rows to the key and returns its round."""
        state = self._rounds.setdefault(fairness_key, _KeyState(self.current_round, 0))
        entered_round = max(self.current_round, state.next_round)
        state.next_round = entered_round + rows
        state.waiting += 1
        return entered_round

    def leave(self, fairness_key: Hashable) -> None:
        """Removes one sequence from the key, and the key if it has none left."""
        state = self._rounds[fairness_key]
        state.waiting -= 1
        if not state.waiting:
            del self._rounds[fairness_key]


@dataclass(slots=True, eq=False)
class _Entry:
    sequence: DecodingSequence
    round: int
    order: Order
    passed_rows: int = 0

    def __lt__(self, other: "_Entry") -> bool:
        return self.order < other.order


def _order(priority: int, entered_round: int, deadline_seconds: float | None, number: int) -> Order:
    return -priority, entered_round, math.inf if deadline_seconds is None else deadline_seconds, number


class FairQueue:
    """The waiting sequences in order; `rows`: of all waiting sequences."""

    def __init__(self, pass_limit_rows: int) -> None:
        """Starts empty.

        `pass_limit_rows`: maximum of rows that may pass the first sequence while it is too wide for the free rows.
        """
        self._pass_limit_rows = pass_limit_rows
        self.rows = 0
        self._entries: list[_Entry] = []  # in order
        # Rounds by priority: those of different priorities are not comparable.
        self._rounds: defaultdict[int, FairRounds] = defaultdict(FairRounds)
        self._numbers = count()
        # Before this time no sequence expires, and without a notice none was canceled: no search is needed.
        self._next_departure_seconds = math.inf
        self._some_cancelled = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_seconds(self) -> float | None:
        """When the longest waiting sequence was queued; None: nothing waits."""
        return min((entry.sequence.group.submitted_seconds for entry in self._entries), default=None)

    def rows_before(self, deadline_seconds: float | None, priority: int) -> int:
        """Returns how many rows start before the first sequence of a new key that arrives now."""
        fairness_keys = self._rounds.get(priority)
        first_round = 0 if fairness_keys is None else fairness_keys.current_round
        order = _order(priority, first_round, deadline_seconds, next(self._numbers))
        return sum(entry.sequence.options.rows for entry in self._entries if entry.order < order)

    def push(self, sequence: DecodingSequence) -> None:
        """Queues the sequence."""
        group, rows = sequence.group, sequence.options.rows
        entered_round = self._rounds[group.priority].enter(group.fairness_key, rows)
        order = _order(group.priority, entered_round, group.deadline_seconds, next(self._numbers))
        insort(self._entries, _Entry(sequence, entered_round, order))
        self.rows += rows
        self._next_departure_seconds = min(self._next_departure_seconds, group.latest_start_seconds)
        self._some_cancelled |= sequence.cancelled

    def pop(self, free_rows: int, may_start: Callable[[DecodingSequence], bool]) -> DecodingSequence | None:
        """Removes and returns the sequence that starts next in `free_rows` free rows.

        This is the first one that fits. If it passes the head of the queue, its rows count against the head's pass
        limit. At the limit, free rows stay reserved until the head fits.

        Args:
            free_rows: rows that the sequence may take.
            may_start: returns False if the sequence must wait for another resource; then no sequence starts instead.
        """
        fitting = next((entry for entry in self._entries if entry.sequence.options.rows <= free_rows), None)
        if fitting is None:
            return None
        first, sequence = self._entries[0], fitting.sequence
        passed_rows = 0 if fitting is first else first.passed_rows + sequence.options.rows
        if passed_rows > self._pass_limit_rows or not may_start(sequence):
            return None
        if fitting is not first:
            first.passed_rows = passed_rows
        self._entries.remove(fitting)
        rounds = self._rounds[sequence.group.priority]
        rounds.current_round = max(rounds.current_round, fitting.round + 1)
        self._leave(sequence)
        return sequence

    def notice_cancelled(self) -> None:
        """Notes that a sequence was canceled before this call. Needs no lock."""
        self._some_cancelled = True

    def pop_abandoned(self, now_seconds: float) -> list[tuple[DecodingSequence, ServiceError]]:
        """Removes and returns all canceled and expired sequences, each with its error."""
        if not self._some_cancelled and now_seconds < self._next_departure_seconds:
            return []
        self._some_cancelled = False  # before the search: the next search finds a sequence that is canceled meanwhile
        errors = [(entry, entry.sequence.abandonment(now_seconds)) for entry in self._entries]
        self._entries = [entry for entry, error in errors if error is None]
        abandoned: list[tuple[DecodingSequence, ServiceError]] = [
            (entry.sequence, error) for entry, error in errors if error is not None
        ]
        for sequence, _ in abandoned:
            self._leave(sequence)
        starts = (entry.sequence.group.latest_start_seconds for entry in self._entries)
        self._next_departure_seconds = min(starts, default=math.inf)
        return abandoned

    def clear(self) -> list[DecodingSequence]:
        """Removes and returns all sequences."""
        sequences = [entry.sequence for entry in self._entries]
        self._entries.clear()
        self._rounds.clear()
        self.rows = 0
        return sequences

    def _leave(self, sequence: DecodingSequence) -> None:
        self.rows -= sequence.options.rows
        group = sequence.group
        fairness_keys = self._rounds[group.priority]
        fairness_keys.leave(group.fairness_key)
        if not fairness_keys:
            del self._rounds[group.priority]
