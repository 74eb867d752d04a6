"""The order of the queue, its pass limit, and its cleanup."""

from hypothesis import given
from hypothesis import strategies as st

from serve.errors import CancelledError, DeadlineExceededError
from serve.scheduler.queue import FairQueue
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions

ROWS = 4


def make_sequence(
    fairness_key: object = None, rows: int = 1, *, priority: int = 0, deadline_seconds: float | None = None
) -> DecodingSequence:
    options = SearchOptions(max_target_tokens=8, beam_size=rows)
    return DecodingSequence(
        (1, 2), options, deadline_seconds, lambda _: None, priority=priority, fairness_key=fairness_key
    )


def make_flow(count: int, rows: int = 1, *, priority: int = 0) -> list[DecodingSequence]:
    """Returns sequences with a fairness key of their own."""
    fairness_key = object()
    return [make_sequence(fairness_key, rows, priority=priority) for _ in range(count)]


def make_waiting(*sequences: DecodingSequence, pass_limit_rows: int = ROWS) -> FairQueue:
    waiting = FairQueue(pass_limit_rows)
    for sequence in sequences:
        waiting.push(sequence)
    return waiting


def always(_sequence: DecodingSequence) -> bool:
    """Lets every sequence start."""
    return True


def pop_all(waiting: FairQueue, free_rows: int = ROWS) -> list[DecodingSequence]:
    popped = []
    while sequence := waiting.pop(free_rows, always):
        popped.append(sequence)
    return popped


def test_a_higher_priority_starts_first() -> None:
    low, high, middle = make_sequence(priority=-1), make_sequence(priority=7), make_sequence()
    assert pop_all(make_waiting(low, high, middle)) == [high, middle, low]


def test_the_second_text_of_a_request_waits_behind_the_first_of_every_other() -> None:
    long, short, late = make_flow(3), make_flow(1), make_flow(2)
    assert pop_all(make_waiting(*long, *short, *late)) == [long[0], short[0], late[0], long[1], late[1], long[2]]


def test_a_request_that_comes_while_another_is_under_way_waits_for_one_round_of_it() -> None:
    long, late = make_flow(50), make_flow(2)
    waiting = make_waiting(*long)
    for _ in range(20):
        waiting.pop(ROWS, always)
    for sequence in late:
        waiting.push(sequence)
    assert pop_all(waiting)[:5] == [long[20], late[0], long[21], late[1], long[22]]


def test_flows_share_rows_not_sequences() -> None:
    """While both wait, four greedy texts start per text with a beam of four."""
    wide, narrow = make_flow(5, rows=4), make_flow(20)
    popped = pop_all(make_waiting(*wide, *narrow))
    assert [sequence in wide for sequence in popped[:10]] == [True, False, False, False, False] * 2


def test_the_rounds_of_a_priority_are_not_those_of_another() -> None:
    """Rounds used by urgent requests do not count against later requests of normal priority."""
    urgent, first, second = make_flow(10, priority=1), make_flow(2), make_flow(1)
    waiting = make_waiting(*first, *urgent)
    for _ in urgent:
        waiting.pop(ROWS, always)
    waiting.push(second[0])
    assert pop_all(waiting) == [first[0], second[0], first[1]]


def test_the_earliest_deadline_starts_first_among_those_equally_served() -> None:
    never, late, early = (make_sequence(object(), deadline_seconds=seconds) for seconds in (None, 9.0, 2.0))
    assert pop_all(make_waiting(never, late, early)) == [early, late, never]


def test_equals_start_in_the_order_of_their_submission() -> None:
    sequences = [make_sequence(object()) for _ in range(5)]
    assert pop_all(make_waiting(*sequences)) == sequences


def test_what_fits_passes_a_sequence_that_is_too_wide() -> None:
    wide, narrow, narrower = make_sequence("a", 4), make_sequence("b", 2), make_sequence("c", 1)
    waiting = make_waiting(wide, narrow, narrower)
    assert waiting.pop(1, always) is narrower
    assert waiting.pop(3, always) is narrow
    assert waiting.pop(4, always) is wide


