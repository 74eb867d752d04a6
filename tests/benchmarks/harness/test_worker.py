"""A turn is warmed up, then timed for about the requested duration."""

from collections.abc import Iterator

from benchmarks.harness.process import Turn, take_turn


def test_a_turn_repeats_its_task_until_the_time_has_passed() -> None:
    done: list[int] = []
    now = 0.0

    def task(times: int) -> int:
        nonlocal now
        done.append(times)
        now += 0.5 * times
        return 10 * times

    turn = take_turn(task, 1.2, lambda: now)
    assert done == [1, 3]
    assert (turn.tokens, turn.seconds) == (30, 1.5)


def test_a_task_longer_than_a_turn_is_done_once() -> None:
    ticks: Iterator[float] = iter((0.0, 9.0, 9.0, 17.0))
    turn = take_turn(lambda times: 4 * times, 1.0, lambda: next(ticks))
    assert (turn.tokens, turn.seconds) == (4, 8.0)


def test_a_task_that_has_been_warmed_up_is_done_once_and_no_more() -> None:
    done: list[int] = []

    def task(times: int) -> int:
        done.append(times)
        return 7

    turn = take_turn(task, None)
    assert (done, turn.tokens) == ([1], 7)


def test_speed_is_tokens_over_seconds() -> None:
    assert Turn(30, 1.5, 0).tokens_per_second == 20
