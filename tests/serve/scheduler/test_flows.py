"""The rounds of fair queuing."""

from serve.scheduler.queue import Flows


def test_the_first_of_every_flow_belongs_to_the_same_round() -> None:
    flows = Flows()
    assert [flows.enter("long", 1), flows.enter("long", 1), flows.enter("short", 1)] == [0, 1, 0]


def test_a_round_holds_as_many_rows_of_each_flow() -> None:
    """Three rows of a wide flow take the rounds of three sequences of a narrow one."""
    flows = Flows()
    assert [flows.enter("wide", 3), flows.enter("wide", 3)] == [0, 3]
    assert [flows.enter("narrow", 1) for _ in range(4)] == [0, 1, 2, 3]


def test_a_flow_that_comes_later_joins_in_the_round_after_the_latest_start() -> None:
    flows = Flows()
    rounds = [flows.enter("early", 1) for _ in range(5)]
    flows.start(rounds[2])
    assert flows.enter("late", 1) == 3


def test_a_start_of_an_earlier_round_does_not_turn_the_rounds_back() -> None:
    flows = Flows()
    flows.start(5)
    flows.start(2)
    assert flows.enter("late", 1) == 6


def test_a_flow_has_no_credit_for_the_time_it_was_away() -> None:
    flows = Flows()
    flows.enter("idle", 1)
    for _ in range(3):
        flows.start(flows.enter("busy", 1))
    assert flows.enter("idle", 1) == flows.enter("new", 1) == 3


def test_a_flow_is_forgotten_with_its_last_sequence() -> None:
    flows = Flows()
    for flow in ("a", "a", "b"):
        flows.enter(flow, 1)
    flows.leave("a")
    assert len(flows) == 2
    flows.leave("a")
    assert len(flows) == 1
    flows.leave("b")
    assert not flows
