"""What runs found, as plain values; every report is made of these.

A run whose generator was late is void: its latencies would blame the server for it. Made of a `Run`; knows no format.

All that a call of `dragoman load` found, as one JSON document: every report is made of it, and can be made again.

Knows results and no format but JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from loadtest.clients import GONE, OK
from loadtest.measurement import Run
from loadtest.server_metrics import ServerState, phase_times, rows_per_step
from loadtest.tally import LatencyHistogram, Percentiles, Tally, span

Loop = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class RequestsResult:
    """What became of some requests; `sent` is `ok`, `gone` and the sum of the others.

    Attributes:
        sent: how many were sent.
        ok: how many were answered.
        good: how many of these soon enough for the objective; all, if there is none.
        gone: how many their clients left alone, as they were meant to.
        errors: the others, by status and reason.
        latency_seconds: of the answered ones; None: there were none.
        first_token_seconds: of those that were streamed; None: there were none.
        lag_seconds: how late all were sent; None: none was sent.
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
        """The sum of the others."""
        return sum(self.errors.values())


@dataclass(frozen=True, slots=True)
class Point:
    """A slice of a run; times are seconds from the start of the run, of which the warm-up is the first part.

    Attributes:
        seconds: its middle.
        sent_per_second, ok_per_second, failed_per_second: requests that were intended in it.
        p50, p99: of their latency, in seconds; None: none was answered.
    """

    seconds: float
    sent_per_second: float
    ok_per_second: float
    failed_per_second: float
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class ServerPoint:
    """What the server said at a moment, or since the moment before.

    Attributes:
        seconds: from the start of the run.
        rows: that were running.
        waiting: sequences in the queue.
        rows_per_step: mean of the runs of the decoder since the point before; None: there were none.
    """

    seconds: float
    rows: int
    waiting: int
    rows_per_step: float | None


@dataclass(frozen=True, slots=True)
class ServerPhase:
    """A phase of the server's work, warm-up included."""

    times: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server said of itself.

    Attributes:
        slots: for rows.
        points: over time.
        phases: by name.
        cpu_seconds: that it used.
        resident_bytes: of its process at the end.
    """

    slots: int
    points: list[ServerPoint]
    phases: dict[str, ServerPhase]
    cpu_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one phase of a load found; warm-up requests were sent but are not in it.

    Attributes:
        name: of the phase.
        loop: "open", or "closed": then users waited for their answers, and latencies say little.
        users: in a closed loop, how many.
        seconds: length of the measured time.
        windows: how many repetitions the figures are of, and how many there were.
        stable: whether those agreed; None: it was not asked.
        offered_per_second: requests that were to be sent; in a closed loop, that were.
        requests_per_second: answered ones, until the last answer.
        texts_per_second: the same, counted in texts.
        goodput_per_second: those that were answered soon enough.
        all: requests of every kind.
        kinds: the same of each kind.
        points: over time.
        curve: percentiles of the latency: pairs of percent and seconds.
        server: None: it said nothing.
        void: why the run proves nothing; None if it stands.
    """

    name: str
    loop: Loop
    users: int | None
    seconds: float
    windows: tuple[int, int]
    stable: bool | None
    offered_per_second: float
    requests_per_second: float
    texts_per_second: float
    goodput_per_second: float
    all: RequestsResult
    kinds: dict[str, RequestsResult]
    points: list[Point]
    curve: list[tuple[float, float]]
    server: ServerResult | None
    void: str | None


def results_of(run: Run, max_lag_seconds: float) -> list[RunResult]:
    """Returns the result of each phase of a run.

    Args:
        run: that has ended.
        max_lag_seconds: the run is void if the lag's p99 exceeds it in the open loop.
    """
    return [_phase_result(run, phase, max_lag_seconds) for phase in run.record.phases]


def _phase_result(run: Run, phase: str, max_lag_seconds: float) -> RunResult:
    record = run.record
    # Of windows that were repeated until they agreed, the last ones count.
    windows = None if run.stable is None else range(len(run.windows))[-3:]
    numbers = record.slices_of(phase, windows)
    slices = [record.plan.slices[number] for number in numbers]
    begin_seconds, end_seconds = span(slices)
    tally = record.tally(numbers)
    elapsed_seconds = max(end_seconds, tally.last_seconds) - begin_seconds
    planned = record.planned()
    offered = tally.sent if record.users is not None else sum(planned[number] for number in numbers)
    return RunResult(
        name=phase,
        loop="open" if record.users is None else "closed",
        users=record.users,
        seconds=end_seconds - begin_seconds,
        windows=(len({each.window for each in slices}), max(len(run.windows), 1)),
        stable=run.stable,
        offered_per_second=offered / (end_seconds - begin_seconds),
        requests_per_second=tally.ok / elapsed_seconds,
        texts_per_second=tally.texts / elapsed_seconds,
        goodput_per_second=tally.good / elapsed_seconds,
        all=requests_result(tally),
        kinds={kind: requests_result(record.tally_of_kind(kind, phase, windows)) for kind in record.kinds},
        points=[_point(run, number) for number in numbers],
        curve=list(tally.latency.curve()),
        server=_server_result(run.states, begin_seconds, end_seconds),
        void=why_void(tally.lag, max_lag_seconds) if record.users is None else None,
    )


