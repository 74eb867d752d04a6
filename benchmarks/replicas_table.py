"""The table of `dragoman bench replicas`, in Markdown. Knows figures only."""

from collections.abc import Callable, Sequence

from benchmarks.harness.spread import format_range, format_ratio, ratio
from benchmarks.replicas_results import LayoutResult, ReplicasResult, ReplicasTurn
from loadtest.markdown_table import markdown_table

MEBIBYTE = 1 << 20


def format_replicas(result: ReplicasResult) -> str:
    """Returns a heading, the table, and what has to be known of it."""
    heading = (
        f"**{result.name}**, {result.precision}, {result.direction}, greedy search, engines with one thread. "
        f"Closed loop of {result.clients} clients over gRPC that take turns among the replicas, {result.sentences} "
        f"sentences; CPUs of the replicas: {result.cpus}{', shared with the clients' if result.clients_share else ''}; "
        f"rounds: {len(result.layouts[0].turns)}."
    )
    names = [_name(each.layout.replicas) for each in result.layouts]
    rows = [*_layout_rows(result.layouts), *_turn_rows(result.layouts), *_cost_rows(result.layouts)]
    return "\n\n".join([heading, markdown_table(["on the same CPUs", *names], rows), _notes(result)])


def _name(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _layout_rows(layouts: Sequence[LayoutResult]) -> list[list[str]]:
    return [
        ["engines of a replica", *(str(each.layout.engines) for each in layouts)],
        ["engine threads in all", *(str(each.layout.threads) for each in layouts)],
        ["slots in all", *(str(each.layout.all_slots) for each in layouts)],
    ]


def _turn_rows(layouts: Sequence[LayoutResult]) -> list[list[str]]:
    def row(name: str, of: Callable[[ReplicasTurn], float], form: str) -> list[str]:
        return [name, *(format_range([of(turn) for turn in each.turns], form) for each in layouts)]

    return [
        row("sentences/s", lambda turn: turn.sentences_per_second, "{:,.0f}"),
        [f"times {_name(layouts[0].layout.replicas)}", *(_times(each, layouts[0]) for each in layouts)],
        row("the least asked replica's share", lambda turn: min(turn.sentences) / sum(turn.sentences), "{:.0%}"),
        row("rows of a decoder step", lambda turn: turn.rows_per_step or 0.0, "{:.1f}"),
        row("CPUs that the replicas used", lambda turn: turn.cpu_seconds / turn.seconds, "{:.2f}"),
        row("CPU of a sentence, ms", lambda turn: 1000 * turn.cpu_seconds / sum(turn.sentences), "{:.2f}"),
        row("resident memory, MiB", lambda turn: turn.resident_bytes / MEBIBYTE, "{:,.0f}"),
        row("from start to ready, s", lambda turn: turn.ready_seconds, "{:.1f}"),
        ["requests that failed", *(f"{sum(sum(turn.failed.values()) for turn in each.turns):,}" for each in layouts)],
    ]


def _cost_rows(layouts: Sequence[LayoutResult]) -> list[list[str]]:
    rows = [["CPU-hours of a million sentences", *(f"{each.cost.cpu_hours:.2f}" for each in layouts)]]
    prices = [each.cost.price for each in layouts]
    if prices[0] is not None:
        rows.append(["price of a million sentences", *(f"{price:.4g}" for price in prices)])
    return rows


def _times(result: LayoutResult, base: LayoutResult) -> str:
    if result is base:
        return ""
    ours, theirs = ([turn.sentences_per_second for turn in each.turns] for each in (result, base))
    return format_ratio(ratio(ours, theirs))


def _notes(result: ReplicasResult) -> str:
    formula = f"1,000,000 / (sentences/s x {result.utilisation:g} x 3600) x {result.cpus}"
    return "\n".join(
        [
            f"- A million sentences are {formula} CPU-hours, at the median of the rounds.",
            "- Memory is the sum of the processes; what they share of it counts for each.",
        ]
    )
