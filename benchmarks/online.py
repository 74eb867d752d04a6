"""What `dragoman bench online` does with its options: has every server measured in turn, and writes tables.

Needs torch, unlike the options themselves; called by `benchmarks.bench_online`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.harness.affinity import AffinityError, running_on
from benchmarks.harness.rounds import in_turn
from benchmarks.offline_results import SEARCHES
from benchmarks.online_options import OnlineOptions
from benchmarks.online_results import (
    OnlineResult,
    SearchResult,
    Setting,
    SystemName,
    SystemResult,
    best_setting,
)
from benchmarks.online_systems import ServedModel, command_of, settings_of, systems_of, write_files
from benchmarks.online_table import format_online
from benchmarks.systems.compared_model import ComparedModel, trained_model
from loadtest.document import CapacityResult
from loadtest.live_view import LiveView
from loadtest.objective import Objective
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.request import Languages
from loadtest.results import RunResult
from loadtest.scenario import ConstantPhase, RequestKind, Scenario
from loadtest.search_options import SearchOptions
from loadtest.served_process import ServedProcess, ServedProcessError
from loadtest.session import LoadSession, SessionOptions
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.tokenizer import TOKENIZER_FILE, write_tokenizer
from serve.server_process import choose_ports

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
