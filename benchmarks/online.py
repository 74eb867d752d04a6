"""Goodput of the server compared with servers built on other libraries.

All servers hold the same weights, get the same CPUs and are asked over REST; the load generator has other CPUs. The
baselines are asyncio servers with a batching window around a library that translates whole batches. ctranslate2 uses
its own workers; onnx uses Dragoman's graphs and search in static batches; pytorch uses the training model in fp32. The
windows and threads of each are the best of a trial with closed-loop users.

The objective: no failure, and a p99 latency of at most three times the median of a single request to the slower of
dragoman and ctranslate2. The goodput is the highest Poisson rate that meets it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field
from rich.console import Console

from benchmarks.baseline_server import BaselineServer
from benchmarks.harness.plan import Cpus, Plan, Question, require_libraries
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Cell, Report, Table
from benchmarks.harness.rounds import in_turn
from benchmarks.served import serving
from benchmarks.systems.compared_model import ComparedModel, compute_type, trained_model
from benchmarks.systems.translating import SEARCHES
from loadtest.generator import GeneratorLostError
from loadtest.results import CapacityResult
from loadtest.scenario import ConstantPhase, Objective, RequestKind, Scenario, SearchOptions
from loadtest.session import CURVE_SHARES, LiveView, LoadSession, SessionOptions
from model.data.corpus import Corpus, read_corpus
from serve.bundle.manifest import BundleDirection, Precision
from serve.bundle.tokenizer import TOKENIZER_FILE, write_tokenizer
from serve.server_process import ServerProcessError, server_command
from serve.settings import QUEUE_PER_SLOT

DRAGOMAN = "dragoman"
# The latency bound is this multiple of a single request to the slower of `BOUND_BY`.
TIMES_ALONE = 3.0
BOUND_BY = (DRAGOMAN, "ctranslate2")
# Closed-loop users in trials of settings, enough for full batches.
USERS = 16
WARM_UP_SECONDS = 2.0
# Maximum sentences in a batch of a baseline.
BATCH_SIZE = 64
# Short trials cannot distinguish rates closer than this.
TIE = 0.05
# The files of each system, in a folder of this name.
FOLDERS = {DRAGOMAN: "bundle", "onnx": "bundle", "ctranslate2": "ctranslate2", "pytorch": "checkpoint"}
TRANSLATORS = {
    "onnx": "benchmarks.systems.engine:EngineTranslator",
    "ctranslate2": "benchmarks.systems.ctranslate2_system:CTranslate2Translator",
    "pytorch": "benchmarks.systems.pytorch_system:PyTorchTranslator",
}


class OnlinePlan(Plan):
    """The parameters of this benchmark."""

    run: Path = Field(description="training run or fp32 bundle with the model of all servers")
    data: str = Field("multi30k:en-de", description="test data as in `dragoman evaluate`")
    precision: Precision = Field("int8-static", description="precision of all servers except PyTorch")
    baselines: tuple[Literal["ctranslate2", "onnx", "pytorch"], ...] = Field(
        ("ctranslate2", "onnx", "pytorch"), min_length=1, description="servers to compare with"
    )
    searches: tuple[Literal["greedy", "beam 4"], ...] = Field(
        ("greedy", "beam 4"), min_length=1, description="searches to measure"
    )
    server_cpus: Cpus = Field((0,), description="CPUs of every server")
    generator_cpus: Cpus = Field((1,), description="CPUs of the load generator")
    processes: int = Field(1, ge=1, description="processes of the load generator")
    windows_ms: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (2.0, 5.0, 10.0), min_length=1, description="batching windows to try for the baselines"
    )
    slots: int = Field(32, ge=4, description="rows of each Dragoman engine")
    alone_seconds: float = Field(5.0, gt=0, description="duration of the closed loop with one user")
    trial_seconds: float = Field(6.0, gt=0, description="measured part of a trial of a rate or setting")
    first_rate: float = Field(40.0, gt=0, description="rate of the first trial, requests per second")
    tolerance: float = Field(0.1, gt=0, lt=1, description="relative tolerance of the capacity search")
    max_lag_seconds: float = Field(0.02, gt=0, description="generator lag p99 above which a trial is void")
    rounds: int = Field(3, ge=1, description="capacity searches per server, in turns")

    @property
    def systems(self) -> list[str]:
        """The measured systems, Dragoman first."""
        return [DRAGOMAN, *self.baselines]


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


def settings_of(system: str, plan: OnlinePlan) -> list[Setting]:
    """Returns the settings to try; Dragoman has only its defaults."""
    cpus = len(set(plan.server_cpus))
    if system == DRAGOMAN:
        return [Setting(cpus, 1, None)]
    # Static batches run one after the other; the next one waits even if some sequences finish early.
    shapes = [(1, cpus)] if system != "ctranslate2" else list(dict.fromkeys([(cpus, 1), (1, cpus)]))
    return [Setting(copies, threads, window) for copies, threads in shapes for window in plan.windows_ms]


def best_setting(tried: Mapping[Setting, float]) -> Setting:
    """Returns the setting with the highest rate; within `TIE` of it, the one with the shortest window.

    Every request pays for the window, and the latency bound of all servers depends on it.
    """
    most = max(tried.values())
    as_good = [setting for setting, rate in tried.items() if rate >= (1 - TIE) * most]
    return min(as_good, key=lambda setting: setting.window_ms or 0.0)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model of all servers, in the formats of all systems, and the texts that clients send."""

    model: ComparedModel
    corpus: Corpus
    workshop: Path
    plan: OnlinePlan

    @property
    def direction(self) -> BundleDirection:
        """The direction of the texts."""
        languages = self.corpus.languages
        return next(each for each in self.model.exportable.directions if (each.source, each.target) == languages)

    def write(self) -> None:
        """Writes the files of all measured systems, and the tokenizer."""
        writers: Mapping[str, Callable[[Path], None]] = {
            "bundle": lambda folder: self.model.write_bundle(folder, "cpu", self.plan.precision),
            "ctranslate2": lambda folder: self.model.write_ctranslate2(folder, compute_type(self.plan.precision)),
            "checkpoint": self.model.write_checkpoint,
        }
        for name in dict.fromkeys(FOLDERS[system] for system in self.plan.systems):
            writers[name](self.workshop / name)
        write_tokenizer(self.model.exportable.tokenizer, self.workshop)

    def command(self, system: str, setting: Setting, beam_size: int, ports: tuple[int, int]) -> list[str]:
        """Returns the command line of a server, with ports of REST and gRPC."""
        folder, plan = self.workshop / FOLDERS[system], self.plan
        if system == DRAGOMAN:
            return [*server_command(folder, *ports), "--slots", str(plan.slots)]
        extra: dict[str, dict[str, Any]] = {
            # A slot for every row of a batch: no row waits for another.
            "onnx": {"slots": BATCH_SIZE * beam_size},
            "ctranslate2": {"compute_type": compute_type(plan.precision)},
        }
        # Engines have one thread each and share the rows of a batch.
        copies, threads = (setting.threads, 1) if system == "onnx" else (setting.copies, setting.threads)
        server = BaselineServer(
            port=ports[0],
            translator=TRANSLATORS[system],
            options={"folder": str(folder), "copies": copies, "threads": threads, **extra.get(system, {})},
            tokenizer=self.workshop / TOKENIZER_FILE,
            prefix=self.direction.source_prefix,
            suffix=self.model.exportable.source_suffix,
            longest=self.model.model.config.max_target_tokens,
            beam_size=beam_size,
            size=BATCH_SIZE,
            window_seconds=(setting.window_ms or 0.0) / 1000,
            workers=setting.copies,
            waiting=QUEUE_PER_SLOT * plan.slots * len(set(plan.server_cpus)),
        )
        return [sys.executable, "-m", "benchmarks.baseline_server", server.model_dump_json()]


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """A server with one kind of search. Every measurement starts a new process."""

    served: ServedModel
    system: str
    beam_size: int
    view: LiveView

    async def try_settings(self) -> dict[Setting, float]:
        """Returns the closed-loop throughput of each setting, requests per second; 0 for an only one, untried."""
        plan = self.served.plan
        settings = settings_of(self.system, plan)
        if len(settings) == 1:
            return {settings[0]: 0.0}
        rates = {}
        for setting in settings:
            async with self._load(setting, plan.trial_seconds, Objective(), USERS) as session:
                (result,) = await session.run(f"{self.system}, {setting}")
            rates[setting] = result.requests_per_second
        return rates

    async def alone(self, setting: Setting) -> float:
        """Returns the median latency of single requests, in seconds.

        Raises:
            ServerProcessError: if the server answers none.
        """
        async with self._load(setting, self.served.plan.alone_seconds, Objective(), 1) as session:
            (result,) = await session.run(f"{self.system}, {setting}")
        if result.all.latency_seconds is None:
            raise ServerProcessError(f"{self.system}: expected answers, got none: {result.all.errors}")
        return result.all.latency_seconds.p50

    async def capacity(self, setting: Setting, bound_seconds: float, *, curve: bool) -> CapacityResult:
        """Returns the highest rate that meets the objective, and with `curve` the goodput of rates around it."""
        plan, objective = self.served.plan, Objective(latency_seconds=bound_seconds)
        async with self._load(setting, WARM_UP_SECONDS, objective, None) as session:
            return await session.find_capacity(
                self.system, plan.first_rate, plan.trial_seconds, plan.tolerance, curve=curve
            )

    @asynccontextmanager
    async def _load(
        self, setting: Setting, seconds: float, objective: Objective, users: int | None
    ) -> AsyncIterator[LoadSession]:
        """Runs a server and a load generator; the load has so many closed-loop users, or is open-loop."""
        plan, direction = self.served.plan, self.served.direction
        # Enough different requests for a closed loop.
        phase = ConstantPhase(name="closed", arrivals="constant", rate=50.0, duration_seconds=seconds)
        kind = RequestKind(
            protocol="rest",
            options=SearchOptions(beam_size=self.beam_size),
            source_language=direction.source,
            target_language=direction.target,
        )
        scenario = Scenario(
            warm_up_seconds=WARM_UP_SECONDS,
            requests=(kind,),
            phases=(phase,),
            objective=objective,
            max_lag_seconds=plan.max_lag_seconds,
        )
        async with serving(
            lambda ports: self.served.command(self.system, setting, self.beam_size, ports), plan.server_cpus
        ) as (server,):
            options = SessionOptions(server.targets, plan.processes, plan.generator_cpus, users)
            async with LoadSession.open(options, scenario, self.served.corpus.sources, self.view) as session:
                yield session


