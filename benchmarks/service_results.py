"""What `dragoman bench service` found, as plain values. Knows no server.

The tables of `dragoman bench service`, in Markdown. Knows figures only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.cpu_times import CpuTimes
from benchmarks.harness.rounds import Spread, format_range
from loadtest.report_files import markdown_table

Way = Literal["engine", "gRPC", "REST"]
ENGINE: Way = "engine"
Interface = Literal["gRPC", "REST", "TranslateMany"]
INTERFACES: tuple[Interface, ...] = ("gRPC", "REST", "TranslateMany")


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The quartiles of figures, of which the second is their median."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class WayResult:
    """What one client waited for by one way.

    Attributes:
        way: by which it asked.
        milliseconds: for a sentence.
        over_engine_ms: how much longer than the bare engine took for the same sentence; None: it is the bare engine.
        rounds_ms: the median of that, round by round.
    """

    way: Way
    milliseconds: Quartiles
    over_engine_ms: Quartiles | None
    rounds_ms: list[float]


@dataclass(frozen=True, slots=True)
class OverheadResult:
    """What one client waited for, whose sentences were asked by every way in every round."""

    sentences: int
    rounds: int
    ways: list[WayResult]


@dataclass(frozen=True, slots=True)
class BusyTurn:
    """A turn in which many clients kept the server busy by one interface.

    Attributes:
        seconds: length of the measured part of it.
        sentences: that the server answered in it.
        sentences_per_second: the same by time.
        rows_per_step: sequences that a run of the decoder computed, on average; None: none ran.
        cpu: what the server spent in it.
        answered: sentences of the whole turn, warm-up included, as the clients count them.
        served: requests of the whole turn, as the server counts them; each has one sentence.
        failed: requests of the whole turn that were not answered, by outcome.
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
    """A server that many clients kept busy.

    Attributes:
        clients: of the closed loop.
        sentences: that they drew from.
        words: that the longest of these may have.
        turns: round by round, of each interface.
    """

    clients: int
    sentences: int
    words: int
    turns: dict[Interface, list[BusyTurn]]


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """All that was found of a bundle.

    Attributes:
        name: of the bundle.
        direction: from which language into which, as in "en-de".
        precision: of the model.
        engines: of the server that was kept busy.
        overhead: what one client waited for.
        busy: what many clients made the server do.
    """

    name: str
    direction: str
    precision: str
    engines: int
    overhead: OverheadResult
    busy: BusyResult


# What an interface is to add to the time of a sentence, and the share of the CPU time that the service is to leave to
# ONNX Runtime.
GOAL_MS = 2.0
GOAL_SHARE = 0.25


def format_service(result: ServiceResult) -> str:
    """Returns a heading, both tables, and what has to be known of them."""
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
