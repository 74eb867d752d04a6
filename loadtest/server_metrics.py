"""Server metrics under load, from /metrics: rows, queue, phases and counts of requests.

A server without these metrics yields no state, which is not an error.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from dragoman.loadtest.clients import Targets, open_session

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
class PhaseTime:
    """Count and total duration of a phase of a server's work."""

    times: int
    seconds: float


_LABELS = ("protocol", "method", "outcome", "phase")
_REQUESTS = "dragoman_requests_total "


@dataclass(frozen=True, slots=True)
class ServerState:
    """Metrics of a server at one time, summed over its models, as in "dragoman_requests_total grpc translate ok"."""

    values: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parses the text of /metrics; returns None if it is not from this server."""
        values: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = (sample.labels[label] for label in _LABELS if label in sample.labels)
                values[" ".join([sample.name, *labels])] += sample.value
        return cls(values) if "dragoman_slots" in values else None

    @property
    def rows(self) -> int:
        """Running rows."""
        return int(self.values.get("dragoman_rows_running", 0))

    @property
    def slots(self) -> int:
        """Slots of all engines."""
        return int(self.values.get("dragoman_slots", 0))

    @property
    def waiting(self) -> int:
        """Sequences in the queue."""
        return int(self.values.get("dragoman_sequences_waiting", 0))

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return self.rows == self.waiting == self.values.get("dragoman_inflight_requests", 0) == 0

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process."""
        return self.values.get("process_cpu_seconds_total", 0.0)

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        return int(self.values.get("process_resident_memory_bytes", 0))

    @property
    def requests(self) -> dict[str, int]:
        """Ended requests by protocol, method and outcome, as in "grpc translate ok"."""
        return {name[len(_REQUESTS) :]: int(value) for name, value in self.values.items() if name.startswith(_REQUESTS)}

    def since(self, first: Self, histogram: str) -> tuple[int, float]:
        """Returns number and sum of the observations since an earlier state; the name may be followed by a phase."""
        name, _, phase = histogram.partition(" ")
        count, total = (f"{name}_{part} {phase}".rstrip() for part in ("count", "sum"))
        grown = [self.values.get(item, 0.0) - first.values.get(item, 0.0) for item in (count, total)]
        return int(grown[0]), grown[1]


def phase_times(first: ServerState, last: ServerState) -> dict[str, PhaseTime]:
    """Returns the phases between two times, by name."""
    return {label: PhaseTime(*last.since(first, name)) for label, name in PHASES.items()}


def rows_per_step(first: ServerState, last: ServerState) -> float | None:
    """Returns the mean number of rows per decode step between two times; None without steps."""
    steps, rows = last.since(first, _DECODED)
    return rows / steps if steps > 0 else None


@dataclass(frozen=True, slots=True)
class MetricsReader:
    """Reads /metrics of a server."""

    session: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def open(cls, targets: Targets) -> AsyncIterator[Self]:
        """Opens a connection to a server and closes it."""
        async with open_session(targets.rest, targets.security) as session:
            yield cls(session)

    async def read(self, timeout_seconds: float = TIMEOUT_SECONDS) -> ServerState | None:
        """Reads the metrics; returns None on a timeout, an error or unknown metrics."""
        try:
            async with self.session.get(METRICS_PATH, timeout=aiohttp.ClientTimeout(timeout_seconds)) as response:
                text = await response.text()
            # Parsing takes seconds on a loaded machine and would block the event loop.
            return await asyncio.to_thread(ServerState.parse, text)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, KeyError):
            return None
