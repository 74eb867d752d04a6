"""What a run of the load generator measured: a table for people and a document for machines.

Latencies are those of answered requests; every failed one is counted under its status and reason, so that
`sent = ok + sum(errors)`. A run whose generator was late is void: its latencies would blame the server for it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.generator import OK, Sample


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles by nearest rank, in seconds: the smallest value that at least q % of the values do not exceed."""

    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Distribution | None":
        """Returns the distribution of the values; None if there are none."""
        if not seconds:
            return None
        p50, p90, p99, largest = np.percentile(seconds, (50, 90, 99, 100), method="inverted_cdf").tolist()
        return cls(p50, p90, p99, largest)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one run; warm-up requests were sent but are not in it.

    Attributes:
        protocol: how the requests travelled.
        sent: requests whose intended time lies after the warm-up.
        ok: requests that were answered.
        errors: failed requests by status and reason.
        latency_seconds: from the intended send time to the answer, of the ok requests; None: there were none.
        lag_seconds: from the intended to the actual send time, of all requests; None: there were none.
        max_lag_seconds: the bound on the lag's p99.
        requests_per_second: ok requests over the time from the end of the warm-up to the last answer.
        texts_per_second: the same, counted in texts.
        void: why the run proves nothing; None if it stands.
    """

    protocol: str
    sent: int
    ok: int
    errors: dict[str, int]
    latency_seconds: Distribution | None
    lag_seconds: Distribution | None
    max_lag_seconds: float
    requests_per_second: float
    texts_per_second: float
    void: str | None


def summarize(
    samples: Sequence[Sample],
    *,
    protocol: str,
    warm_up_seconds: float,
    duration_seconds: float,
    texts_per_request: int,
    max_lag_seconds: float,
) -> Report:
    """Returns the report of a run from all its samples, those of the warm-up included.

    Args:
        samples: one per request.
        protocol: named in the report.
        warm_up_seconds: requests intended before it are left out.
        duration_seconds: length of the run after the warm-up.
        texts_per_request: texts in each request.
        max_lag_seconds: the run is void if the lag's p99 exceeds it.
    """
    measured = [sample for sample in samples if sample.intended_seconds >= warm_up_seconds]
    outcomes = Counter(sample.outcome for sample in measured)
    ok = outcomes.pop(OK, 0)
    lag = Distribution.of([sample.lag_seconds for sample in measured])
    end_seconds = max((sample.answered_seconds for sample in measured), default=0.0)
    elapsed_seconds = max(end_seconds - warm_up_seconds, duration_seconds)
    return Report(
        protocol=protocol,
        sent=len(measured),
        ok=ok,
        errors=dict(sorted(outcomes.items())),
        latency_seconds=Distribution.of([sample.latency_seconds for sample in measured if sample.outcome == OK]),
        lag_seconds=lag,
        max_lag_seconds=max_lag_seconds,
        requests_per_second=ok / elapsed_seconds,
        texts_per_second=ok * texts_per_request / elapsed_seconds,
        void=_why_void(lag, max_lag_seconds),
    )


def _why_void(lag: Distribution | None, max_lag_seconds: float) -> str | None:
    if lag is None:
        return "no request was sent after the warm-up: raise the rate or the duration"
    if lag.p99 > max_lag_seconds:
        measured, bound = _milliseconds(lag.p99), _milliseconds(max_lag_seconds)
        return f"the generator was late: lag p99 {measured} exceeds {bound}; use a lower rate or a faster machine"
    return None


def format_table(report: Report) -> str:
    """Returns the report as lines for people."""
    lines = [
        f"{report.protocol}: {report.sent} sent, {report.ok} ok, {report.sent - report.ok} failed",
        f"  {'':10}{'p50':>12}{'p90':>12}{'p99':>12}{'max':>12}",
        _distribution_line("latency", report.latency_seconds),
        _distribution_line("lag", report.lag_seconds),
        f"  throughput {report.requests_per_second:.1f} requests/s, {report.texts_per_second:.1f} texts/s",
    ]
    lines += [f"  failed     {count} x {reason}" for reason, count in report.errors.items()]
    if report.void is not None:
        lines.append(f"  VOID: {report.void}")
    return "\n".join(lines)


def _distribution_line(name: str, distribution: Distribution | None) -> str:
    if distribution is None:
        return f"  {name:10}{'-':>12}{'-':>12}{'-':>12}{'-':>12}"
    values = (distribution.p50, distribution.p90, distribution.p99, distribution.max)
    return f"  {name:10}" + "".join(f"{_milliseconds(value):>12}" for value in values)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
