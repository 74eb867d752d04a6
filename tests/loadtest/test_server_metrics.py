"""The metrics of a real server."""

from dragoman.loadtest.server_metrics import PHASES, ServerState, phase_times, rows_per_step
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
    assert (after.slots, after.rows, after.waiting, after.is_idle) == (8, 0, 0, True)
    assert after.requests["rest translate ok"] == before.requests["rest translate ok"] + 1
    times = phase_times(before, after)
    assert set(times) == set(PHASES)
    assert (times["tokenize"].times, times["queue, of sequences"].times) == (1, 2)
    assert times["decoder runs"].times > 0
    assert rows_per_step(before, after) is not None
    assert rows_per_step(after, after) is None
    assert after.cpu_seconds > 0


def test_metrics_of_another_server_are_not_parsed() -> None:
    assert ServerState.parse("# TYPE requests counter\nrequests_total 5.0\n") is None
