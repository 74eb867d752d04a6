"""Results as text for a terminal."""

from collections.abc import Iterator

from loadtest.results import CapacityResult, CurvePoint, RequestsResult, RunResult
from loadtest.tally import Percentiles

_COLUMNS = ("p50", "p90", "p99", "p99.9", "max")
# With fewer requests, the p99.9 rests on the slowest few.
FEWEST_FOR_P99_9 = 10_000


def format_run(result: RunResult) -> str:
    """Formats the result of a run."""
    return "\n".join(_lines(result))


def _lines(result: RunResult) -> Iterator[str]:
    loop = "" if result.users is None else f" (CLOSED LOOP, {result.users} users: does not measure latency under load)"
    whole = result.all
    yield f"{result.name}{loop}: {_counts(whole)}"
    yield f"  {'':12}" + "".join(f"{name:>12}" for name in _COLUMNS)
    yield _percentiles("latency", whole.latency_seconds)
    if whole.first_token_seconds is not None:
        yield _percentiles("first token", whole.first_token_seconds)
    if result.users is None:
        yield _percentiles("lag", whole.lag_seconds)
    yield (
        f"  offered {result.offered_per_second:.1f} requests/s, answered {result.requests_per_second:.1f} requests/s, "
        f"{result.texts_per_second:.1f} texts/s, goodput {result.goodput_per_second:.1f} requests/s"
    )
    yield from _failures(whole)
    if len(result.kinds) > 1:
        for name, kind in result.kinds.items():
            p99 = "-" if kind.latency_seconds is None else milliseconds(kind.latency_seconds.p99)
            yield f"  {name}: {_counts(kind)}, p99 {p99}"
            yield from (f"  {line}" for line in _failures(kind))
    if whole.ok < FEWEST_FOR_P99_9:
        yield f"  p99.9 is unreliable: {whole.ok} requests, expected at least {FEWEST_FOR_P99_9}"
    if result.stable is not None:
        used, tried = result.windows
        verdict = "agree" if result.stable else "do NOT agree within the tolerance; measure longer"
        yield f"  {tried} windows; the last {used} {verdict}"
    if result.void is not None:
        yield f"  VOID: {result.void}"


def _counts(requests: RequestsResult) -> str:
    gone = f", {requests.gone} canceled" if requests.gone else ""
    return f"{requests.sent} sent, {requests.ok} ok, {requests.failed} failed{gone}"


def _failures(requests: RequestsResult) -> Iterator[str]:
    return (f"  failed     {count} x {reason}" for reason, count in requests.errors.items())


def format_capacity(result: CapacityResult) -> str:
    """Formats the result of a capacity search."""
    found = result.capacity_per_second
    first = "no rate meets the objective" if found is None else f"{found:.1f} requests/s"
    heading = f"{'offered/s':>12}{'answered/s':>12}{'goodput/s':>12}{'failed':>9}" + "".join(
        f"{name:>12}" for name in ("p50", "p99")
    )
    void = [] if result.void is None else [f"  VOID: all higher rates are void: {result.void}"]
    lines = [
        f"capacity ({result.objective}): {first}",
        *void,
        "  trials:",
        f"  {heading}",
        *map(_point, result.trials),
    ]
    if result.curve:
        lines += ["  from 0.1 to 2 times the capacity:", f"  {heading}", *map(_point, result.curve)]
    return "\n".join(lines)


def _point(point: CurvePoint) -> str:
    latency = point.latency_seconds
    cells = ("-", "-") if latency is None else (milliseconds(latency.p50), milliseconds(latency.p99))
    figures = f"{point.offered_per_second:>12.1f}{point.requests_per_second:>12.1f}{point.goodput_per_second:>12.1f}"
    void = "" if point.void is None else "  VOID"
    return f"  {figures}{point.failed_share:>9.1%}" + "".join(f"{cell:>12}" for cell in cells) + void


def _percentiles(name: str, percentiles: Percentiles | None) -> str:
    if percentiles is None:
        return f"  {name:12}" + f"{'-':>12}" * len(_COLUMNS)
    values = (percentiles.p50, percentiles.p90, percentiles.p99, percentiles.p99_9, percentiles.max)
    return f"  {name:12}" + "".join(f"{milliseconds(value):>12}" for value in values)


def milliseconds(seconds: float) -> str:
    """Formats a duration in milliseconds."""
    return f"{seconds * 1000:.1f} ms"
