"""The counts of running sequences and the token budget."""

from serve.scheduler.admission import Running, most_tokens
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions


def make_sequence(source_tokens: int, max_target_tokens: int, rows: int = 1) -> DecodingSequence:
    options = SearchOptions(max_target_tokens=max_target_tokens, beam_size=rows)
    return DecodingSequence(tuple(range(source_tokens)), options, None, lambda _: None)


def test_a_sequence_may_hold_its_source_and_its_longest_target_in_every_row() -> None:
    assert most_tokens(make_sequence(5, 7)) == 12
    assert most_tokens(make_sequence(5, 7, rows=4)) == 48


def test_what_ended_is_no_longer_counted() -> None:
    running = Running(None)
    first, second = make_sequence(5, 7), make_sequence(2, 3, rows=4)
    running.add(first)
    running.add(second)
    assert (running.sequences, running.rows, running.tokens) == (2, 5, 32)
    running.remove(first)
    assert (running.sequences, running.rows, running.tokens) == (1, 4, 20)


def test_the_token_budget_may_be_used_up_to_the_last_token() -> None:
    running = Running(20)
    running.add(make_sequence(5, 5))
    assert running.has_room(make_sequence(5, 5))
    assert not running.has_room(make_sequence(5, 6))


def test_a_sequence_larger_than_the_token_budget_runs_alone() -> None:
    running = Running(20)
    large, small = make_sequence(10, 11), make_sequence(1, 1)
    assert running.has_room(large)
    running.add(large)
    assert not running.has_room(small)
    running.remove(large)
    running.add(small)
    assert not running.has_room(large)


def test_without_a_token_budget_there_is_always_room() -> None:
    running = Running(None)
    running.add(make_sequence(1000, 1000))
    assert running.has_room(make_sequence(1000, 1000))
