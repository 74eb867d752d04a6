"""The tables of `dragoman bench online`, in Markdown. Knows figures only."""

from benchmarks.harness.spread import format_figures, ratio
from benchmarks.online_results import OURS, OnlineResult, SearchResult, SystemResult
from loadtest.capacity import CURVE_SHARES
from loadtest.markdown_table import markdown_table


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