def tables_of(
    search: str, bound: str, alone: Mapping[str, float], found: Mapping[str, list[CapacityResult]]
) -> list[Table]:
    """Returns a table of the goodput and its ratios, with a note per void search, and the curves of the first round."""
    cells = [Cell("alone, p50, ms", system, [1000 * each], compared=False) for system, each in alone.items()]
    for system, results in found.items():
        cells.append(Cell("goodput, requests/s", system, [each.capacity_per_second or 0.0 for each in results]))
    curves = [
        Cell(f"{share:g}", system, [results[0].curve[place].goodput_per_second])
        for place, share in enumerate(CURVE_SHARES)
        for system, results in found.items()
        if place < len(results[0].curve) and results[0].curve[place].void is None
    ]
    voids = [
        f"{system}, round {number}: VOID: all higher rates are void: {result.void}"
        for system, results in found.items()
        for number, result in enumerate(results, start=1)
        if result.void is not None
    ]
    offered = "Goodput, requests/s, at multiples of the goodput of the first round; void trials are left out:"
    return [Table(search, cells, DRAGOMAN, text=bound, notes=voids), Table("offered", curves, text=offered)]


async def measure_search(
    search: str, servers: Mapping[str, MeasuredServer], rounds: int
) -> tuple[list[Table], dict[str, Any]]:
    """Measures all servers with one kind of search; returns the tables and what they do not have.

    Raises:
        AffinityError: if a CPU is not available.
        GeneratorLostError: if a generator process ends.
        ServerProcessError: if a server does not become ready or answers nothing.
    """
    tried = {system: await server.try_settings() for system, server in servers.items()}
    best = {system: best_setting(rates) for system, rates in tried.items()}
    alone = {system: await server.alone(best[system]) for system, server in servers.items()}
    bound_seconds = TIMES_ALONE * max(seconds for system, seconds in alone.items() if system in BOUND_BY)
    found: dict[str, list[CapacityResult]] = {system: [] for system in servers}
    for number in range(rounds):
        for system in in_turn(list(servers), number):
            result = await servers[system].capacity(best[system], bound_seconds, curve=number == 0)
            found[system].append(result)
    bound = f"{search}, p99 <= {1000 * bound_seconds:.0f} ms, no failure:"
    goodput, curves = tables_of(search, bound, alone, found)
    settings = ", ".join(f"{system} {setting}" for system, setting in best.items())
    details = {
        "bound_seconds": bound_seconds,
        "tried": {system: {str(each): rate for each, rate in rates.items()} for system, rates in tried.items()},
        "capacities": {system: list(map(asdict, results)) for system, results in found.items()},
    }
    return [replace(goodput, notes=[f"Settings: {settings}.", *goodput.notes]), curves], details


