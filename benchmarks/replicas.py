"""`dragoman bench replicas`: throughput of several servers of one bundle on the same CPUs.

Replicas start for each turn. Closed-loop clients over gRPC follow the published service config: they distribute
requests round-robin, and retry what one replica refuses.

    CPU-hours per million sentences = 1,000,000 / (sentences per second x target utilization x 3600) x CPUs
    price per million sentences     = CPU-hours per million sentences x price of a CPU-hour

The target utilization is the mean share of the maximum throughput. The rest, headroom for bursts and for a replica
being replaced, is paid for too.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Self

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from benchmarks.harness.rounds import (
    Cpus,
    check_cpus,
    format_range,
    format_ratio,
    ratio,
    reporting,
    running_on,
    take_turns,
)
from benchmarks.service_load import ServiceSentences, read_sentences
from loadtest.clients import OK
from loadtest.closed_loop import BusyServerError, BusyTime, ClosedLoop, read_state
from loadtest.generator import GeneratorLostError, Generators
from loadtest.reliability.replicas import balanced_by_clients, start_replicas
from loadtest.report_files import ReportFiles, markdown_table
from loadtest.scenario import LoadProtocol, RequestKind
from loadtest.served_process import ServedProcessError
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step, together
from model.provenance import Provenance, command_line
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import BundleDirection
from serve.server_process import server_command

LIBRARIES = ("onnxruntime", "grpcio", "uvicorn", "numpy")


class BenchReplicasCommand(BaseSettings):
    """Measures the throughput of several servers of one bundle on the same CPUs, and the cost of a million sentences.

    In every round each number of replicas has a turn: the replicas start on --server-cpus, and closed-loop clients over
    gRPC keep them busy, round-robin as in the published service config. A closed loop measures throughput, not latency.

    There is one engine thread per CPU if the number of replicas divides that of the CPUs; otherwise the table has the
    number of threads. The total of slots is the same for all. Writes replicas.md and replicas.json. Takes minutes on an
    otherwise idle machine.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_REPLICAS_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="bundle to serve")
    out: Path = Field(description="folder for replicas.md and replicas.json")
    document: Path | None = Field(None, description="Markdown file; the table replaces its <!-- replicas --> section")
    data: str | None = Field(
        None, description="test data as in `dragoman evaluate`; default: the bundle's golden sentences"
    )
    replicas: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 2, 3), min_length=1, description="ascending numbers of replicas; the first one is the base of ratios"
    )
    clients: int = Field(120, ge=1, description="closed-loop clients that keep the replicas busy")
    rounds: int = Field(5, ge=1, description="turns of each number of replicas")
    seconds: float = Field(10.0, gt=0, description="measured part of a turn")
    warm_up_seconds: float = Field(3.0, gt=0, description="warm-up before the measured part of a turn")
    slots: int = Field(60, ge=1, description="rows of all engines in total, rounded down to equal shares")
    server_cpus: Cpus = Field((0, 1), min_length=1, description="CPUs that all replicas share, with one engine each")
    generator_cpus: Cpus = Field((0, 1), min_length=1, description="CPUs of the clients; may overlap --server-cpus")
    processes: int = Field(1, ge=1, description="processes of the clients")
    utilization: float = Field(
        0.7, gt=0, le=1, description="target share of the maximum throughput, for the cost of a sentence"
    )
    cpu_hour_price: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="price of a CPU-hour in any currency; default: no prices"
    )

    @field_validator("replicas")
    @classmethod
    def _check_order(cls, replicas: tuple[int, ...]) -> tuple[int, ...]:
        if list(replicas) != sorted(set(replicas)):
            raise ValueError("expected different numbers, ascending")
        return replicas

    def cli_cmd(self) -> None:
        """Measures, prints and writes the results."""
        files = ReportFiles("replicas", self.out, self.document)
        with reporting("replicas", [files], BusyServerError, GeneratorLostError, ServedProcessError):
            bundle = Bundle.open(self.bundle)
            sentences = read_sentences(bundle, self.data)
            check_cpus(self.server_cpus)
            result = _result(self, bundle, sentences, _measure(self, sentences))
            table = format_replicas(result)
            print(table)
            cpus = f"CPUs of the replicas: {len(self.server_cpus)}, of the clients: {len(self.generator_cpus)}"
            provenance = Provenance.now(command_line("bench replicas", self, positional="bundle"), LIBRARIES, cpus)
            files.write(table, {"settings": self.model_dump(mode="json"), **asdict(result)}, provenance)


