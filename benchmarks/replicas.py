"""Throughput of several servers of one bundle on the same CPUs, and the cost of a million sentences.

In every round each number of replicas is measured once: the replicas start, and closed-loop clients over gRPC keep them
busy. The clients follow the published service config: they distribute requests round-robin, and retry what one replica
refuses.

    CPU-hours per million sentences = 1,000,000 / (sentences per second x target utilization x 3600) x CPUs
    price per million sentences     = CPU-hours per million sentences x price of a CPU-hour

The target utilization is the mean share of the maximum throughput. The rest, headroom for bursts and for a replica
being replaced, is paid for too.
"""

import time
from dataclasses import replace
from typing import NamedTuple, Self

from pydantic import Field, field_validator

from benchmarks.harness.plan import Cpus, Positive
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds
from benchmarks.served import BusyClients, BusyPlan, ServedSentences, command_of, read_sentences, serving
from dragoman.loadtest.reliability.replicas import balanced_by_clients
from dragoman.serve.bundle.bundle import Bundle

SENTENCES = 1_000_000
SECONDS_PER_HOUR = 3600


class ReplicasPlan(BusyPlan):
    """The parameters of this benchmark."""

    libraries = ("onnxruntime", "grpcio", "httptools", "numpy")

    replicas: tuple[Positive, ...] = Field(
        (1, 2, 3), min_length=1, description="ascending numbers of replicas; the first one is the base of ratios"
    )
    clients: int = Field(120, ge=1, description="closed-loop clients that keep the replicas busy")
    seconds: float = Field(10.0, gt=0, description="measured part of a turn")
    warm_up_seconds: float = Field(3.0, gt=0, description="warm-up before the measured part of a turn")
    slots: int = Field(60, ge=1, description="rows of all engines in total, rounded down to equal shares")
    server_cpus: Cpus = Field((0, 1), description="CPUs that all replicas share, with one engine thread each")
    generator_cpus: Cpus = Field((0, 1), description="CPUs of the clients; may overlap server_cpus")
    utilization: float = Field(0.7, gt=0, le=1, description="target share of the maximum throughput, for the cost")
    cpu_hour_price: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="price of a CPU-hour in any currency; null: no prices"
    )

    @field_validator("replicas")
    @classmethod
    def _check_order(cls, replicas: tuple[int, ...]) -> tuple[int, ...]:
        if list(replicas) != sorted(set(replicas)):
            raise ValueError("expected different numbers, ascending")
        return replicas

    def measure(self) -> Report:
        """Measures each number of replicas in every round.

        There is one engine thread per CPU if the number of replicas divides that of the CPUs. The total of slots is the
        same for all.
        """
        bundle = Bundle.open(self.bundle)
        sentences = read_sentences(bundle, self.data)
        cpus = set(self.server_cpus)
        layouts = [Layout.of(replicas, cpus=len(cpus), slots=self.slots) for replicas in self.replicas]
        with running_on(self.generator_cpus):
            found = measure_rounds(
                layouts, self.rounds, "replicas", lambda layout: measure_busy(layout, self, sentences)
            )
        text = (
            f"**{bundle.manifest.name}**, {bundle.manifest.precision}, {sentences.direction}, greedy search, engines "
            f"with one thread. Closed loop of {self.clients} clients over gRPC that take turns among the replicas; "
            f"{len(sentences.sentences)} sentences; CPUs of the replicas: {len(cpus)}"
            f"{'' if cpus.isdisjoint(self.generator_cpus) else ', shared with the clients'}; rounds: {self.rounds}."
        )
        notes = [
            f"A million sentences are 1,000,000 / (sentences/s x {self.utilization:g} x 3600) x {len(cpus)} CPU-hours.",
            "Memory is the sum of the processes; what they share of it counts for each.",
        ]
        table = Table(
            "on the same CPUs", found, str(layouts[0]), ("sentences/s",), divide_by_base=True, text=text, notes=notes
        )
        return Report([table], self.cpus)


class Layout(NamedTuple):
    """How replicas share CPUs and slots: the engines of each, with one thread, and the slots of each engine."""

    replicas: int
    engines: int
    slots: int

    @classmethod
    def of(cls, replicas: int, *, cpus: int, slots: int) -> Self:
        """Returns the layout with one engine per CPU and with `slots` in total, as nearly as possible.

        All replicas have the same number of engines, at least one, because clients give each the same load.
        """
        engines = max(1, cpus // replicas)
        return cls(replicas, engines, max(1, slots // (replicas * engines)))

    def __str__(self) -> str:
        return "1 replica" if self.replicas == 1 else f"{self.replicas} replicas"

    @property
    def figures(self) -> Figures:
        """Sizes, by row of the table."""
        threads = self.replicas * self.engines
        return {
            "engines of a replica": self.engines,
            "engine threads in all": threads,
            "slots in all": threads * self.slots,
        }


def million_cost(sentences_per_second: float, plan: ReplicasPlan) -> Figures:
    """Returns the cost of a million sentences by the formulas above. All CPUs are paid for, busy or not."""
    seconds = SENTENCES / (sentences_per_second * plan.utilization)
    cpu_hours = seconds / SECONDS_PER_HOUR * len(set(plan.server_cpus))
    cost = {"CPU-hours of a million sentences": cpu_hours}
    if plan.cpu_hour_price is not None:
        cost["price of a million sentences"] = cpu_hours * plan.cpu_hour_price
    return cost


def measure_busy(layout: Layout, plan: ReplicasPlan, sentences: ServedSentences) -> Figures:
    """Starts replicas, keeps them busy, and returns their figures."""
    command = command_of(plan.bundle, layout.engines, layout.slots)
    started_seconds = time.monotonic()
    with serving(command, plan.server_cpus, layout.replicas) as processes:
        ready_seconds = time.monotonic() - started_seconds
        replicas = balanced_by_clients(processes)
        # Before a client has connected to all replicas, one may have to refuse requests meant for others.
        figures = BusyClients(plan, sentences, replace(replicas.targets, retries=True), processes).measure_busy("grpc")
    return {
        **layout.figures,
        **figures,
        "from start to ready, s": ready_seconds,
        **million_cost(figures["sentences/s"], plan),
    }
