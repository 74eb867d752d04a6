"""What the server says of itself while it is under load: rows, queue and the time of its phases, from /metrics.

Another server than ours has other metrics or none: then nothing is known, which is no failure. Knows the names of
`serve.observability.metrics`, and no clock.

Whether clients and server count the same requests: what clients saw beside what the server's metrics say.

A client that went away, or whose deadline passed, does not know what became of its request: the server may have
answered it, dropped it or never seen it. Everything else has to be equal, outcome by outcome. Knows no connection.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from loadtest.clients import GONE, OK, TIMED_OUT, Targets, open_session
from loadtest.scenario import LoadProtocol

# Protocol and method, as the label values of the server's metrics.
INTERFACES: dict[LoadProtocol, str] = {
    "grpc": "grpc translate",
    "grpc-stream": "grpc translate_stream",
    "grpc-many": "grpc translate_many",
    "rest": "rest translate",
    "rest-stream": "rest translate_stream",
}
UNKNOWN_TO_CLIENTS = frozenset({GONE, TIMED_OUT, "DEADLINE_EXCEEDED"})
# Outcomes of the server by what clients of gRPC are told; REST tells the very reason.
_STATUSES = {OK: "ok", "INVALID_ARGUMENT": "invalid", "RESOURCE_EXHAUSTED": "queue_full", "INTERNAL": "internal"}


def mismatches(
    seen: Mapping[LoadProtocol, Mapping[str, int]], counted: Mapping[str, int], killed: Mapping[LoadProtocol, int]
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


METRICS_PATH = "/metrics"
TIMEOUT_SECONDS = 2.0
# Histograms whose sums are the phases of requests and of engines, by what they are called in reports.
PHASES = {
    "tokenize": "dragoman_request_tokenize_seconds",
    "queue, of sequences": "dragoman_request_queue_seconds",
    "inference": "dragoman_request_inference_seconds",
    "first token, of sequences": "dragoman_time_to_first_token_seconds",
    "encoder runs": "dragoman_engine_step_seconds encode",
    "decoder runs": "dragoman_engine_step_seconds decode",
}
_DECODED = "dragoman_engine_step_sequences decode"

Figure = TypeVar("Figure", int, float)


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server says at a moment, summed over its models.

    Attributes:
        rows: that are running.
        slots: for rows.
        waiting: sequences in the queue.
        in_flight: requests that are not answered yet.
        requests: that have ended since the server started, by protocol, method and outcome, as in "grpc translate ok".
        totals: sums of its histograms since it started, in seconds or sequences, by name and phase.
        counts: how many observations these sums have.
        cpu_seconds: that the process has used.
        resident_bytes: of the process.
        open_files: of the process.
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
        """Returns what the text of /metrics says; None if it is not that of our server."""
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
    """A phase of a server's work.

    Attributes:
        times: how often it was gone through.
        seconds: all of them together.
    """

    times: int
    seconds: float


def phase_times(first: ServerState, last: ServerState) -> dict[str, PhaseTime]:
    """Returns the phases between two moments, by name."""
    return {
        label: PhaseTime(int(last.counts[name] - first.counts[name]), last.totals[name] - first.totals[name])
        for label, name in PHASES.items()
    }


def rows_per_step(first: ServerState, last: ServerState) -> float | None:
    """Returns how many sequences a run of the decoder computed on average between two moments; None: none ran."""
    steps = last.counts[_DECODED] - first.counts[_DECODED]
    return (last.totals[_DECODED] - first.totals[_DECODED]) / steps if steps > 0 else None


def together(states: Sequence[ServerState]) -> ServerState:
    """Returns what servers say as if they were one: every figure is the sum of theirs."""

    def added(figures: Iterable[Mapping[str, Figure]]) -> dict[str, Figure]:
        total: dict[str, Figure] = {}
        for each in figures:
            for name, figure in each.items():
                total[name] = total[name] + figure if name in total else figure
        return total

    return ServerState(
        rows=sum(each.rows for each in states),
        slots=sum(each.slots for each in states),
        waiting=sum(each.waiting for each in states),
        in_flight=sum(each.in_flight for each in states),
        requests=added(each.requests for each in states),
        totals=added(each.totals for each in states),
        counts=added(each.counts for each in states),
        cpu_seconds=sum(each.cpu_seconds for each in states),
        resident_bytes=sum(each.resident_bytes for each in states),
        open_files=sum(each.open_files for each in states),
    )


def _suffixed(name: str, suffix: str) -> str:
    series, _, phase = name.partition(" ")
    return f"{series}{suffix} {phase}".rstrip()


class MetricsReader:
    """Reads /metrics of a server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        """Keeps the session, whose base URL is the server's."""
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, targets: Targets) -> AsyncIterator[Self]:
        """Opens a connection to a server and closes it."""
        async with open_session(targets.rest, targets.security) as session:
            yield cls(session)

    async def read(self, timeout_seconds: float = TIMEOUT_SECONDS) -> ServerState | None:
        """Returns what the server says now; None if it says nothing in time, or nothing that is known."""
        try:
            async with self._session.get(METRICS_PATH, timeout=aiohttp.ClientTimeout(timeout_seconds)) as response:
                text = await response.text()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return None
        try:
            # Seconds of text on a loaded machine: the event loop has others to listen to.
            return await asyncio.to_thread(ServerState.parse, text)
        except (ValueError, KeyError):
            return None