def requests_result(tally: Tally) -> RequestsResult:
    """Returns a tally as plain values."""
    errors = {outcome: count for outcome, count in sorted(tally.outcomes.items()) if outcome not in (OK, GONE)}
    return RequestsResult(
        tally.sent,
        tally.ok,
        tally.good,
        tally.gone,
        errors,
        tally.latency.percentiles(),
        tally.first_token.percentiles(),
        tally.lag.percentiles(),
    )


def why_void(lag: LatencyHistogram, max_lag_seconds: float) -> str | None:
    """Returns why a run with such lags proves nothing; None if it stands."""
    late_seconds = lag.percentile(99)
    if late_seconds is None:
        return "no request was sent after the warm-up: raise the rate or the duration"
    if late_seconds > max_lag_seconds:
        measured, bound = late_seconds * 1000, max_lag_seconds * 1000
        problem = f"the generator was late: lag p99 {measured:.1f} ms exceeds {bound:.1f} ms"
        return f"{problem}; use a lower rate, more processes or a faster machine"
    return None


def _point(run: Run, number: int) -> Point:
    each = run.record.plan.slices[number]
    tally = run.record.tally([number])
    seconds = each.end_seconds - each.begin_seconds
    return Point(
        (each.begin_seconds + each.end_seconds) / 2,
        tally.sent / seconds,
        tally.ok / seconds,
        tally.failed / seconds,
        tally.latency.percentile(50),
        tally.latency.percentile(99),
    )


def _server_result(
    states: Sequence[tuple[float, ServerState]], begin_seconds: float, end_seconds: float
) -> ServerResult | None:
    """Returns what the server said between two moments, the last word before and the first one after included."""
    before = [place for place, (seconds, _) in enumerate(states) if seconds <= begin_seconds]
    after = [place for place, (seconds, _) in enumerate(states) if seconds >= end_seconds]
    wanted = states[before[-1] if before else 0 : after[0] + 1 if after else len(states)]
    # A server that was started again begins to count anew.
    if not wanted or any(last.cpu_seconds < first.cpu_seconds for (_, first), (_, last) in pairwise(wanted)):
        return None
    (_, first), (_, last) = wanted[0], wanted[-1]
    points = [
        ServerPoint(seconds, state.rows, state.waiting, rows_per_step(earlier, state))
        for (_, earlier), (seconds, state) in pairwise(wanted)
    ]
    phases = {
        name: ServerPhase(each.times, each.seconds) for name, each in phase_times(first, last).items() if each.times
    }
    return ServerResult(last.slots, points, phases, last.cpu_seconds - first.cpu_seconds, last.resident_bytes)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What became of one offered rate.

    Attributes:
        offered_per_second: requests that were to be sent.
        requests_per_second: that were answered.
        goodput_per_second: that were answered soon enough.
        latency_seconds: of the answered ones; None: there were none.
        failed_share: of what was sent.
        void: why the point proves nothing.
    """

    offered_per_second: float
    requests_per_second: float
    goodput_per_second: float
    latency_seconds: Percentiles | None
    failed_share: float
    void: str | None


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """The highest rate that meets an objective, and what becomes of rates around it.

    Attributes:
        objective: in words.
        bound_seconds: of the latency.
        capacity_per_second: the highest rate that met it; None: none did.
        trials: every rate that was tried, in the order of the search.
        curve: rates from a tenth of the capacity to twice as much.
        void: why it is the generator's capacity rather than the server's, if it is.
    """

    objective: str
    bound_seconds: float
    capacity_per_second: float | None
    trials: list[CurvePoint]
    curve: list[CurvePoint]
    void: str | None = None


@dataclass(frozen=True, slots=True)
class LoadDocument:
    """All that a call of a command found.

    Attributes:
        command: that was called.
        machine: on which it ran.
        versions: of what generated the load.
        date: when, in UTC.
        settings: every option.
        sentences: what was translated: how many, and their words.
        runs: in their order.
        capacity: if it was searched for.
        void: whether any run is void.
    """

    command: str
    machine: str
    versions: str
    date: str
    settings: dict[str, object]
    sentences: dict[str, float]
    runs: list[RunResult]
    capacity: CapacityResult | None
    void: bool


_DOCUMENTS = TypeAdapter(LoadDocument)


def to_json(document: LoadDocument) -> bytes:
    """Returns a document as JSON."""
    return _DOCUMENTS.dump_json(document, indent=1)


def to_line(document: LoadDocument) -> str:
    """Returns what a document says in one line of JSON: all but what only pictures need."""
    left_out = {"points", "curve", "server"}
    return _DOCUMENTS.dump_json(document, exclude={"runs": {"__all__": left_out}}).decode()


def from_json(content: bytes) -> LoadDocument:
    """Returns a document that `to_json` wrote.

    Raises:
        ValueError: if it is none.
    """
    try:
        return _DOCUMENTS.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"no report of `dragoman load`: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
