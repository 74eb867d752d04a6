"""The order of the queue, its rounds of fair queuing, its pass limit, and its cleanup."""

import pytest

from dragoman.serve.errors import CancelledError, DeadlineExceededError
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


def test_the_second_text_of_a_request_waits_behind_the_first_of_every_other() -> None:
    long, short, late = make_request(3), make_request(1), make_request(2)
    assert pop(make_queue(*long, *short, *late)) == [long[0], short[0], late[0], long[1], late[1], long[2]]


def test_a_request_has_no_credit_for_the_time_it_was_away() -> None:
    busy, idle, new = make_request(6), make_request(2), make_request(1)
    queue = make_queue(idle[0], *busy[:5])
    pop(queue, 4)
    queue.push(new[0])
    queue.push(idle[1])
    assert pop(queue) == [busy[3], new[0], idle[1], busy[4]]


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


def test_rows_are_kept_for_a_sequence_that_was_passed_by_as_many_as_may_pass() -> None:
    wide, *others = make_sequence(rows=3), *(make_sequence(fairness_key=number) for number in range(9))
    queue = make_queue(wide, *others, pass_limit_rows=5)
    assert pop(queue, free_rows=2) == others[:5]
    assert queue.pop(3, always) is wide
    assert pop(queue, free_rows=2) == others[5:]


def test_no_sequence_passes_one_that_waits_for_another_resource_nor_does_it_count_as_passing() -> None:
    wide, *others = make_sequence(rows=3), *(make_sequence(fairness_key=number) for number in range(3))
    queue = make_queue(wide, *others, pass_limit_rows=3)
    assert [queue.pop(2, lambda sequence: sequence is not others[0]) for _ in range(5)] == [None] * 5
    assert pop(queue, free_rows=2) == others


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


def test_abandoned_sequences_leave_with_a_reason() -> None:
    cancelled, expired, wide, kept = (
        make_sequence(1, deadline_seconds, rows=rows, fairness_key=object())
        for deadline_seconds, rows in ((None, 1), (1.0, 1), (None, 3), (1.5, 1))
    )
    queue = make_queue(cancelled, expired, wide, kept)
    cancelled.cancelled = wide.cancelled = True
    queue.notice_cancelled()
    errors = {sequence: type(error) for sequence, error in queue.pop_abandoned(1.0)}
    assert errors == {cancelled: CancelledError, expired: DeadlineExceededError, wide: CancelledError}
    assert (len(queue), queue.rows) == (1, 1)
    assert pop(queue) == [kept]


def test_every_deadline_is_observed_after_any_departures() -> None:
    """The queue is searched only if a sequence may have been abandoned."""
    soon, later, cancelled = make_sequence(1, 2.0), make_sequence(1, 3.0), make_sequence()
    cancelled.cancelled = True
    queue = make_queue(later, cancelled, soon)
    gone = [[sequence for sequence, _ in queue.pop_abandoned(seconds)] for seconds in (1.0, 1.9, 2.0, 2.9, 3.0)]
    assert gone == [[cancelled], [], [soon], [], [later]]


def test_clearing_returns_all_sequences() -> None:
    sequences = [make_sequence(rows=1 + number % 3, fairness_key=number) for number in range(5)]
    queue = make_queue(*sequences)
    assert set(queue.clear()) == set(sequences)
    assert (len(queue), queue.rows, fairness_keys(queue)) == (0, 0, 0)
    assert pop(queue) == []
