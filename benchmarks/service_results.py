"""The results of `dragoman bench service` and their tables in Markdown.

The CPU time of a server process and its parts are Prometheus counters on a separate port.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self
from urllib.request import urlopen

from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from benchmarks.harness.rounds import Spread, format_range
from loadtest.report_files import markdown_table

Way = Literal["engine", "gRPC", "REST"]
ENGINE: Way = "engine"
Interface = Literal["gRPC", "REST", "TranslateMany"]
INTERFACES: tuple[Interface, ...] = ("gRPC", "REST", "TranslateMany")


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The quartiles of some figures."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class WayResult:
    """The times of a sentence for one client.

    Attributes:
        over_engine_ms: difference to the bare engine for the same sentence; None for the bare engine itself.
        rounds_ms: medians of these differences, one per round.
    """

    way: Way
    milliseconds: Quartiles
    over_engine_ms: Quartiles | None
    rounds_ms: list[float]


@dataclass(frozen=True, slots=True)
class OverheadResult:
    """What one client measured for every way, in the same rounds."""

    sentences: int
    rounds: int
    ways: list[WayResult]


_NAME = "watched_cpu_seconds"
_LABEL = "part"
READ_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds, user and system mode.

    Attributes:
        engines: engine threads, up to the last ONNX Runtime run of each.
        runs: finished runs of ONNX Runtime; part of `engines`.
    """

    process: float
    engines: float
    runs: float

    def since(self, before: Self) -> Self:
        """Returns the CPU time spent since an earlier reading."""
        return type(self)(self.process - before.process, self.engines - before.engines, self.runs - before.runs)

    @property
    def runs_share(self) -> float:
        """Share of ONNX Runtime."""
        return self.runs / self.process

    @property
    def engines_share(self) -> float:
        """Share of scheduler, search and Python around the runs: the engine threads without ONNX Runtime."""
        return (self.engines - self.runs) / self.process

    @property
    def others_share(self) -> float:
        """Share of all other threads: interfaces, tokenizer, metrics."""
        return (self.process - self.engines) / self.process


