"""`dragoman bench online`: goodput of the server compared with servers built on other libraries.

All servers hold the same weights and get the same CPUs. Each is tried with several settings, then all take turns in
searching the highest rate that meets the objective.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.console import Console

from benchmarks.harness.rounds import Cpus, in_turn, reporting, require_libraries, running_on
from benchmarks.offline_results import SEARCHES
from benchmarks.online_results import (
    BaselineName,
    OnlineResult,
    SearchResult,
    Setting,
    SystemName,
    SystemResult,
    best_setting,
    format_online,
)
from benchmarks.online_server import BaselineServer
from benchmarks.systems.compared_model import ComparedModel, compute_type, trained_model
from loadtest.report_files import ReportFiles
from loadtest.results import CapacityResult, RunResult
from loadtest.scenario import ConstantPhase, Languages, Objective, RequestKind, Scenario, SearchOptions
from loadtest.served_process import ServedProcess, ServedProcessError
from loadtest.session import LiveView, LoadSession, SessionOptions
from model.data.corpus import Corpus, read_corpus
from model.provenance import Provenance, command_line
from model.run import RunError
from serve.bundle.manifest import Precision
from serve.bundle.tokenizer import TOKENIZER_FILE, write_tokenizer
from serve.server_process import choose_ports, server_command
from serve.settings import QUEUE_PER_SLOT

LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "aiohttp", "numpy")
# The latency bound is this multiple of a single request to the slower of `BOUND_BY`.
TIMES_ALONE = 3.0
BOUND_BY = ("dragoman", "ctranslate2")
# Closed-loop users in trials of settings, enough for full batches.
USERS = 16
WARM_UP_SECONDS = 2.0


class BenchOnlineCommand(BaseSettings):
    """Compares servers under the same open-loop load: same weights, sentences, options and CPUs.

    The baselines are asyncio servers with a batching window around a library that translates whole batches. ctranslate2
    uses its own workers; onnx uses Dragoman's graphs and search in static batches; pytorch uses the training model.
    Windows and threads are the best of a trial with sixteen closed-loop users. All requests use REST. Servers run on
    --server-cpus, the load generator on --generator-cpus.

    The objective: no failure, and a p99 latency of at most three times the median of a single request to the slower of
    dragoman and ctranslate2. The goodput is the highest Poisson rate that meets it, the median of the rounds. A
    baseline's goodput is followed by the ratio of Dragoman to it. Writes online.md and online.json. Takes an hour on an
    otherwise idle machine.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_ONLINE_", frozen=True, extra="forbid")

    HELP_GROUPS: ClassVar[dict[str, str]] = {
        "run": "model and data",
        "out": "output",
        "data": "model and data",
        "precision": "systems",
        "server_cpus": "processes",
        "windows_ms": "settings of the servers",
        "alone_seconds": "measurement",
    }

    run: Path = Field(description="training run or fp32 bundle with the model of all servers")
    out: Path = Field(description="folder for online.md and online.json")
    document: Path | None = Field(None, description="Markdown file; the tables replace its <!-- online --> section")
    data: str = Field("multi30k:en-de", description="test data as in `dragoman evaluate`")
    precision: Precision = Field("int8-static", description="precision of all servers except PyTorch, which uses fp32")
    baselines: tuple[BaselineName, ...] = Field(
        ("ctranslate2", "onnx", "pytorch"), min_length=1, description="servers to compare with"
    )
    searches: tuple[Literal["greedy", "beam 4"], ...] = Field(
        ("greedy", "beam 4"), min_length=1, description="searches to measure"
    )
    server_cpus: Cpus = Field((0,), min_length=1, description="CPUs of every server")
    generator_cpus: Cpus = Field((1,), min_length=1, description="CPUs of the load generator")
    processes: int = Field(1, ge=1, description="processes of the load generator")
    windows_ms: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (2.0, 5.0, 10.0), min_length=1, description="batching windows to try for the baselines"
    )
    batch_size: int = Field(64, ge=1, description="maximum requests in a batch of a baseline")
    slots: int = Field(32, ge=4, description="rows of each Dragoman engine")
    alone_seconds: float = Field(5.0, gt=0, description="duration of the closed loop with one user")
    trial_seconds: float = Field(6.0, gt=0, description="measured part of a trial of a rate or setting")
    first_rate: float = Field(40.0, gt=0, description="rate of the first trial, requests per second")
    tolerance: float = Field(0.1, gt=0, lt=1, description="relative tolerance of the capacity search")
    rounds: int = Field(3, ge=1, description="capacity searches per server, in turns")
    max_lag_seconds: float = Field(0.02, gt=0, description="generator lag p99 above which a trial is void")

    def cli_cmd(self) -> None:
        """Measures every server, prints and writes the results."""
        require_libraries({"ctranslate2"} & set(self.baselines))
        files = ReportFiles("online", self.out, self.document)
        with (
            reporting("online", [files], RunError, ServedProcessError),
            TemporaryDirectory(prefix="dragoman-") as folder,
        ):
            model = trained_model(self.run)
            corpus = read_corpus(self.data, "test")
            model.source_ids(corpus)  # reports sentences that the model cannot read
            result = _Benchmark(self, model, corpus, Path(folder)).run()
            table = format_online(result)
            print(table)
            threads = f"CPUs of each server: {len(self.server_cpus)}, of the generator: {len(self.generator_cpus)}"
            provenance = Provenance.now(command_line("bench online", self), LIBRARIES, threads)
            files.write(table, {"settings": self.model_dump(mode="json"), **asdict(result)}, provenance)


