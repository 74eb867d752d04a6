"""The order of the queue, its rounds of fair queuing, its pass limit, and its cleanup."""

import pytest

from dragoman.serve.scheduler.queue import FairQueue
from dragoman.serve.scheduler.sequence import DecodingSequence
from tests.support.schedulers import make_sequence

ROWS = 4


def make_request(count: int, rows: int = 1, *, priority: int = 0) -> list[DecodingSequence]:
    """Returns sequences with a fairness key of their own."""
    fairness_key = object()
    return [make_sequence(rows=rows, priority=priority, fairness_key=fairness_key) for _ in range(count)]


def make_queue(*sequences: DecodingSequence, pass_limit_rows: int = ROWS) -> FairQueue:
    queue = FairQueue(pass_limit_rows)
    for sequence in sequences:
        queue.push(sequence)
    return queue


def always(_sequence: DecodingSequence) -> bool:
    return True


def pop(queue: FairQueue, count: int | None = None, free_rows: int = ROWS) -> list[DecodingSequence]:
    """Starts sequences until none may start, or a number of them."""
    popped: list[DecodingSequence] = []
    while len(popped) != count and (sequence := queue.pop(free_rows, always)):
        popped.append(sequence)
    return popped


@pytest.mark.parametrize(
    ("deadline_seconds", "priority", "rows"), [(None, 0, 3), (9.0, 0, 3), (8.5, 0, 0), (None, 1, 0), (None, -1, 7)]
)
@pytest.mark.parametrize("started", [0, 1])
def test_the_rows_before_a_newcomer_are_those_of_its_round_and_of_higher_priorities(
    deadline_seconds: float | None, priority: int, rows: int, started: int
) -> None:
    """The waiting request has a sequence of three rows in this round and in a later one, and one row behind them."""
    key = object()
    first = make_sequence(1, 9.0, fairness_key=key)
    queue = make_queue(*[first] * started, *(make_sequence(1, 9.0, rows=3, fairness_key=key) for _ in range(2)))
    queue.push(make_sequence(1, fairness_key=key))
    assert pop(queue, started) == [first] * started
    assert queue.rows_before(deadline_seconds, priority) == rows


def fairness_keys(queue: FairQueue) -> int:
    return sum(map(len, queue._rounds.values()))


def test_keys_and_priorities_without_waiting_sequences_are_forgotten() -> None:
    queue = make_queue()
    for number in range(100):
        cancelled = make_sequence(priority=number, fairness_key="cancelled")
        cancelled.cancelled = True
        for sequence in (*make_request(1, priority=number), cancelled):
            queue.push(sequence)
        assert fairness_keys(queue) == 2
        queue.pop_abandoned(0.0)
        assert fairness_keys(queue) == 1
        pop(queue)
    assert fairness_keys(queue) == len(queue._rounds) == len(queue) == queue.rows == 0
