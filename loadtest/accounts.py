"""Whether clients and server count the same requests: what clients saw beside what the server's metrics say.

A client that went away, or whose deadline passed, does not know what became of its request: the server may have
answered it, dropped it or never seen it. Everything else has to be equal, outcome by outcome. Knows no connection.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from loadtest.client import GONE, OK
from loadtest.request import Protocol
from loadtest.rest_clients import TIMED_OUT

# Protocol and method, as the label values of the server's metrics.
INTERFACES: dict[Protocol, str] = {
    "grpc": "grpc translate",
    "grpc-stream": "grpc translate_stream",
    "grpc-many": "grpc translate_many",
    "rest": "rest translate",
    "rest-stream": "rest translate_stream",
}
UNKNOWN_TO_CLIENTS = frozenset({GONE, TIMED_OUT, "DEADLINE_EXCEEDED"})
# Outcomes of the server by what clients of gRPC are told; REST tells the very reason.
_STATUSES = {OK: "ok", "INVALID_ARGUMENT": "invalid", "RESOURCE_EXHAUSTED": "queue_full", "INTERNAL": "internal"}


def disagreements(
    seen: Mapping[Protocol, Mapping[str, int]], counted: Mapping[str, int], killed: Mapping[Protocol, int]
) -> Iterator[str]:
    """Yields where the counts of clients and server do not fit together.

    Args:
        seen: how many requests ended with which outcome for their clients, by protocol.
        counted: requests of the server by protocol, method and outcome, as in "grpc translate ok".
        killed: requests that killed clients may have sent, at most, by protocol.
    """
    for protocol, interface in INTERFACES.items():
        outcomes = seen.get(protocol, {})
        unknown = sum(count for outcome, count in outcomes.items() if outcome in UNKNOWN_TO_CLIENTS)
        certain: Counter[str] = Counter()
        for outcome, count in outcomes.items():
            if outcome not in UNKNOWN_TO_CLIENTS:
                certain[_reason(outcome)] += count
        theirs = Counter(
            {
                name.removeprefix(f"{interface} "): count
                for name, count in counted.items()
                if name.startswith(f"{interface} ")
            }
        )
        yield from _compare(interface, certain, theirs, unknown + killed.get(protocol, 0))


def _compare(interface: str, certain: Counter[str], theirs: Counter[str], unknown: int) -> Iterator[str]:
    for reason in sorted(certain.keys() | theirs.keys()):
        if theirs[reason] < certain[reason]:
            yield f"{interface}: {reason}: clients {certain[reason]}, server {theirs[reason]}"
        if not unknown and theirs[reason] > certain[reason]:
            yield f"{interface}: {reason}: clients {certain[reason]}, server {theirs[reason]}"
    surplus = theirs.total() - certain.total()
    if unknown and surplus > unknown:
        yield f"{interface}: the server counts {surplus} requests more than clients know of, at most {unknown} may be"


def _reason(outcome: str) -> str:
    """Returns what the server calls an outcome of a client."""
    status, _, reason = outcome.partition(" ")
    return reason if status.isdecimal() and reason else _STATUSES.get(outcome, outcome)