SENTENCES = 1_000_000
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class MillionCost:
    """The cost of a million sentences: hours of one CPU, and a price if known."""

    cpu_hours: float
    price: float | None


def million_cost(
    sentences_per_second: float, *, cpus: int, utilization: float, cpu_hour_price: float | None
) -> MillionCost:
    """Returns the cost of a million sentences by the formula above. All CPUs are paid for, busy or not."""
    cpu_hours = SENTENCES / (sentences_per_second * utilization * SECONDS_PER_HOUR) * cpus
    return MillionCost(cpu_hours, None if cpu_hour_price is None else cpu_hours * cpu_hour_price)


@dataclass(frozen=True, slots=True)
class Layout:
    """How replicas share CPUs and slots.

    Attributes:
        engines: of each replica, with one thread each.
        slots: rows of each engine.
    """

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

    @property
    def threads(self) -> int:
        """Engine threads of all replicas."""
        return self.replicas * self.engines

    @property
    def all_slots(self) -> int:
        """Rows of all engines of all replicas."""
        return self.threads * self.slots


@dataclass(frozen=True, slots=True)
class ReplicasTurn:
    """A turn of some replicas, kept busy by clients.

    Attributes:
        ready_seconds: from the start until all replicas are ready.
        sentences: answered by each replica in the measured part.
        rows_per_step: mean sequences per decoder run; None: no run.
        cpu_seconds: CPU time of all replicas in the measured part.
        resident_bytes: sum over the replicas at the end; shared memory counts for each.
        answered: sentences of the whole turn, warm-up included, counted by the clients.
        served: requests of the whole turn, counted by the replicas; each has one sentence.
        failed: failed requests of the whole turn, by outcome.
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
    """The turns of a layout, one per round, and the cost of a million sentences at their median throughput."""

    layout: Layout
    turns: list[ReplicasTurn]
    cost: MillionCost


@dataclass(frozen=True, slots=True)
class ReplicasResult:
    """All results of a bundle, by number of replicas.

    Attributes:
        sentences: number of different sentences.
        cpus: shared by all replicas.
        clients_share: whether clients ran on some of these CPUs.
        utilization: target of the costs.
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


PROTOCOL: LoadProtocol = "grpc"
# Key of the server's request counter.
_REQUESTS = "grpc translate ok"


@dataclass(frozen=True, slots=True)
class _Reading:
    """The counters of the replicas; `seconds` is the monotonic clock."""

    seconds: float
    states: Sequence[ServerState]

    @property
    def answered(self) -> list[int]:
        """Requests answered by each replica since its start."""
        return [state.requests.get(_REQUESTS, 0) for state in self.states]


