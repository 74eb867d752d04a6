"""The metrics of a real server, and the reconciliation of client-side and server-side counts."""

import pytest

from loadtest.server_metrics import PHASES, ServerState, mismatches, phase_times, rows_per_step, together
from tests.support.live import LiveService


def state_of(live: LiveService) -> ServerState:
    state = ServerState.parse(live.get("/metrics").text)
    assert state is not None
    return state


def test_metrics_hold_rows_requests_and_phases(live: LiveService) -> None:
    before = state_of(live)
    assert live.post({"text": ["alpha beta.", "one two three."]}).status_code == 200
    live.settle()
    after = state_of(live)
    assert (after.slots, after.rows, after.waiting, after.in_flight) == (8, 0, 0, 0)
    assert after.requests["rest translate ok"] == before.requests["rest translate ok"] + 1
    times = phase_times(before, after)
    assert set(times) == set(PHASES)
    assert (times["tokenize"].times, times["queue, of sequences"].times) == (1, 2)
    assert times["decoder runs"].times > 0
    assert rows_per_step(before, after) is not None
    assert rows_per_step(after, after) is None
    assert after.cpu_seconds > 0


def test_metrics_of_replicas_add_up(live: LiveService) -> None:
    state = state_of(live)
    both = together([state, state])
    assert (both.slots, both.cpu_seconds) == (2 * state.slots, 2 * state.cpu_seconds)
    assert both.requests == {name: 2 * count for name, count in state.requests.items()}


def test_metrics_of_another_server_are_not_parsed() -> None:
    assert ServerState.parse("# TYPE requests counter\nrequests_total 5.0\n") is None


SEEN: dict[str, dict[str, int]] = {
    "grpc": {"ok": 5, "INVALID_ARGUMENT": 2},
    "rest": {"ok": 3, "413 too_large": 1},
    "grpc-stream": {"ok": 2, "gone": 3, "DEADLINE_EXCEEDED": 1},
}
COUNTED = {
    "grpc translate ok": 5,
    "grpc translate invalid": 2,
    "rest translate ok": 3,
    "rest translate too_large": 1,
    "grpc translate_stream ok": 3,
    "grpc translate_stream cancelled": 2,
    "rest other ok": 7,
}


def test_equal_counts_match_and_unknown_outcomes_are_tolerated() -> None:
    """Of the four requests with an unknown outcome, the server answered one, dropped two and never received one."""
    assert list(mismatches(SEEN, COUNTED, {})) == []


@pytest.mark.parametrize(
    ("name", "count", "problem"),
    [
        ("grpc translate ok", 6, "grpc translate: ok: "),
        ("grpc translate ok", 4, "grpc translate: ok: "),
        ("rest translate too_large", 0, "rest translate: too_large: "),
        ("rest translate internal", 1, "rest translate: internal: "),
        ("grpc translate_stream ok", 1, "grpc translate_stream: ok: "),
        ("grpc translate_stream cancelled", 4, "grpc translate_stream: server: "),
        ("rest translate_stream ok", 1, "rest translate_stream: ok: "),
    ],
)
def test_a_different_count_is_reported(name: str, count: int, problem: str) -> None:
    (found,) = mismatches(SEEN, {**COUNTED, name: count}, {})
    assert found.startswith(problem)


def test_requests_of_killed_clients_are_tolerated_up_to_their_number() -> None:
    counted = {**COUNTED, "rest translate_stream cancelled": 4}
    assert list(mismatches(SEEN, counted, {"rest-stream": 4})) == []
    assert len(list(mismatches(SEEN, counted, {"rest-stream": 3}))) == 1