def measure(plan: OnlinePlan) -> Report:
    """Measures all servers with each search. Takes an hour on an otherwise idle machine."""
    require_libraries({"ctranslate2"} & set(plan.baselines))
    model, corpus = trained_model(plan.run), read_corpus(plan.data, "test")
    model.source_ids(corpus)  # reports sentences that the model cannot read
    tables: list[Table] = []
    details: dict[str, Any] = {}
    with TemporaryDirectory(prefix="dragoman-") as folder, LiveView.open(Console(stderr=True)) as view:
        served = ServedModel(model, corpus, Path(folder), plan)
        served.write()
        with running_on(plan.generator_cpus):
            for search in dict.fromkeys(plan.searches):
                servers = {each: MeasuredServer(served, each, SEARCHES[search], view) for each in plan.systems}
                found, details[search] = asyncio.run(measure_search(search, servers, plan.rounds))
                tables += found
    text = f"**{model.name}**, {plan.precision}: {model.describe()}. {len(corpus.sources):,} sentences."
    tables[0] = replace(tables[0], text=f"{text}\n\n{tables[0].text}")
    threads = f"CPUs of each server: {len(set(plan.server_cpus))}, of the generator: {len(set(plan.generator_cpus))}"
    return Report(tables, threads, details)


QUESTION = Question(
    OnlinePlan,
    measure,
    ("onnxruntime", "ctranslate2", "torch", "aiohttp", "numpy"),
    (GeneratorLostError, ServerProcessError),
)
