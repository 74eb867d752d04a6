"""What `dragoman bench online` does with its options: has every server measured in turn, and writes tables.

Needs torch, unlike the options themselves; called by `benchmarks.online`.

The options of `dragoman bench online`: flags, environment variables and what they may be. Needs no torch.

`dragoman bench online`: how many requests our server answers in time, beside servers that others would build.

Knows the options alone: what needs torch is imported when the command runs, so that its lack can be explained.

The servers that `dragoman bench online` compares: how each is started, and with which settings it is tried.

All hold the same weights and get the same CPUs. Knows no load and no torch.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.console import Console

from benchmarks.harness.rounds import AffinityError, Cpus, in_turn, missing_library, running_on
from benchmarks.offline_results import SEARCHES
from benchmarks.online_results import (
    OnlineResult,
    PeerName,
    SearchResult,
    Setting,
    SystemName,
    SystemResult,
    best_setting,
    format_online,
)
from benchmarks.online_server import PeerServer
from benchmarks.systems.compared_model import ComparedModel, ModelFiles, compute_type, trained_model
from loadtest.objective import Objective
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.results import CapacityResult, RunResult
from loadtest.scenario import ConstantPhase, Languages, RequestKind, Scenario, SearchOptions
from loadtest.served_process import ServedProcess, ServedProcessError
from loadtest.session import LiveView, LoadSession, SessionOptions
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.manifest import Precision
from serve.bundle.tokenizer import TOKENIZER_FILE, write_tokenizer
from serve.server_process import choose_ports, server_command
from serve.settings import QUEUE_PER_SLOT


class OnlineOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_ONLINE_", frozen=True, extra="forbid")

    run: Path = Field(description="training run or bundle in fp32, whose model all servers serve")
    out: Path = Field(description="folder that gets online.md and online.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- online --> gets the tables")
    data: str = Field("multi30k:en-de", description="test data, as `dragoman evaluate` takes them: what is translated")
    precision: Precision = Field("int8-static", description="of all servers but PyTorch, which computes in fp32")
    peers: tuple[PeerName, ...] = Field(
        ("ctranslate2", "onnx", "pytorch"), min_length=1, description="what our server is measured beside"
    )
    searches: tuple[Literal["greedy", "beam 4"], ...] = Field(
        ("greedy", "beam 4"), min_length=1, description="how is searched"
    )
    server_cpus: Cpus = Field((0,), min_length=1, description="CPUs of every server")
    generator_cpus: Cpus = Field((1,), min_length=1, description="CPUs of what sends the load")
    processes: int = Field(1, ge=1, description="processes that send the load")
    windows_ms: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (2.0, 5.0, 10.0), min_length=1, description="windows of peers that are tried, in milliseconds"
    )
    batch_size: int = Field(64, ge=1, description="requests that a peer computes together, at most")
    slots: int = Field(32, ge=4, description="rows of each of our engines")
    alone_seconds: float = Field(5.0, gt=0, description="how long one user asks one request after the other")
    trial_seconds: float = Field(6.0, gt=0, description="measured part of a trial of a rate, or of a setting")
    first_rate: float = Field(40.0, gt=0, description="requests per second of the first trial")
    tolerance: float = Field(0.1, gt=0, lt=1, description="how exactly capacities are searched")
    rounds: int = Field(3, ge=1, description="searches of every server, which take turns")
    max_lag_seconds: float = Field(0.02, gt=0, description="lag p99 of the generator that makes a trial void")


EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu", "aiohttp": "bench"}


class BenchOnlineCommand(OnlineOptions):
    """Measures our server beside others under the same open-loop load: same weights, sentences, options and CPUs.

    The others are what one would build on a library that translates whole batches: a server of asyncio whose requests
    wait for company in a window of time. ctranslate2 computes its batches with its own workers; onnx computes with our
    graphs and search, but one whole batch after the other; pytorch with our model. Their windows and threads are the
    best of a trial, by the requests of sixteen users in a closed loop. All are asked over REST and run on
    --server-cpus, the generator on --generator-cpus.

    The objective is that the 99th percentile of the latency is at most three times the median of a lone request to the
    slower of our server and ctranslate2, and that nothing fails. The goodput is the highest Poisson rate that meets it;
    servers take turns, and of the rounds the median counts; behind a rival's stands how many times that ours is. Writes
    online.md and online.json into a folder. Run it on a quiet machine; it takes an hour.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        needed = EXTRAS | ({"ctranslate2": "peers"} if "ctranslate2" in self.peers else {})
        problem = missing_library(needed)
        if problem is not None:
            raise SystemExit(f"dragoman bench online: {problem}")

        benchmark(self)


