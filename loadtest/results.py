"""Results of runs as plain values, and their JSON document; every report is rendered from them.

A run whose generator was late is void, because its latency would be charged to the server.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from pydantic import TypeAdapter

from dragoman.loadtest.clients import GONE, OK
from dragoman.loadtest.measurement import Run
from dragoman.loadtest.plan import Part
from dragoman.loadtest.samples import Durations, PercentilePoint, Percentiles, Samples, curve, failed_share, percentile
from dragoman.loadtest.scenario import Objective, Scenario
from dragoman.loadtest.server_metrics import PhaseTime, ServerState, phase_times, rows_per_step
from dragoman.model.provenance import Provenance

# Largest number of slices of a phase, and their smallest length.
MAX_POINTS = 120
MIN_SLICE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RequestsResult:
    """Counts and percentiles of some requests: `sent` equals `ok + gone + failed`. Percentiles are None without values.

    `good` are answered within the bounds of the objective, `gone` canceled by their clients on purpose. `errors` are
    the failed ones by status and reason. The lag is the delay of the generator.
    """

    sent: int
    ok: int
    good: int
    gone: int
    errors: dict[str, int]
    latency_seconds: Percentiles | None
    first_token_seconds: Percentiles | None
    lag_seconds: Percentiles | None

    @property
    def failed(self) -> int:
        """Failed requests."""
        return sum(self.errors.values())

    @property
    def failed_share(self) -> float:
        """Share of failed requests, without canceled ones; 0 if there are none."""
        return failed_share(self.failed, self.ok)


@dataclass(frozen=True, slots=True)
class Point:
    """A slice of a run with its middle and requests; latencies are in seconds, None without answers."""

    seconds: float
    sent_per_second: float
    ok_per_second: float
    failed_per_second: float
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class ServerPoint:
    """Server metrics at seconds of the run; `rows_per_step` is the mean since the last point, None without steps."""

    seconds: float
    rows: int
    waiting: int
    rows_per_step: float | None


@dataclass(frozen=True, slots=True)
class ServerResult:
    """Server metrics over a run: slots, points over time, phases by name, CPU time, and resident memory at the end."""

    slots: int
    points: list[ServerPoint]
    phases: dict[str, PhaseTime]
    cpu_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one phase, without its warm-up.

    Attributes:
        users: of a closed loop, which measures no latency under load; None for an open loop.
        offered_per_second: planned requests; in a closed loop, sent requests.
        requests_per_second: answered requests, until the last answer.
        goodput_per_second: requests answered within the bounds of the objective.
        server: None if the server's metrics could not be read.
        void: why the run is void; None if it is valid.
    """

    name: str
    users: int | None
    seconds: float
    offered_per_second: float
    requests_per_second: float
    texts_per_second: float
    goodput_per_second: float
    meets_objective: bool
    all: RequestsResult
    kinds: dict[str, RequestsResult]
    points: list[Point]
    curve: list[PercentilePoint]
    server: ServerResult | None
    void: str | None


def result_of(run: Run, part: Part, objective: Objective, max_lag_seconds: float) -> RunResult:
    """Returns the result of a phase of an ended run; void if the p99 of its open-loop lag is too high."""
    name, begin_seconds, end_seconds = part
    seconds = end_seconds - begin_seconds
    samples = run.samples.between(begin_seconds, end_seconds)
    elapsed_seconds = max(end_seconds, samples.last_seconds) - begin_seconds
    offered = len(samples.begun) if run.users is not None else run.plan.planned(begin_seconds, end_seconds)
    return RunResult(
        name=name,
        users=run.users,
        seconds=seconds,
        offered_per_second=offered / seconds,
        requests_per_second=samples.outcomes[OK] / elapsed_seconds,
        texts_per_second=int(samples.answered["texts"].sum()) / elapsed_seconds,
        goodput_per_second=samples.good(objective) / elapsed_seconds,
        meets_objective=samples.meets(objective),
        all=_requests_result(samples, objective),
        kinds={name: _requests_result(kind, objective) for name, kind in samples.kinds().items()},
        points=list(_points(samples, begin_seconds, end_seconds)),
        curve=list(curve(samples.latency)),
        server=_server_result(run.states, begin_seconds, end_seconds),
        void=why_void(samples.lag, max_lag_seconds) if run.users is None else None,
    )


