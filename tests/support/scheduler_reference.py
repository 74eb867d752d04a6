"""The scheduler's order and limits in the simplest way: one list, sorted and searched at every call."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dragoman.serve.scheduler.sequence import DecodingSequence


@dataclass(eq=False)
class Waiter:
    """A waiting sequence: its round of fair queuing, number in the order of submission, and rows that passed it."""

    sequence: DecodingSequence
    round: int
    number: int
    passed_rows: int = 0

    @property
    def rows(self) -> int:
        return self.sequence.options.rows

    @property
    def order(self) -> tuple[int, int, bool, float, int]:
        """The sort key of the queue."""
        deadline_seconds = self.sequence.group.deadline_seconds
        return (
            -self.sequence.group.priority,
            self.round,
            deadline_seconds is None,
            deadline_seconds or 0.0,
            self.number,
        )


def rows_of(sequences: Iterable[DecodingSequence]) -> int:
    return sum(sequence.options.rows for sequence in sequences)


def tokens_of(sequences: Iterable[DecodingSequence]) -> int:
    """Returns the largest number of tokens of all sequences."""
    return sum(
        sequence.options.rows * (len(sequence.source_ids) + sequence.options.max_target_tokens)
        for sequence in sequences
    )


@dataclass
class ReferenceScheduler:
    """The queue, and the running sequences of each engine."""

    engines: int
    engine_rows: int
    queue_limit: int
    prefill_token_budget: int
    running_token_budget: int | None
    line: list[Waiter] = field(default_factory=list)
    next_rounds: dict[tuple[int, object], int] = field(default_factory=dict)
    current_rounds: dict[int, int] = field(default_factory=dict)
    submitted: int = 0

    def __post_init__(self) -> None:
        self.running: list[list[DecodingSequence]] = [[] for _ in range(self.engines)]

    @property
    def waiting(self) -> list[DecodingSequence]:
        return [waiter.sequence for waiter in sorted(self.line, key=lambda waiter: waiter.order)]

    @property
    def all_running(self) -> list[DecodingSequence]:
        return [sequence for engine in self.running for sequence in engine]

    def fits(self, new: list[DecodingSequence]) -> bool:
        rows = rows_of(self.waiting) + rows_of(self.all_running) + rows_of(new)
        return rows <= self.engines * self.engine_rows + self.queue_limit

    def submit(self, sequence: DecodingSequence) -> None:
        fairness_key = (sequence.group.priority, sequence.group.fairness_key)
        entered_round = max(self.current_rounds.get(sequence.group.priority, 0), self.next_rounds.get(fairness_key, 0))
        self.next_rounds[fairness_key] = entered_round + sequence.options.rows
        self.line.append(Waiter(sequence, entered_round, self.submitted))
        self.submitted += 1

    def remove(self, gone: Iterable[DecodingSequence]) -> None:
        """Removes sequences from the queue, with flows and priorities that no other sequence has."""
        gone = list(gone)
        self.line = [waiter for waiter in self.line if waiter.sequence not in gone]
        fairness_keys = {(sequence.group.priority, sequence.group.fairness_key) for sequence in self.waiting}
        self.next_rounds = {
            fairness_key: number for fairness_key, number in self.next_rounds.items() if fairness_key in fairness_keys
        }
        priorities = {priority for priority, _ in fairness_keys}
        self.current_rounds = {key: number for key, number in self.current_rounds.items() if key in priorities}

    def schedule(self, engine: int) -> list[DecodingSequence]:
        """Starts the sequences that may start in the engine."""
        running = self.running[engine]
        fair_rows = (rows_of(self.waiting) + rows_of(self.all_running)) / self.engines
        scheduled: list[DecodingSequence] = []
        while rows_of(running) < fair_rows:
            waiter = self._next(self.engine_rows - rows_of(running))
            if waiter is None or not self._within_budgets(waiter.sequence, scheduled):
                break
            scheduled.append(waiter.sequence)
            running.append(waiter.sequence)
            min(self.line, key=lambda other: other.order).passed_rows += waiter.rows
            priority = waiter.sequence.group.priority
            self.current_rounds[priority] = max(self.current_rounds.get(priority, 0), waiter.round + 1)
            self.remove([waiter.sequence])
        return scheduled

    def _next(self, free_rows: int) -> Waiter | None:
        line = sorted(self.line, key=lambda waiter: waiter.order)
        for waiter in line:
            if waiter.rows <= free_rows:
                passes = waiter is not line[0]
                return None if passes and line[0].passed_rows + waiter.rows > self.engine_rows else waiter
        return None

    def _within_budgets(self, sequence: DecodingSequence, scheduled: list[DecodingSequence]) -> bool:
        source_tokens = sum(len(other.source_ids) for other in [*scheduled, sequence])
        if scheduled and source_tokens > self.prefill_token_budget:
            return False
        if self.running_token_budget is None or not self.all_running:
            return True
        return tokens_of([*self.all_running, sequence]) <= self.running_token_budget
