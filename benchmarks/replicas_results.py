"""What `dragoman bench replicas` found, as plain values. Knows no server.

What a million translated sentences cost, by the most that servers on some CPUs translate in a second.

    CPU-hours per million = 1,000,000 / (sentences per second x target utilization x 3600) x CPUs
    price per million     = CPU-hours per million x price of a CPU-hour

The target utilization is the share of that most at which the servers run on average: what is left is room for bursts
and for a replica that is being replaced, and is paid for all the same. Knows figures only.

The table of `dragoman bench replicas`, in Markdown. Knows figures only.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.harness.rounds import format_range, format_ratio, ratio
from loadtest.report_files import markdown_table

SENTENCES = 1_000_000
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class MillionCost:
    """Of a million sentences.

    Attributes:
        cpu_hours: hours that one CPU is rented.
        price: in the currency of a CPU-hour's; None: that is not known.
    """

    cpu_hours: float
    price: float | None


def million_cost(
    sentences_per_second: float, *, cpus: int, utilization: float, cpu_hour_price: float | None
) -> MillionCost:
    """Returns what a million sentences cost, by the formula above.

    Args:
        sentences_per_second: the most that servers translate on all of the CPUs; above 0.
        cpus: that are paid for, whether or not they are busy.
        utilization: the target, in (0, 1].
        cpu_hour_price: of one CPU; None: it is not known.
    """
    cpu_hours = SENTENCES / (sentences_per_second * utilization * SECONDS_PER_HOUR) * cpus
    return MillionCost(cpu_hours, None if cpu_hour_price is None else cpu_hours * cpu_hour_price)


@dataclass(frozen=True, slots=True)
class Layout:
    """How replicas share CPUs and slots.

    Attributes:
        replicas: server processes.
        engines: of each, with one thread each.
        slots: rows of each engine.
    """

    replicas: int
    engines: int
    slots: int

    @classmethod
    def of(cls, replicas: int, *, cpus: int, slots: int) -> Self:
        """Returns the layout that has as many engines as CPUs, and as many slots in all, as far as that goes.

        A replica has at least one engine, and all have as many, because clients give each as much to do.
        """
        engines = max(1, cpus // replicas)
        return cls(replicas, engines, max(1, slots // (replicas * engines)))

    @property
    def threads(self) -> int:
        """That compute, in all replicas."""
        return self.replicas * self.engines

    @property
    def all_slots(self) -> int:
        """Rows of all engines of all replicas."""
        return self.threads * self.slots


@dataclass(frozen=True, slots=True)
class ReplicasTurn:
    """A turn of some replicas that clients kept busy.

    Attributes:
        ready_seconds: from the start of all of them until each was ready.
        seconds: length of the measured part of the turn.
        sentences: that each replica answered in it.
        sentences_per_second: of all replicas.
        rows_per_step: sequences that a run of a decoder computed, on average; None: none ran.
        cpu_seconds: that all replicas spent in the measured part.
        resident_bytes: of all replicas, at its end; what they share counts for each.
        answered: sentences of the whole turn, warm-up included, as the clients count them.
        served: requests of the whole turn, as the replicas count them; each has one sentence.
        failed: requests of the whole turn that were not answered, by outcome.
    """

    ready_seconds: float
    seconds: float
    sentences: list[int]
    sentences_per_second: float
    rows_per_step: float | None
    cpu_seconds: float
    resident_bytes: int
    answered: int
    served: int
    failed: dict[str, int]


@dataclass(frozen=True, slots=True)
class LayoutResult:
    """What was found of a layout.

    Attributes:
        layout: how the replicas shared what there was.
        turns: round by round.
        cost: of a million sentences, by the median of the rounds.
    """

    layout: Layout
    turns: list[ReplicasTurn]
    cost: MillionCost


@dataclass(frozen=True, slots=True)
class ReplicasResult:
    """All that was found of a bundle.

    Attributes:
        name: of the bundle.
        direction: from which language into which, as in "en-de".
        precision: of the model.
        clients: of the closed loop.
        sentences: that they drew from.
        cpus: that all replicas shared.
        clients_share: whether the clients ran on some of these CPUs.
        utilization: for which the costs are.
        layouts: in the order of their replicas.
    """

    name: str
    direction: str
    precision: str
    clients: int
    sentences: int
    cpus: int
    clients_share: bool
    utilization: float
    layouts: list[LayoutResult]


def median_throughput(turns: list[ReplicasTurn]) -> float:
    """Returns the median of the rounds, in sentences per second."""
    return statistics.median(turn.sentences_per_second for turn in turns)


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
    formula = f"1,000,000 / (sentences/s x {result.utilization:g} x 3600) x {result.cpus}"
    return "\n".join(
        [
            f"- A million sentences are {formula} CPU-hours, at the median of the rounds.",
            "- Memory is the sum of the processes; what they share of it counts for each.",
        ]
    )
