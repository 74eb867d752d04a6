"""Whether the counts of clients and server fit together."""

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


def test_what_is_equal_agrees_and_what_clients_cannot_know_is_free() -> None:
    """Of the four whose end nobody saw, the server answered one, dropped two and never saw one."""
    assert list(mismatches(SEEN, COUNTED, {})) == []


@pytest.mark.parametrize(
    ("name", "count", "problem"),
    [
        ("grpc translate ok", 6, "grpc translate: ok: clients 5, server 6"),
        ("grpc translate ok", 4, "grpc translate: ok: clients 5, server 4"),
        ("rest translate too_large", 0, "rest translate: too_large: clients 1, server 0"),
        ("rest translate internal", 1, "rest translate: internal: clients 0, server 1"),
        ("grpc translate_stream ok", 1, "grpc translate_stream: ok: clients 2, server 1"),
        ("grpc translate_stream cancelled", 4, "the server counts 5 requests more than clients know of, at most 4"),
        ("rest translate_stream ok", 1, "rest translate_stream: ok: clients 0, server 1"),
    ],
)
def test_a_request_too_many_or_too_few_is_told(name: str, count: int, problem: str) -> None:
    (found,) = mismatches(SEEN, {**COUNTED, name: count}, {})
    assert problem in found


def test_a_killed_client_may_have_sent_what_nobody_else_knows() -> None:
    counted = {**COUNTED, "rest translate_stream cancelled": 4}
    assert list(mismatches(SEEN, counted, {"rest-stream": 4})) == []
    assert len(list(mismatches(SEEN, counted, {"rest-stream": 3}))) == 1
