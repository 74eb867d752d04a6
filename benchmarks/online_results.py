"""What `dragoman bench online` found, as plain values. Knows no server.

The tables of `dragoman bench online`, in Markdown. Knows figures only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.harness.rounds import format_figures, ratio
from loadtest.report_files import markdown_table
from loadtest.results import CurvePoint
from loadtest.session import CURVE_SHARES

PeerName = Literal["ctranslate2", "onnx", "pytorch"]
SystemName = Literal["dragoman", "ctranslate2", "onnx", "pytorch"]
OURS: SystemName = "dragoman"
# Rates that differ by less are as good as each other: trials are short.
TIE = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """How a server is started.

    Attributes:
        copies: batches, or engines, that compute side by side.
        threads: of each.
        window_ms: how long a request waits for company; None: our server batches without a window.
    """

    copies: int
    threads: int
    window_ms: float | None

    def __str__(self) -> str:
        window = "" if self.window_ms is None else f", window {self.window_ms:g} ms"
        return f"{self.copies} x {self.threads} threads{window}"


def best_setting(tried: Mapping[Setting, float]) -> Setting:
    """Returns the setting that answers the most requests per second; of those that are as good the shortest window.

    A window is latency that every request pays, and the bound of all servers depends on it.
    """
    most = max(tried.values())
    as_good = [setting for setting, rate in tried.items() if rate >= (1 - TIE) * most]
    return min(as_good, key=lambda setting: setting.window_ms or 0.0)


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What one server did.

    Attributes:
        system: which.
        setting: that was best of all that were tried.
        tried: requests per second of sixteen users in a closed loop, by setting.
        alone_seconds: median latency of a lone request.
        capacities: the highest rate that met the objective, round by round; 0: none did.
        curve: goodput from a tenth of the first round's capacity to twice as much.
    """

    system: SystemName
    setting: Setting
    tried: dict[str, float]
    alone_seconds: float
    capacities: list[float]
    curve: list[CurvePoint]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All servers with one kind of search.

    Attributes:
        search: how was searched.
        bound_seconds: of the latency's p99.
        systems: ours first.
    """

    search: str
    bound_seconds: float
    systems: list[SystemResult]


@dataclass(frozen=True, slots=True)
class OnlineResult:
    """All that was found of a model."""

    name: str
    description: str
    precision: str
    sentences: int
    searches: list[SearchResult]


def format_online(result: OnlineResult) -> str:
    """Returns a heading, and for every kind of search its tables and what has to be known of them."""
    heading = f"**{result.name}**, {result.precision}: {result.description}. {result.sentences:,} sentences."
    return "\n\n".join([heading, *(_search(each) for each in result.searches)])


def _search(result: SearchResult) -> str:
    ours = next(system for system in result.systems if system.system == OURS)
    names = [system.system for system in result.systems]
    rows = [
        ["alone, p50, ms", *(f"{1000 * each.alone_seconds:.1f}" for each in result.systems)],
        ["goodput, requests/s", *(_capacity(each, ours) for each in result.systems)],
    ]
    curves = [
        [f"{share:g}", *(_goodput(each, place) for each in result.systems)] for place, share in enumerate(CURVE_SHARES)
    ]
    settings = ", ".join(f"{each.system} {each.setting}" for each in result.systems)
    return "\n\n".join(
        [
            f"{result.search}, p99 <= {1000 * result.bound_seconds:.0f} ms, no failure:",
            markdown_table([result.search, *names], rows),
            "Goodput (offered), requests/s, at so many times the goodput of the first round:",
            markdown_table(["offered", *names], curves),
            f"- Settings: {settings}.",
        ]
    )


def _capacity(system: SystemResult, ours: SystemResult) -> str:
    comparable = system is not ours and all(system.capacities)
    return format_figures(system.capacities, ratio(ours.capacities, system.capacities) if comparable else None)


def _goodput(system: SystemResult, place: int) -> str:
    if place >= len(system.curve):
        return "-"
    point = system.curve[place]
    void = ", void" if point.void is not None else ""
    return f"{point.goodput_per_second:.0f} ({point.offered_per_second:.0f}{void})"