class BusyReplicas:
    """Runs turns with any number of replicas."""

    def __init__(self, options: BenchReplicasCommand, texts: Sequence[str], direction: BundleDirection) -> None:
        """Plans the requests, one text each."""
        self._options = options
        self._loop = ClosedLoop(options.clients, options.warm_up_seconds, options.seconds)
        kind = RequestKind(protocol=PROTOCOL, source_language=direction.source, target_language=direction.target)
        self._plan = self._loop.plan(kind, texts)

    async def take_turn(self, layout: Layout) -> ReplicasTurn:
        """Starts replicas, keeps them busy, and stops them.

        Raises:
            AffinityError: if a CPU is not available.
            BusyServerError: if a replica exposes no metrics, or all are idle.
            GeneratorLostError: if a client process ends.
            ServedProcessError: if a replica does not become ready, or fails to stop.
        """
        options = self._options
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="dragoman-"))
            started_seconds = time.monotonic()
            with running_on(options.server_cpus):
                each = stack.enter_context(
                    start_replicas(lambda ports: self._command(layout, ports), Path(folder), layout.replicas)
                )
            replicas = balanced_by_clients(each)
            await replicas.wait_ready()
            ready_seconds = time.monotonic() - started_seconds
            metrics = [await stack.enter_async_context(MetricsReader.open(server)) for server in replicas.servers]
            # Before a client has connected to all replicas, one may have to refuse requests meant for others.
            targets = replace(replicas.targets, retries=True)
            generators = await stack.enter_async_context(
                Generators.run(options.processes, targets, {PROTOCOL}, options.generator_cpus)
            )

            async def read() -> _Reading:
                return _Reading(time.monotonic(), await asyncio.gather(*map(read_state, metrics)))

            busy = await self._loop.keep_busy(
                generators, self._plan, read, lambda first, last: sum(last.answered) > sum(first.answered)
            )
            served = sum((await read()).answered)
            await replicas.stop()
        return _turn(busy, ready_seconds, served)

    def _command(self, layout: Layout, ports: tuple[int, int]) -> list[str]:
        engines = ["--engines", str(layout.engines), "--threads-per-engine", "1", "--slots", str(layout.slots)]
        return [*server_command(self._options.bundle, *ports), *engines]


def _turn(busy: BusyTime[_Reading], ready_seconds: float, served: int) -> ReplicasTurn:
    sentences = [last - first for first, last in zip(busy.first.answered, busy.last.answered, strict=True)]
    first, last = together(busy.first.states), together(busy.last.states)
    seconds = busy.last.seconds - busy.first.seconds
    return ReplicasTurn(
        ready_seconds,
        seconds,
        sentences,
        sum(sentences) / seconds,
        rows_per_step(first, last),
        last.cpu_seconds - first.cpu_seconds,
        last.resident_bytes,
        busy.record.outcomes[OK],
        served,
        busy.record.failed,
    )


def _measure(options: BenchReplicasCommand, sentences: ServiceSentences) -> dict[Layout, list[ReplicasTurn]]:
    cpus = len(set(options.server_cpus))
    layouts = [Layout.of(replicas, cpus=cpus, slots=options.slots) for replicas in options.replicas]
    busy = BusyReplicas(options, [each.text for each in sentences.sentences], sentences.direction)
    with (
        running_on(options.generator_cpus),
        tqdm(total=options.rounds * len(layouts), unit=" turns", disable=None) as progress,
    ):
        return asyncio.run(take_turns(layouts, options.rounds, busy.take_turn, progress.update))


def _result(
    options: BenchReplicasCommand, bundle: Bundle, sentences: ServiceSentences, turns: dict[Layout, list[ReplicasTurn]]
) -> ReplicasResult:
    cpus = set(options.server_cpus)
    layouts = [
        LayoutResult(
            layout,
            each,
            million_cost(
                median_throughput(each),
                cpus=len(cpus),
                utilization=options.utilization,
                cpu_hour_price=options.cpu_hour_price,
            ),
        )
        for layout, each in turns.items()
    ]
    manifest = bundle.manifest
    return ReplicasResult(
        name=manifest.name,
        direction=str(sentences.direction),
        precision=manifest.precision,
        clients=options.clients,
        sentences=len(sentences.sentences),
        cpus=len(cpus),
        clients_share=not cpus.isdisjoint(options.generator_cpus),
        utilization=options.utilization,
        layouts=layouts,
    )


MEBIBYTE = 1 << 20


def format_replicas(result: ReplicasResult) -> str:
    """Returns a heading, the table and its notes."""
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
    figures, base_figures = ([turn.sentences_per_second for turn in each.turns] for each in (result, base))
    return format_ratio(ratio(figures, base_figures))


def _notes(result: ReplicasResult) -> str:
    formula = f"1,000,000 / (sentences/s x {result.utilization:g} x 3600) x {result.cpus}"
    return "\n".join(
        [
            f"- A million sentences are {formula} CPU-hours, at the median of the rounds.",
            "- Memory is the sum of the processes; what they share of it counts for each.",
        ]
    )
