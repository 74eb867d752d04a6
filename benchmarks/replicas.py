"""Replicas that run for one turn, in which clients keep all of them busy.

The clients are those of `loadtest.closed_loop`, over gRPC, and do what the published service config says: they
take turns among the replicas, and try again what one refuses. Called by `benchmarks.replicas`.

The options of `dragoman bench replicas`: flags, environment variables and what they may be.

`dragoman bench replicas`: what one, two and three servers of a bundle do on the same CPUs.

Knows the options alone: what needs libraries is imported when the command runs, so that their lack can be explained.

What `dragoman bench replicas` does with its options: turns of every number of replicas, and a table of them.

Called by `benchmarks.replicas`.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from benchmarks.harness.rounds import AffinityError, Cpus, check_cpus, missing_library, running_on, take_turns
from benchmarks.replicas_results import (
    Layout,
    LayoutResult,
    ReplicasResult,
    ReplicasTurn,
    format_replicas,
    median_throughput,
    million_cost,
)
from benchmarks.service_load import ServiceSentences, read_sentences
from loadtest.clients import OK
from loadtest.closed_loop import BusyServerError, BusyTime, ClosedLoop, read_state
from loadtest.generator import GeneratorLostError, Generators
from loadtest.reliability.replicas import balanced_by_clients, start_replicas
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.scenario import LoadProtocol, RequestKind
from loadtest.served_process import ServedProcessError
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step, together
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import BundleDirection
from serve.server_process import server_command


class ReplicasOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_REPLICAS_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`: what is served")
    out: Path = Field(description="folder that gets replicas.md and replicas.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- replicas --> gets the table")
    data: str | None = Field(
        None,
        description="test data, as `dragoman evaluate` takes them: what is translated. Default: the golden sentences "
        "of the bundle's first direction",
    )
    replicas: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 2, 3), min_length=1, description="numbers of replicas, ascending; the others are compared with the first"
    )
    clients: int = Field(120, ge=1, description="clients that keep the replicas busy, each waiting for its answers")
    rounds: int = Field(5, ge=1, description="in which every number of replicas has its turn")
    seconds: float = Field(10.0, gt=0, description="measured part of a turn")
    warm_up_seconds: float = Field(3.0, gt=0, description="what goes before it")
    slots: int = Field(
        60, ge=1, description="rows of all engines together; rounded down to what can be shared out evenly"
    )
    server_cpus: Cpus = Field((0, 1), min_length=1, description="CPUs that all replicas share; an engine for each")
    generator_cpus: Cpus = Field((0, 1), min_length=1, description="CPUs of the clients; may be those of the replicas")
    processes: int = Field(1, ge=1, description="processes that hold the clients")
    utilization: float = Field(
        0.7, gt=0, le=1, description="share of the throughput at which servers are to run, for what sentences cost"
    )
    cpu_hour_price: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="of one CPU, in any currency. Default: only CPU-hours are told"
    )

    @field_validator("replicas")
    @classmethod
    def _check_order(cls, replicas: tuple[int, ...]) -> tuple[int, ...]:
        if list(replicas) != sorted(set(replicas)):
            raise ValueError("expected different numbers, ascending")
        return replicas


EXTRAS = {"onnxruntime": "cpu", "aiohttp": "bench", "hdrh": "bench"}


class BenchReplicasCommand(ReplicasOptions):
    """Measures the throughput of several servers of one bundle on the same CPUs, and what a million sentences cost.

    In every round each number of replicas has its turn: they are started on --server-cpus, get ready, and many clients
    over gRPC keep them busy, taking turns among them as the published service config says. It is a closed loop: each
    client waits for its answer and asks again at once, so that it tells throughput and no latency.

    There are as many engines of one thread as CPUs, whatever the number of replicas, if it divides that of the CPUs;
    otherwise the table tells how many there were. The slots are the same in all. Writes replicas.md and replicas.json
    into a folder. Run it on a quiet machine; it takes minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the table."""
        problem = missing_library(EXTRAS)
        if problem is not None:
            raise SystemExit(f"dragoman bench replicas: {problem}")

        benchmark(self)


PROTOCOL: LoadProtocol = "grpc"
# As a server counts the requests of the clients.
_REQUESTS = "grpc translate ok"


@dataclass(frozen=True, slots=True)
class _Reading:
    """What replicas say at a moment of the machine's monotonic clock."""

    seconds: float
    states: Sequence[ServerState]

    @property
    def answered(self) -> list[int]:
        """Requests that each replica has answered since it started."""
        return [state.requests.get(_REQUESTS, 0) for state in self.states]


class BusyReplicas:
    """Takes turns with any number of replicas."""

    def __init__(self, options: ReplicasOptions, texts: Sequence[str], direction: BundleDirection) -> None:
        """Draws what the clients ask for.

        Args:
            options: of the benchmark.
            texts: one in each request.
            direction: from which language into which.
        """
        self._options = options
        self._loop = ClosedLoop(options.clients, options.warm_up_seconds, options.seconds)
        kind = RequestKind(protocol=PROTOCOL, source_language=direction.source, target_language=direction.target)
        self._plan = self._loop.plan(kind, texts)

    async def take_turn(self, layout: Layout) -> ReplicasTurn:
        """Starts replicas, keeps them busy, and stops them.

        Raises:
            AffinityError: if they may not run on their CPUs.
            BusyServerError: if one does not tell what it does, or none does anything.
            GeneratorLostError: if clients die.
            ServedProcessError: if one does not become ready, or does not end as it should.
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
            # Until a client is connected to all of them, some replica may have to refuse what would be for others.
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


LIBRARIES = ("onnxruntime", "grpcio", "uvicorn", "numpy")


def benchmark(options: ReplicasOptions) -> None:
    """Measures and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("replicas", options.out, options.document)
        files.prepare()
        bundle = Bundle.open(options.bundle)
        sentences = read_sentences(bundle, options.data)
        check_cpus(options.server_cpus)
        cpus = f"CPUs of the replicas: {len(options.server_cpus)}, of the clients: {len(options.generator_cpus)}"
        provenance = Provenance.now(command_line("bench replicas", options, positional="bundle"), LIBRARIES, cpus)
        turns = _measure(options, sentences)
        result = _result(options, bundle, sentences, turns)
        table = format_replicas(result)
        print(table)
        files.write(table, {"settings": options.model_dump(mode="json"), **asdict(result)}, provenance)
    except (
        AffinityError,
        BundleError,
        BusyServerError,
        CorpusError,
        GeneratorLostError,
        ReportFileError,
        ServedProcessError,
        TokenizerError,
    ) as error:
        raise SystemExit(f"dragoman bench replicas: {error}") from error


def _measure(options: ReplicasOptions, sentences: ServiceSentences) -> dict[Layout, list[ReplicasTurn]]:
    cpus = len(set(options.server_cpus))
    layouts = [Layout.of(replicas, cpus=cpus, slots=options.slots) for replicas in options.replicas]
    busy = BusyReplicas(options, [each.text for each in sentences.sentences], sentences.direction)
    with (
        running_on(options.generator_cpus),
        tqdm(total=options.rounds * len(layouts), unit=" turns", disable=None) as progress,
    ):
        return asyncio.run(take_turns(layouts, options.rounds, busy.take_turn, progress.update))


def _result(
    options: ReplicasOptions,
    bundle: Bundle,
    sentences: ServiceSentences,
    turns: dict[Layout, list[ReplicasTurn]],
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
