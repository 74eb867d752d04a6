"""The rounds of fair queuing."""

from serve.scheduler.queue import FairRounds


def test_the_first_of_every_flow_belongs_to_the_same_round() -> None:
    fairness_keys = FairRounds()
    assert [fairness_keys.enter("long", 1), fairness_keys.enter("long", 1), fairness_keys.enter("short", 1)] == [
        0,
        1,
        0,
    ]


def test_a_round_holds_as_many_rows_of_each_flow() -> None:
    """Three rows of a wide key take the rounds of three sequences of a narrow one."""
    fairness_keys = FairRounds()
    assert [fairness_keys.enter("wide", 3), fairness_keys.enter("wide", 3)] == [0, 3]
    assert [fairness_keys.enter("narrow", 1) for _ in range(4)] == [0, 1, 2, 3]


def test_a_flow_that_comes_later_joins_in_the_round_after_the_latest_start() -> None:
    fairness_keys = FairRounds()
    rounds = [fairness_keys.enter("early", 1) for _ in range(5)]
    fairness_keys.start(rounds[2])
    assert fairness_keys.enter("late", 1) == 3


def test_a_start_of_an_earlier_round_does_not_turn_the_rounds_back() -> None:
    fairness_keys = FairRounds()
    fairness_keys.start(5)
    fairness_keys.start(2)
    assert fairness_keys.enter("late", 1) == 6


def test_a_flow_has_no_credit_for_the_time_it_was_away() -> None:
    fairness_keys = FairRounds()
    fairness_keys.enter("idle", 1)
    for _ in range(3):
        fairness_keys.start(fairness_keys.enter("busy", 1))
    assert fairness_keys.enter("idle", 1) == fairness_keys.enter("new", 1) == 3


def test_a_flow_is_forgotten_with_its_last_sequence() -> None:
    fairness_keys = FairRounds()
    for fairness_key in ("a", "a", "b"):
        fairness_keys.enter(fairness_key, 1)
    fairness_keys.leave("a")
    assert len(fairness_keys) == 2
    fairness_keys.leave("a")
    assert len(fairness_keys) == 1
    fairness_keys.leave("b")
    assert not fairness_keys