class CpuTimesCollector(Collector):
    """Exports the current CPU times."""

    def __init__(self, read: Callable[[], CpuTimes]) -> None:
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yields the only metric."""
        family = CounterMetricFamily(_NAME, "CPU time of the process and of parts of it.", labels=[_LABEL])
        times = self._read()
        for part in CpuTimes.__slots__:
            family.add_metric([part], getattr(times, part))
        yield family


def read_cpu_times(url: str) -> CpuTimes:
    """Returns the current CPU times of a watched server.

    Raises:
        OSError: if the server does not answer.
    """
    with urlopen(url, timeout=READ_SECONDS) as response:  # noqa: S310 - the address of a server on this machine
        text = response.read().decode()
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return CpuTimes(**{each.labels[_LABEL]: each.value for each in samples if each.name == f"{_NAME}_total"})


@dataclass(frozen=True, slots=True)
class BusyTurn:
    """A turn in which many clients keep the server busy over one interface.

    Attributes:
        seconds, sentences, cpu: of the measured part.
        rows_per_step: mean sequences per decoder run; None: no run.
        answered: sentences of the whole turn, warm-up included, counted by the clients.
        served: requests of the whole turn, counted by the server; each has one sentence.
        failed: failed requests of the whole turn, by outcome.
    """

    seconds: float
    sentences: int
    sentences_per_second: float
    rows_per_step: float | None
    cpu: CpuTimes
    answered: int
    served: int
    failed: dict[str, int]


@dataclass(frozen=True, slots=True)
class BusyResult:
    """A server kept busy by many clients.

    Attributes:
        sentences: number of different sentences.
        words: maximum words of a sentence.
    """

    clients: int
    sentences: int
    words: int
    turns: dict[Interface, list[BusyTurn]]


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """All results of a bundle; `engines` is the number of the busy server."""

    name: str
    direction: str
    precision: str
    engines: int
    overhead: OverheadResult
    busy: BusyResult


# Targets: time that an interface adds to a sentence, and share of the CPU time outside ONNX Runtime.
GOAL_MS = 2.0
GOAL_SHARE = 0.25


def format_service(result: ServiceResult) -> str:
    """Returns a heading, both tables and their notes."""
    heading = f"**{result.name}**, {result.precision}, {result.direction}, greedy search, engines with one thread."
    return "\n\n".join([heading, *_overhead(result.overhead), *_busy(result.busy, result.engines)])


def _overhead(result: OverheadResult) -> list[str]:
    rows = [
        ["a sentence, ms", *(f"{each.milliseconds.median:.2f}" for each in result.ways)],
        ["over the engine, ms", *map(_over, result.ways)],
        ["of the rounds, ms", *map(_of_rounds, result.ways)],
    ]
    heading = f"One client, {result.sentences} sentences one at a time; rounds: {result.rounds}."
    goals = ", ".join(
        f"{each.way} {_verdict(met=each.over_engine_ms.median <= GOAL_MS)}"
        for each in result.ways
        if each.over_engine_ms is not None
    )
    return [
        heading,
        markdown_table(["one client", *(each.way for each in result.ways)], rows),
        f"- The goal is at most {GOAL_MS:g} ms over the engine: {goals}.",
    ]


def _over(result: WayResult) -> str:
    over = result.over_engine_ms
    return "" if over is None else f"{over.median:.2f} ({over.low:.2f} to {over.high:.2f})"


def _of_rounds(result: WayResult) -> str:
    return "" if result.way == ENGINE else f"{min(result.rounds_ms):.2f} to {max(result.rounds_ms):.2f}"


def _busy(result: BusyResult, engines: int) -> list[str]:
    turns = list(result.turns.values())
    rows = [
        ["sentences/s", *(_figures(each, lambda turn: turn.sentences_per_second, "{:,.0f}") for each in turns)],
        [
            "rows of a decoder step",
            *(_figures(each, lambda turn: turn.rows_per_step or 0.0, "{:.1f}") for each in turns),
        ],
        ["CPU of a sentence, ms", *(_figures(each, _cpu_ms, "{:.2f}") for each in turns)],
        ["CPUs that the server used", *(_figures(each, _cpus_used, "{:.2f}") for each in turns)],
        ["CPU in ONNX Runtime", *(_figures(each, lambda turn: turn.cpu.runs_share, "{:.0%}") for each in turns)],
        ["CPU outside", *(_figures(each, _outside, "{:.0%}") for each in turns)],
        ["- engines' threads", *(_figures(each, lambda turn: turn.cpu.engines_share, "{:.0%}") for each in turns)],
        ["- other threads", *(_figures(each, lambda turn: turn.cpu.others_share, "{:.0%}") for each in turns)],
        ["requests that failed", *(f"{sum(sum(turn.failed.values()) for turn in each):,}" for each in turns)],
    ]
    heading = (
        f"Closed loop of {result.clients} clients, {result.sentences} sentences of at most {result.words} words; "
        f"engines: {engines}; rounds: {len(turns[0])}."
    )
    goals = ", ".join(
        f"{interface} {_verdict(met=Spread.of([*map(_outside, each)]).median <= GOAL_SHARE)}"
        for interface, each in result.turns.items()
    )
    return [
        heading,
        markdown_table(["closed loop", *result.turns], rows),
        f"- The goal is at most {GOAL_SHARE:.0%} of the CPU time outside ONNX Runtime: {goals}.",
    ]


def _cpus_used(turn: BusyTurn) -> float:
    return turn.cpu.process / turn.seconds


def _cpu_ms(turn: BusyTurn) -> float:
    return 1000 * turn.cpu.process / turn.sentences


def _outside(turn: BusyTurn) -> float:
    return 1 - turn.cpu.runs_share


def _verdict(*, met: bool) -> str:
    return "met" if met else "missed"


def _figures(turns: Sequence[BusyTurn], of: Callable[[BusyTurn], float], form: str) -> str:
    return format_range([of(turn) for turn in turns], form)
