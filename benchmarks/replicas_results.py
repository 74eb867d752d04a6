"""What `dragoman bench replicas` found, as plain values. Knows no server."""

import statistics
from dataclasses import dataclass
from typing import Self

from benchmarks.cost import MillionCost


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
        utilisation: for which the costs are.
        layouts: in the order of their replicas.
    """

    name: str
    direction: str
    precision: str
    clients: int
    sentences: int
    cpus: int
    clients_share: bool
    utilisation: float
    layouts: list[LayoutResult]


def median_throughput(turns: list[ReplicasTurn]) -> float:
    """Returns the median of the rounds, in sentences per second."""
    return statistics.median(turn.sentences_per_second for turn in turns)
