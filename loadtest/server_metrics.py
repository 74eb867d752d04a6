"""Server metrics under load (rows, queue and phases, from /metrics), and their reconciliation with client-side counts.

A server without these metrics yields no state, which is not an error. The client of a canceled or timed-out request
does not learn its outcome on the server. All other counts must match, outcome by outcome.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from loadtest.clients import GONE, OK, TIMED_OUT, Targets, open_session
from loadtest.protocols import PROTOCOLS
from loadtest.scenario import LoadProtocol

UNKNOWN_TO_CLIENTS = frozenset({GONE, TIMED_OUT, "DEADLINE_EXCEEDED"})
# Server outcomes by gRPC status; over REST the outcome holds the reason itself.
_STATUSES = {OK: "ok", "INVALID_ARGUMENT": "invalid", "RESOURCE_EXHAUSTED": "queue_full", "INTERNAL": "internal"}


def mismatches(
    seen: Mapping[LoadProtocol, Mapping[str, int]], counted: Mapping[str, int], killed: Mapping[LoadProtocol, int]
) -> Iterator[str]:
    """Yields the differences between the counts of clients and server.

    Args:
        seen: client-side counts by protocol and outcome.
        counted: server-side counts by protocol, method and outcome, as in "grpc translate ok".
        killed: upper bound of the requests that killed clients sent, by protocol.
    """
    for protocol, interface in ((name, each.interface) for name, each in PROTOCOLS.items()):
        outcomes = seen.get(protocol, {})
        unknown = sum(count for outcome, count in outcomes.items() if outcome in UNKNOWN_TO_CLIENTS)
        clients: Counter[str] = Counter()
        for outcome, count in outcomes.items():
            if outcome not in UNKNOWN_TO_CLIENTS:
                clients[_reason(outcome)] += count
        server = Counter(
            {
                name.removeprefix(f"{interface} "): count
                for name, count in counted.items()
                if name.startswith(f"{interface} ")
            }
        )
        yield from _compare(interface, clients, server, unknown + killed.get(protocol, 0))


def _compare(interface: str, clients: Counter[str], server: Counter[str], unknown: int) -> Iterator[str]:
    for reason in sorted(clients.keys() | server.keys()):
        if server[reason] < clients[reason]:
            yield f"{interface}: {reason}: clients {clients[reason]}, server {server[reason]}"
        if not unknown and server[reason] > clients[reason]:
            yield f"{interface}: {reason}: clients {clients[reason]}, server {server[reason]}"
    surplus = server.total() - clients.total()
    if unknown and surplus > unknown:
        yield f"{interface}: server: expected at most {unknown} more requests than clients, got {surplus}"


def _reason(outcome: str) -> str:
    """Converts a client-side outcome to the server's outcome."""
    status, _, reason = outcome.partition(" ")
    return reason if status.isdecimal() and reason else _STATUSES.get(outcome, outcome)


METRICS_PATH = "/metrics"
TIMEOUT_SECONDS = 2.0
# Names in reports, and the histograms whose sums are the phases of requests and engines.
PHASES = {
    "tokenize": "dragoman_request_tokenize_seconds",
    "queue, of sequences": "dragoman_request_queue_seconds",
    "inference": "dragoman_request_inference_seconds",
    "first token, of sequences": "dragoman_time_to_first_token_seconds",
    "encoder runs": "dragoman_engine_step_seconds encode",
    "decoder runs": "dragoman_engine_step_seconds decode",
}
_DECODED = "dragoman_engine_step_sequences decode"


@dataclass(frozen=True, slots=True)
class ServerState:
    """Metrics of a server at one time, summed over its models.

    Attributes:
        waiting: sequences in the queue.
        requests: ended requests by protocol, method and outcome, as in "grpc translate ok".
        totals: sums of the histograms, in seconds or sequences, by name and phase.
        counts: observations of the histograms, by name and phase.
        cpu_seconds, resident_bytes, open_files: of the process.
    """

    rows: int
    slots: int
    waiting: int
    in_flight: int
    requests: dict[str, int]
    totals: dict[str, float]
    counts: dict[str, float]
    cpu_seconds: float
    resident_bytes: int
    open_files: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parses the text of /metrics; returns None if it is not from this server."""
        values: defaultdict[str, float] = defaultdict(float)
        requests: defaultdict[str, int] = defaultdict(int)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                phase = sample.labels.get("phase")
                values[sample.name if phase is None else f"{sample.name} {phase}"] += sample.value
                if sample.name == "dragoman_requests_total":
                    name = " ".join(sample.labels[label] for label in ("protocol", "method", "outcome"))
                    requests[name] += int(sample.value)
        if "dragoman_slots" not in values:
            return None
        histograms = [*PHASES.values(), _DECODED]
        return cls(
            int(values["dragoman_rows_running"]),
            int(values["dragoman_slots"]),
            int(values["dragoman_sequences_waiting"]),
            int(values["dragoman_inflight_requests"]),
            dict(requests),
            {name: values[_suffixed(name, "_sum")] for name in histograms},
            {name: values[_suffixed(name, "_count")] for name in histograms},
            values["process_cpu_seconds_total"],
            int(values["process_resident_memory_bytes"]),
            int(values["process_open_fds"]),
        )


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Count and total duration of a phase of a server's work."""

    times: int
    seconds: float


def phase_times(first: ServerState, last: ServerState) -> dict[str, PhaseTime]:
    """Returns the phases between two times, by name."""
    return {
        label: PhaseTime(int(last.counts[name] - first.counts[name]), last.totals[name] - first.totals[name])
        for label, name in PHASES.items()
    }


def rows_per_step(first: ServerState, last: ServerState) -> float | None:
    """Returns the mean number of rows per decode step between two times; None without steps."""
    steps = last.counts[_DECODED] - first.counts[_DECODED]
    return (last.totals[_DECODED] - first.totals[_DECODED]) / steps if steps > 0 else None


def together(states: Sequence[ServerState]) -> ServerState:
    """Sums the metrics of several servers."""
    return ServerState(*(_sum([getattr(state, part.name) for state in states]) for part in fields(ServerState)))


def _sum(figures: Sequence[Any]) -> Any:
    """Adds numbers, or mappings of numbers."""
    if not isinstance(figures[0], dict):
        return sum(figures)
    names = dict.fromkeys(name for each in figures for name in each)
    return {name: sum(each.get(name, 0) for each in figures) for name in names}


def _suffixed(name: str, suffix: str) -> str:
    series, _, phase = name.partition(" ")
    return f"{series}{suffix} {phase}".rstrip()


class MetricsReader:
    """Reads /metrics of a server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, targets: Targets) -> AsyncIterator[Self]:
        """Opens a connection to a server and closes it."""
        async with open_session(targets.rest, targets.security) as session:
            yield cls(session)

    async def read(self, timeout_seconds: float = TIMEOUT_SECONDS) -> ServerState | None:
        """Reads the metrics; returns None on a timeout, an error or unknown metrics."""
        try:
            async with self._session.get(METRICS_PATH, timeout=aiohttp.ClientTimeout(timeout_seconds)) as response:
                text = await response.text()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return None
        try:
            # Parsing takes seconds on a loaded machine and would block the event loop.
            return await asyncio.to_thread(ServerState.parse, text)
        except (ValueError, KeyError):
            return None
