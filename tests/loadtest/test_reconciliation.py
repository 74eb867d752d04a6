"""Reconciliation of client-side and server-side counts."""

import pytest

from loadtest.scenario import LoadProtocol
from loadtest.server_metrics import mismatches

SEEN: dict[LoadProtocol, dict[str, int]] = {
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
        ("grpc translate ok", 6, "grpc translate: ok: clients 5, server 6"),
        ("grpc translate ok", 4, "grpc translate: ok: clients 5, server 4"),
        ("rest translate too_large", 0, "rest translate: too_large: clients 1, server 0"),
        ("rest translate internal", 1, "rest translate: internal: clients 0, server 1"),
        ("grpc translate_stream ok", 1, "grpc translate_stream: ok: clients 2, server 1"),
        ("grpc translate_stream cancelled", 4, "grpc translate_stream: server: "),
        ("rest translate_stream ok", 1, "rest translate_stream: ok: clients 0, server 1"),
    ],
)
def test_a_different_count_is_reported(name: str, count: int, problem: str) -> None:
    (found,) = mismatches(SEEN, {**COUNTED, name: count}, {})
    assert problem in found


def test_requests_of_killed_clients_are_tolerated_up_to_their_number() -> None:
    counted = {**COUNTED, "rest translate_stream cancelled": 4}
    assert list(mismatches(SEEN, counted, {"rest-stream": 4})) == []
    assert len(list(mismatches(SEEN, counted, {"rest-stream": 3}))) == 1
