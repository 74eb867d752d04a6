"""Results as tables, for the terminal and the page."""

from collections.abc import Iterator, Mapping, Sequence

from dragoman.loadtest.results import CapacityResult, RunResult
from dragoman.loadtest.samples import Percentiles
from dragoman.model.markup_table import markup_table

# With fewer requests, the p99.9 rests on the slowest few.
MIN_REQUESTS_FOR_P99_9 = 10_000
NONE = "-"


def milliseconds(seconds: float | None) -> str:
    """Formats a duration in milliseconds, without the unit."""
    return NONE if seconds is None else f"{seconds * 1000:,.1f}"


def percentile(of: Percentiles | None, name: str) -> str:
    """Formats a percentile in milliseconds."""
    return NONE if of is None else milliseconds(getattr(of, name.replace(".", "_")))


def _figures(run: RunResult) -> dict[str, str]:
    requests = run.all
    figures = {
        "loop": "open" if run.users is None else f"CLOSED, {run.users} users",
        "offered, requests/s": f"{run.offered_per_second:,.1f}",
        "answered, requests/s": f"{run.requests_per_second:,.1f}",
        "answered, texts/s": f"{run.texts_per_second:,.1f}",
        "goodput, requests/s": f"{run.goodput_per_second:,.1f}",
        "sent": f"{requests.sent:,}",
        "failed": f"{requests.failed:,}",
        "canceled": f"{requests.gone:,}" if requests.gone else NONE,
    }
    for label, of, names in (
        ("latency", requests.latency_seconds, ("p50", "p90", "p99", "p99.9", "max")),
        ("first token", requests.first_token_seconds, ("p50", "p99")),
        ("generator lag", requests.lag_seconds if run.users is None else None, ("p99",)),
    ):
        figures |= {f"{label} {name}, ms": percentile(of, name) for name in names}
    return figures


def run_table(runs: Mapping[str, RunResult], form: str = "pipe") -> str:
    """Returns the figures of runs, a column for each; a row that is empty for all runs is left out."""
    columns = list(map(_figures, runs.values()))
    rows = [(label, *(column[label] for column in columns)) for label in columns[0]]
    return markup_table(("", *runs), [row for row in rows if set(row[1:]) != {NONE}], form)


def kind_table(runs: Mapping[str, RunResult], form: str = "pipe") -> str:
    """Returns the counts of every kind of requests, for runs with several kinds or with failures; empty without any."""
    rows = [
        (
            f"{name}: {kind}",
            f"{item.sent:,}",
            f"{item.ok:,}",
            percentile(item.latency_seconds, "p50"),
            percentile(item.latency_seconds, "p99"),
            ", ".join(f"{count:,} x {reason}" for reason, count in item.errors.items()) or NONE,
        )
        for name, run in runs.items()
        for kind, item in run.kinds.items()
        if len(run.kinds) > 1 or run.all.errors
    ]
    heading = ("kind of requests", "sent", "ok", "p50, ms", "p99, ms", "failed")
    return markup_table(heading, rows, form) if rows else ""


def curve_table(points: Sequence[RunResult], form: str = "pipe") -> str:
    """Returns the results of offered rates; empty without any."""
    rows = [
        (
            f"{point.offered_per_second:,.1f}{'' if point.void is None else ' VOID'}",
            f"{point.requests_per_second:,.1f}",
            f"{point.goodput_per_second:,.1f}",
            f"{point.all.failed_share:.1%}",
            percentile(point.all.latency_seconds, "p50"),
            percentile(point.all.latency_seconds, "p99"),
        )
        for point in points
    ]
    heading = ("offered/s", "answered/s", "goodput/s", "failed", "p50, ms", "p99, ms")
    return markup_table(heading, rows, form) if rows else ""


def warnings(runs: Mapping[str, RunResult]) -> Iterator[str]:
    """Yields what limits the meaning of the figures."""
    for name, run in runs.items():
        if run.void is not None:
            yield f"{name}: VOID: {run.void}"
        if run.users is not None:
            yield f"{name}: CLOSED LOOP: users wait for their answers, so this does not measure latency under load"
    if few := [name for name, run in runs.items() if run.all.ok < MIN_REQUESTS_FOR_P99_9]:
        yield f"p99.9 is unreliable with fewer than {MIN_REQUESTS_FOR_P99_9:,} answers: {', '.join(few)}"


def summary(capacity: CapacityResult) -> str:
    """Returns the objective and the capacity in one line."""
    found = capacity.capacity_per_second
    first = "no rate meets the objective" if found is None else f"{found:,.1f} requests/s"
    void = "" if capacity.void is None else f"; VOID: all higher rates are void: {capacity.void}"
    return f"capacity ({capacity.objective}): {first}{void}"


def format_runs(runs: Mapping[str, RunResult]) -> str:
    """Formats runs for a terminal."""
    return "\n".join([*filter(None, (run_table(runs), kind_table(runs))), *warnings(runs)])


def format_capacity(capacity: CapacityResult) -> str:
    """Formats the result of a capacity search for a terminal."""
    lines = [summary(capacity), "trials:", curve_table(capacity.trials)]
    if capacity.curve:
        lines += ["from 0.1 to 2 times the capacity:", curve_table(capacity.curve)]
    return "\n".join(lines)