def _requests_result(samples: Samples, objective: Objective) -> RequestsResult:
    counts, durations = samples.outcomes, (samples.latency, samples.first_token, samples.lag)
    return RequestsResult(
        len(samples.begun),
        counts[OK],
        samples.good(objective),
        counts[GONE],
        samples.errors,
        *map(Percentiles.of, durations),
    )


def why_void(lag: Durations, max_lag_seconds: float) -> str | None:
    """Returns why a run with this lag is void; None if it is valid."""
    late_seconds = percentile(lag, 99)
    if late_seconds is None:
        return "no request was sent after the warm-up; raise the rate or the duration"
    if late_seconds > max_lag_seconds:
        measured, bound = late_seconds * 1000, max_lag_seconds * 1000
        problem = f"the generator was late: lag p99 {measured:.1f} ms exceeds {bound:.1f} ms"
        return f"{problem}; use a lower rate, more processes or a faster machine"
    return None


def _points(samples: Samples, begin_seconds: float, end_seconds: float) -> Iterator[Point]:
    count = max(1, min(MAX_POINTS, int((end_seconds - begin_seconds) / MIN_SLICE_SECONDS)))
    for begin, end in pairwise(np.linspace(begin_seconds, end_seconds, count + 1).tolist()):
        part, seconds = samples.between(begin, end), end - begin
        latency, counts = part.latency, part.outcomes
        yield Point(
            (begin + end) / 2,
            len(part.begun) / seconds,
            counts[OK] / seconds,
            sum(part.errors.values()) / seconds,
            percentile(latency, 50),
            percentile(latency, 99),
        )


def _server_result(
    states: Sequence[tuple[float, ServerState]], begin_seconds: float, end_seconds: float
) -> ServerResult | None:
    """Returns the metrics between two times, including the last reading before and the first after."""
    before = [index for index, (seconds, _) in enumerate(states) if seconds <= begin_seconds]
    after = [index for index, (seconds, _) in enumerate(states) if seconds >= end_seconds]
    wanted = states[before[-1] if before else 0 : after[0] + 1 if after else len(states)]
    # Counters restart at zero when the server restarts.
    if not wanted or any(last.cpu_seconds < first.cpu_seconds for (_, first), (_, last) in pairwise(wanted)):
        return None
    (_, first), (_, last) = wanted[0], wanted[-1]
    points = [
        ServerPoint(seconds, state.rows, state.waiting, rows_per_step(earlier, state))
        for (_, earlier), (seconds, state) in pairwise(wanted)
    ]
    phases = {name: time for name, time in phase_times(first, last).items() if time.times}
    return ServerResult(last.slots, points, phases, last.cpu_seconds - first.cpu_seconds, last.resident_bytes)


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """The capacity, if any, tried rates and those from 0.1 to 2 times of it; void if the generator limits it."""

    objective: str
    bound_seconds: float
    capacity_per_second: float | None
    trials: list[RunResult]
    curve: list[RunResult]
    void: str | None = None


@dataclass(frozen=True, slots=True)
class LoadDocument:
    """All results of one command, its settings, scenario and provenance; `sentences` counts them and their words."""

    provenance: Provenance
    settings: dict[str, object]
    scenario: Scenario
    sentences: dict[str, float]
    runs: list[RunResult]
    capacity: CapacityResult | None
    void: bool


# Reads and writes documents.
DOCUMENTS = TypeAdapter(LoadDocument)


def to_line(document: LoadDocument) -> str:
    """Serializes a document as one line of JSON, without the data of the plots."""
    runs = {"__all__": {"points", "curve", "server"}}
    return DOCUMENTS.dump_json(document, exclude={"runs": runs, "capacity": {"trials": runs, "curve": runs}}).decode()