def test_rows_are_kept_for_a_sequence_that_was_passed_by_as_many_as_may_pass() -> None:
    wide, *others = make_sequence("wide", 3), *(make_sequence(number) for number in range(9))
    waiting = make_waiting(wide, *others, pass_limit_rows=5)
    assert pop_all(waiting, 2) == others[:5]
    assert waiting.pop(3, always) is wide
    assert pop_all(waiting, 2) == others[5:]


def test_no_sequence_passes_one_that_waits_for_tokens() -> None:
    first, second = make_sequence("a"), make_sequence("b")
    waiting = make_waiting(first, second)
    assert waiting.pop(ROWS, lambda sequence: sequence is second) is None
    assert waiting.pop(ROWS, always) is first


def test_a_sequence_that_may_not_start_does_not_count_as_passing() -> None:
    wide, *others = make_sequence("wide", 3), *(make_sequence(number) for number in range(3))
    waiting = make_waiting(wide, *others, pass_limit_rows=3)
    assert [waiting.pop(2, lambda _: False) for _ in range(5)] == [None] * 5
    assert pop_all(waiting, 2) == others


def test_flows_and_priorities_with_nothing_waiting_are_forgotten() -> None:
    waiting = make_waiting()
    for number in range(1000):
        waiting.push(make_sequence(object(), priority=number))
        waiting.push(make_sequence(object(), priority=number))
        assert waiting.fairness_keys == 2
        waiting.pop(ROWS, always)
        for sequence in (place.sequence for place in waiting._heaps[1]):
            sequence.cancelled = True
        waiting.notice_cancelled()
        waiting.pop_abandoned(0.0)
    assert waiting.fairness_keys == len(waiting._rounds) == len(waiting) == waiting.rows == 0


def test_abandoned_sequences_leave_with_a_reason() -> None:
    cancelled, expired, wide = make_sequence("a"), make_sequence("b", deadline_seconds=1.0), make_sequence("c", 3)
    kept = make_sequence("d", deadline_seconds=1.5)
    waiting = make_waiting(cancelled, expired, wide, kept)
    cancelled.cancelled = wide.cancelled = True
    waiting.notice_cancelled()
    errors = {sequence: type(error) for sequence, error in waiting.pop_abandoned(1.0)}
    assert errors == {cancelled: CancelledError, expired: DeadlineExceededError, wide: CancelledError}
    assert (len(waiting), waiting.rows) == (1, 1)
    assert pop_all(waiting) == [kept]


def test_every_deadline_is_observed_after_any_departures() -> None:
    """The queue is searched only if a sequence may have been abandoned."""
    soon, later = make_sequence("a", deadline_seconds=2.0), make_sequence("b", deadline_seconds=3.0)
    cancelled = make_sequence("c")
    cancelled.cancelled = True
    waiting = make_waiting(later, cancelled, soon)
    gone = [[sequence for sequence, _ in waiting.pop_abandoned(seconds)] for seconds in (1.0, 1.9, 2.0, 2.9, 3.0)]
    assert gone == [[cancelled], [], [soon], [], [later]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 2), st.booleans()), max_size=30))
def test_the_order_is_kept_when_sequences_leave_early(specs: list[tuple[int, int, bool]]) -> None:
    sequences = [make_sequence(rows=rows, priority=priority) for priority, rows, _ in specs]
    waiting = make_waiting(*sequences)
    for sequence, (_, _, leaves) in zip(sequences, specs, strict=True):
        sequence.cancelled = leaves
    waiting.notice_cancelled()
    waiting.pop_abandoned(0.0)
    expected = sorted((priority for priority, _, leaves in specs if not leaves), reverse=True)
    assert [sequence.priority for sequence in pop_all(waiting)] == expected


def test_clearing_hands_everything_back() -> None:
    sequences = [make_sequence(number, 1 + number % 3) for number in range(5)]
    waiting = make_waiting(*sequences)
    assert set(waiting.clear()) == set(sequences)
    assert (len(waiting), waiting.rows, waiting.fairness_keys) == (0, 0, 0)
    assert waiting.pop(ROWS, always) is None