FOLDERS: dict[SystemName, str] = {
    "dragoman": "bundle",
    "onnx": "bundle",
    "ctranslate2": "ctranslate2",
    "pytorch": "checkpoint",
}
_TRANSLATORS: dict[SystemName, str] = {
    "onnx": "benchmarks.systems.engine:EngineTranslator",
    "ctranslate2": "benchmarks.systems.ctranslate2_system:CTranslate2Translator",
    "pytorch": "benchmarks.systems.pytorch_system:PyTorchTranslator",
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model of all servers: the workshop has the files of each system, prefix and suffix surround every source."""

    workshop: Path
    tokenizer: Path
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    longest: int


def write_files(model: ComparedModel, workshop: Path, options: BenchOnlineCommand) -> None:
    """Writes the files of all measured systems."""
    writers: Mapping[str, Callable[[Path], None]] = {
        "bundle": lambda folder: model.write_bundle(folder, "cpu", options.precision),
        "ctranslate2": lambda folder: model.write_ctranslate2(folder, compute_type(options.precision)),
        "checkpoint": model.write_checkpoint,
    }
    for name in dict.fromkeys(FOLDERS[system] for system in systems_of(options)):
        writers[name](workshop / name)


def systems_of(options: BenchOnlineCommand) -> list[SystemName]:
    """Returns the measured systems, Dragoman first."""
    return ["dragoman", *options.baselines]


def settings_of(system: SystemName, options: BenchOnlineCommand) -> list[Setting]:
    """Returns the settings to try; Dragoman has only its defaults."""
    cpus = len(options.server_cpus)
    if system == "dragoman":
        return [Setting(cpus, 1, None)]
    # Static batches run one after the other; the next one waits even if some sequences finish early.
    shapes = [(1, cpus)] if system != "ctranslate2" else list(dict.fromkeys([(cpus, 1), (1, cpus)]))
    return [Setting(copies, threads, window) for copies, threads in shapes for window in options.windows_ms]


def command_of(
    system: SystemName,
    setting: Setting,
    ports: tuple[int, int],
    *,
    beam_size: int,
    model: ServedModel,
    options: BenchOnlineCommand,
) -> list[str]:
    """Returns the command line of a server, with ports of REST and gRPC."""
    folder = model.workshop / FOLDERS[system]
    if system == "dragoman":
        return [*server_command(folder, *ports), "--slots", str(options.slots)]
    extra: dict[SystemName, dict[str, Any]] = {
        # A slot for every row of a batch: no row waits for another.
        "onnx": {"slots": options.batch_size * beam_size},
        "ctranslate2": {"compute_type": compute_type(options.precision)},
    }
    # Engines have one thread each and share the rows of a batch.
    copies, threads = (setting.threads, 1) if system == "onnx" else (setting.copies, setting.threads)
    server = BaselineServer(
        port=ports[0],
        translator=_TRANSLATORS[system],
        options={"folder": str(folder), "copies": copies, "threads": threads, **extra.get(system, {})},
        tokenizer=model.tokenizer,
        prefix=model.prefix,
        suffix=model.suffix,
        longest=model.longest,
        beam_size=beam_size,
        size=options.batch_size,
        window_seconds=setting.window_ms / 1000 if setting.window_ms is not None else 0.0,
        workers=setting.copies,
        waiting=QUEUE_PER_SLOT * options.slots * len(options.server_cpus),
    )
    return [sys.executable, "-m", "benchmarks.online_server", server.model_dump_json()]


class _Benchmark:
    def __init__(self, options: BenchOnlineCommand, model: ComparedModel, corpus: Corpus, workshop: Path) -> None:
        self.options = options
        self.model = model
        self.corpus = corpus
        direction = next(each for each in model.exportable.directions if (each.source, each.target) == corpus.languages)
        write_tokenizer(model.exportable.tokenizer, workshop)
        self.served = ServedModel(
            workshop,
            workshop / TOKENIZER_FILE,
            direction.source_prefix,
            model.exportable.source_suffix,
            model.model.config.max_target_tokens,
        )

    def run(self) -> OnlineResult:
        """Measures all searches."""
        options = self.options
        write_files(self.model, self.served.workshop, options)
        with LiveView.open(Console(stderr=True)) as view, running_on(options.generator_cpus):
            searches = [asyncio.run(self._search(search, view)) for search in dict.fromkeys(options.searches)]
        return OnlineResult(
            self.model.name, self.model.describe(), options.precision, len(self.corpus.sources), searches
        )

    async def _search(self, search: str, view: LiveView) -> SearchResult:
        systems = systems_of(self.options)
        measured = {system: _Measured(self, system, SEARCHES[search], view) for system in systems}
        tried = {system: await measured[system].try_settings() for system in systems}
        best = {system: best_setting(tried[system]) for system in systems}
        alone = {system: await measured[system].alone(best[system]) for system in systems}
        bound_seconds = TIMES_ALONE * max(seconds for system, seconds in alone.items() if system in BOUND_BY)
        found: dict[SystemName, list[CapacityResult]] = {system: [] for system in systems}
        for number in range(self.options.rounds):
            for system in in_turn(systems, number):
                objective = Objective(latency_seconds=bound_seconds)
                found[system].append(await measured[system].capacity(best[system], objective, curve=number == 0))
        results = [
            SystemResult(
                system,
                best[system],
                {str(setting): rate for setting, rate in tried[system].items()},
                alone[system],
                [each.capacity_per_second or 0.0 for each in found[system]],
                found[system][0].curve,
            )
            for system in systems
        ]
        return SearchResult(search, bound_seconds, results)


@dataclass(frozen=True, slots=True)
class _Measured:
    """A server with one kind of search. Every measurement starts a new process."""

    benchmark: _Benchmark
    system: SystemName
    beam_size: int
    view: LiveView

    async def try_settings(self) -> dict[Setting, float]:
        """Returns the closed-loop throughput of each setting, requests per second."""
        settings = settings_of(self.system, self.benchmark.options)
        if len(settings) == 1:
            return {settings[0]: 0.0}
        found = {}
        for setting in settings:
            (result,) = await self._closed_loop(setting, USERS, self.benchmark.options.trial_seconds)
            found[setting] = result.requests_per_second
        return found

    async def alone(self, setting: Setting) -> float:
        """Returns the median latency of single requests, in seconds.

        Raises:
            ServedProcessError: if the server answers none.
        """
        (result,) = await self._closed_loop(setting, 1, self.benchmark.options.alone_seconds)
        if result.all.latency_seconds is None:
            raise ServedProcessError(f"{self.system}: expected answers, got none: {result.all.errors}")
        return result.all.latency_seconds.p50

    async def capacity(self, setting: Setting, objective: Objective, *, curve: bool) -> CapacityResult:
        """Returns the highest rate that meets an objective, and with `curve` the goodput of rates around it."""
        options = self.benchmark.options
        with self._serve(setting) as served:
            await served.wait_ready()
            scenario = self._scenario(WARM_UP_SECONDS, objective)
            async with LoadSession.open(
                self._session_options(served), scenario, self.benchmark.corpus.sources, self.view
            ) as session:
                return await session.find_capacity(
                    str(self.system), options.first_rate, options.trial_seconds, options.tolerance, curve=curve
                )

    async def _closed_loop(self, setting: Setting, users: int, seconds: float) -> list[RunResult]:
        with self._serve(setting) as served:
            await served.wait_ready()
            scenario = self._scenario(seconds, Objective())
            async with LoadSession.open(
                self._session_options(served, users), scenario, self.benchmark.corpus.sources, self.view
            ) as session:
                return await session.run(f"{self.system}, {setting}")

    def _session_options(self, served: ServedProcess, users: int | None = None) -> SessionOptions:
        options = self.benchmark.options
        return SessionOptions(served.targets, options.processes, options.generator_cpus, users)

    def _scenario(self, seconds: float, objective: Objective) -> Scenario:
        search = SearchOptions(beam_size=self.beam_size)
        # Enough different requests for a closed loop.
        phase = ConstantPhase(name="closed", arrivals="constant", rate=50.0, duration_seconds=seconds)
        languages = asdict(Languages(*self.benchmark.corpus.languages))
        kind = RequestKind(protocol="rest", options=search, **languages)
        return Scenario(
            warm_up_seconds=WARM_UP_SECONDS,
            requests=(kind,),
            phases=(phase,),
            objective=objective,
            max_lag_seconds=self.benchmark.options.max_lag_seconds,
        )

    @contextmanager
    def _serve(self, setting: Setting) -> Iterator[ServedProcess]:
        ports = choose_ports(0, 0)
        command = command_of(
            self.system,
            setting,
            ports,
            beam_size=self.beam_size,
            model=self.benchmark.served,
            options=self.benchmark.options,
        )
        log = self.benchmark.served.workshop / f"{self.system}.log"
        served = ServedProcess(command, ports, log, {})
        with running_on(self.benchmark.options.server_cpus):
            served.start()
        try:
            yield served
        finally:
            served.kill()
