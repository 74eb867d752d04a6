"""The results of `dragoman bench online` and their tables in Markdown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.harness.rounds import format_figures, ratio
from loadtest.report_files import markdown_table
from loadtest.results import CurvePoint
from loadtest.session import CURVE_SHARES

BaselineName = Literal["ctranslate2", "onnx", "pytorch"]
SystemName = Literal["dragoman", "ctranslate2", "onnx", "pytorch"]
DRAGOMAN: SystemName = "dragoman"
# Short trials cannot distinguish rates closer than this.
TIE = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """How a server is started.

    Attributes:
        copies: concurrent batches, or engines.
        window_ms: batching window; None for continuous batching.
    """

    copies: int
    threads: int
    window_ms: float | None

    def __str__(self) -> str:
        window = "" if self.window_ms is None else f", window {self.window_ms:g} ms"
        return f"{self.copies} x {self.threads} threads{window}"


def best_setting(tried: Mapping[Setting, float]) -> Setting:
    """Returns the setting with the highest rate; within `TIE` of it, the one with the shortest window.

    Every request pays for the window, and the latency bound of all servers depends on it.
    """
    most = max(tried.values())
    as_good = [setting for setting, rate in tried.items() if rate >= (1 - TIE) * most]
    return min(as_good, key=lambda setting: setting.window_ms or 0.0)


@dataclass(frozen=True, slots=True)
class SystemResult:
    """The results of one server with its best setting.

    Attributes:
        tried: closed-loop requests per second with sixteen users, by setting.
        alone_seconds: median latency of a single request.
        capacities: highest rates that meet the objective, one per round; 0: none.
        curve: goodput at 0.1 to 2 times the capacity of the first round.
    """

    system: SystemName
    setting: Setting
    tried: dict[str, float]
    alone_seconds: float
    capacities: list[float]
    curve: list[CurvePoint]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All servers with one kind of search, Dragoman first; `bound_seconds` limits the p99 latency."""

    search: str
    bound_seconds: float
    systems: list[SystemResult]


@dataclass(frozen=True, slots=True)
class OnlineResult:
    """All results of a model."""

    name: str
    description: str
    precision: str
    sentences: int
    searches: list[SearchResult]


def format_online(result: OnlineResult) -> str:
    """Returns a heading, and for every search its tables and notes."""
    heading = f"**{result.name}**, {result.precision}: {result.description}. {result.sentences:,} sentences."
    return "\n\n".join([heading, *(_search(each) for each in result.searches)])


def _search(result: SearchResult) -> str:
    dragoman = next(system for system in result.systems if system.system == DRAGOMAN)
    names = [system.system for system in result.systems]
    rows = [
        ["alone, p50, ms", *(f"{1000 * each.alone_seconds:.1f}" for each in result.systems)],
        ["goodput, requests/s", *(_capacity(each, dragoman) for each in result.systems)],
    ]
    curves = [
        [f"{share:g}", *(_goodput(each, place) for each in result.systems)] for place, share in enumerate(CURVE_SHARES)
    ]
    settings = ", ".join(f"{each.system} {each.setting}" for each in result.systems)
    return "\n\n".join(
        [
            f"{result.search}, p99 <= {1000 * result.bound_seconds:.0f} ms, no failure:",
            markdown_table([result.search, *names], rows),
            "Goodput (offered), requests/s, at multiples of the goodput of the first round:",
            markdown_table(["offered", *names], curves),
            f"- Settings: {settings}.",
        ]
    )


def _capacity(system: SystemResult, dragoman: SystemResult) -> str:
    comparable = system is not dragoman and all(system.capacities)
    return format_figures(system.capacities, ratio(dragoman.capacities, system.capacities) if comparable else None)


def _goodput(system: SystemResult, place: int) -> str:
    if place >= len(system.curve):
        return "-"
    point = system.curve[place]
    void = ", void" if point.void is not None else ""
    return f"{point.goodput_per_second:.0f} ({point.offered_per_second:.0f}{void})"