FOLDERS: dict[SystemName, str] = {
    "dragoman": "bundle",
    "onnx": "bundle",
    "ctranslate2": "ctranslate2",
    "pytorch": "checkpoint",
}
_TRANSLATORS: dict[SystemName, str] = {
    "onnx": "benchmarks.systems.engine_translator:EngineTranslator",
    "ctranslate2": "benchmarks.systems.ctranslate2_translator:CTranslate2Translator",
    "pytorch": "benchmarks.systems.pytorch_translator:PyTorchTranslator",
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What all servers serve.

    Attributes:
        workshop: the folder with the files of all systems, in those of `FOLDERS`.
        tokenizer: the file of the tokenizer.
        prefix, suffix: tokens before and after those of every source.
        longest: tokens of a translation, at most.
    """

    workshop: Path
    tokenizer: Path
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    longest: int


def write_files(model: ModelFiles, workshop: Path, options: OnlineOptions) -> None:
    """Writes the files of the systems that are measured."""
    writers: Mapping[str, Callable[[Path], None]] = {
        "bundle": lambda folder: model.write_bundle(folder, "cpu", options.precision),
        "ctranslate2": lambda folder: model.write_ctranslate2(folder, compute_type(options.precision)),
        "checkpoint": model.write_checkpoint,
    }
    for name in dict.fromkeys(FOLDERS[system] for system in systems_of(options)):
        writers[name](workshop / name)


def systems_of(options: OnlineOptions) -> list[SystemName]:
    """Returns what is measured, ours first."""
    return ["dragoman", *options.peers]


def settings_of(system: SystemName, options: OnlineOptions) -> list[Setting]:
    """Returns what is tried of a system; ours has its defaults."""
    cpus = len(options.server_cpus)
    if system == "dragoman":
        return [Setting(cpus, 1, None)]
    # Static batches follow each other: while one is computed the next one waits, whatever finishes early.
    shapes = [(1, cpus)] if system != "ctranslate2" else list(dict.fromkeys([(cpus, 1), (1, cpus)]))
    return [Setting(copies, threads, window) for copies, threads in shapes for window in options.windows_ms]


def command_of(
    system: SystemName,
    setting: Setting,
    ports: tuple[int, int],
    *,
    beam_size: int,
    model: ServedModel,
    options: OnlineOptions,
) -> list[str]:
    """Returns the command line of a server.

    Args:
        system: which.
        setting: of the system.
        ports: of REST and of gRPC.
        beam_size: 1 is greedy search.
        model: what it serves.
        options: of the benchmark.
    """
    folder = model.workshop / FOLDERS[system]
    if system == "dragoman":
        return [*server_command(folder, *ports), "--slots", str(options.slots)]
    extra: dict[SystemName, dict[str, Any]] = {
        # Every row of a batch has its slot: none waits for another one's end.
        "onnx": {"slots": options.batch_size * beam_size},
        "ctranslate2": {"compute_type": compute_type(options.precision)},
    }
    # The engines take the CPUs one by one; a batch is shared out among them.
    copies, threads = (setting.threads, 1) if system == "onnx" else (setting.copies, setting.threads)
    server = PeerServer(
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


LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "aiohttp", "numpy")
# The bound of the latency, as a multiple of that of a lone request of the slower of these.
TIMES_ALONE = 3.0
BOUND_BY = ("dragoman", "ctranslate2")
# In the trials of settings: enough for full batches.
USERS = 16
WARM_UP_SECONDS = 2.0


def benchmark(options: OnlineOptions) -> None:
    """Measures every server and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("online", options.out, options.document)
        files.prepare()
        model = trained_model(options.run)
        corpus = read_corpus(options.data, "test")
        model.source_ids(corpus)  # refuses what the model cannot read
        threads = f"CPUs of each server: {len(options.server_cpus)}, of the generator: {len(options.generator_cpus)}"
        provenance = Provenance.now(command_line("bench online", options), LIBRARIES, threads)
        with TemporaryDirectory(prefix="dragoman-") as folder:
            result = _Benchmark(options, model, corpus, Path(folder)).run()
        table = format_online(result)
        print(table)
        files.write(table, {"settings": options.model_dump(mode="json"), **asdict(result)}, provenance)
    except (AffinityError, CorpusError, ReportFileError, RunError, ServedProcessError, TokenizerError) as error:
        raise SystemExit(f"dragoman bench online: {error}") from error


class _Benchmark:
    def __init__(self, options: OnlineOptions, model: ComparedModel, corpus: Corpus, workshop: Path) -> None:
        self._options = options
        self._model = model
        self._corpus = corpus
        direction = next(each for each in model.exportable.directions if (each.source, each.target) == corpus.languages)
        write_tokenizer(model.exportable.tokenizer, workshop)
        self._served = ServedModel(
            workshop,
            workshop / TOKENIZER_FILE,
            direction.source_prefix,
            model.exportable.source_suffix,
            model.model.config.max_target_tokens,
        )

    def run(self) -> OnlineResult:
        """Measures everything."""
        options = self._options
        write_files(self._model, self._served.workshop, options)
        with LiveView.open(Console(stderr=True)) as view, running_on(options.generator_cpus):
            searches = [asyncio.run(self._search(search, view)) for search in dict.fromkeys(options.searches)]
        return OnlineResult(
            self._model.name, self._model.describe(), options.precision, len(self._corpus.sources), searches
        )

    async def _search(self, search: str, view: LiveView) -> SearchResult:
        systems = systems_of(self._options)
        measured = {system: _Measured(self, system, SEARCHES[search], view) for system in systems}
        tried = {system: await measured[system].try_settings() for system in systems}
        best = {system: best_setting(tried[system]) for system in systems}
        alone = {system: await measured[system].alone(best[system]) for system in systems}
        bound_seconds = TIMES_ALONE * max(seconds for system, seconds in alone.items() if system in BOUND_BY)
        found: dict[SystemName, list[CapacityResult]] = {system: [] for system in systems}
        for number in range(self._options.rounds):
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

    def command(self, system: SystemName, setting: Setting, beam_size: int, ports: tuple[int, int]) -> list[str]:
        return command_of(system, setting, ports, beam_size=beam_size, model=self._served, options=self._options)

    @property
    def options(self) -> OnlineOptions:
        return self._options

    @property
    def languages(self) -> Languages:
        """The direction of the data, as clients name it."""
        return Languages(*self._corpus.languages)

    @property
    def workshop(self) -> Path:
        return self._served.workshop

    @property
    def sentences(self) -> Sequence[str]:
        return self._corpus.sources


class _Measured:
    """A server of a kind of search, which is started anew for every measurement."""

    def __init__(self, benchmark: _Benchmark, system: SystemName, beam_size: int, view: LiveView) -> None:
        self._benchmark = benchmark
        self._options = benchmark.options
        self._system = system
        self._beam_size = beam_size
        self._view = view

    async def try_settings(self) -> dict[Setting, float]:
        """Returns how many requests per second a crowd of users gets answered, by setting."""
        settings = settings_of(self._system, self._options)
        if len(settings) == 1:
            return {settings[0]: 0.0}
        found = {}
        for setting in settings:
            (result,) = await self._closed_loop(setting, USERS, self._options.trial_seconds)
            found[setting] = result.requests_per_second
        return found

    async def alone(self, setting: Setting) -> float:
        """Returns the median latency of a lone request, in seconds.

        Raises:
            ServedProcessError: if the server answers none.
        """
        (result,) = await self._closed_loop(setting, 1, self._options.alone_seconds)
        if result.all.latency_seconds is None:
            raise ServedProcessError(f"{self._system}: no request was answered: {result.all.errors}")
        return result.all.latency_seconds.p50

    async def capacity(self, setting: Setting, objective: Objective, *, curve: bool) -> CapacityResult:
        """Returns the highest rate that meets an objective, and on demand what becomes of rates around it."""
        options = self._options
        with self._serve(setting) as served:
            await served.wait_ready()
            session_options = self._session_options(served, objective)
            async with LoadSession.open(
                session_options, self._scenario(WARM_UP_SECONDS), self._benchmark.sentences, self._view
            ) as session:
                return await session.find_capacity(
                    str(self._system), options.first_rate, options.trial_seconds, options.tolerance, curve=curve
                )

    async def _closed_loop(self, setting: Setting, users: int, seconds: float) -> list[RunResult]:
        with self._serve(setting) as served:
            await served.wait_ready()
            session_options = self._session_options(served, Objective(), users)
            async with LoadSession.open(
                session_options, self._scenario(seconds), self._benchmark.sentences, self._view
            ) as session:
                return await session.run(f"{self._system}, {setting}")

    def _session_options(self, served: ServedProcess, objective: Objective, users: int | None = None) -> SessionOptions:
        options = self._options
        return SessionOptions(
            served.targets, options.processes, options.generator_cpus, objective, options.max_lag_seconds, 1, users
        )

    def _scenario(self, seconds: float) -> Scenario:
        search = SearchOptions(beam_size=self._beam_size)
        # Enough different requests for users who come back.
        phase = ConstantPhase(name="closed", arrivals="constant", rate=50.0, duration_seconds=seconds)
        languages = asdict(self._benchmark.languages)
        kind = RequestKind(protocol="rest", options=search, **languages)
        return Scenario(warm_up_seconds=WARM_UP_SECONDS, requests=(kind,), phases=(phase,))

    @contextmanager
    def _serve(self, setting: Setting) -> Iterator[ServedProcess]:
        ports = choose_ports(0, 0)
        command = self._benchmark.command(self._system, setting, self._beam_size, ports)
        log = self._benchmark.workshop / f"{self._system}.log"
        served = ServedProcess(command, ports, log, {})
        with running_on(self._options.server_cpus):
            served.start()
        try:
            yield served
        finally:
            served.kill()
