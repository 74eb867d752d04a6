"""Goodput of the server compared with a server built on CTranslate2.

Both servers hold the same weights, get the same CPUs and requests over the same protocol; the load generator has other
CPUs. The baseline is an asyncio server with a batching window around CTranslate2 and its workers. Its window and
threads are the best of a trial with closed-loop users.

The objective: no failure, and a bound of the p99 latency, by default three times the median of a single request to the
slower server. The goodput is the highest Poisson rate that meets it. Servers of other checkouts can take part.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from rich.console import Console

from benchmarks.baseline_server import BaselineServer
from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import rotated
from benchmarks.served import Interface, ServersPlan, request_kind, serving
from benchmarks.systems.compared_model import (
    BASE,
    BASE_VOCABULARY_SIZE,
    LOADERS,
    MAX_TOKENS,
    RANDOM_DIRECTION,
    RANDOM_SEED,
    ComparedModel,
    Maker,
    compute_type,
    lengths_of,
    random_model,
    trained_model,
)
from benchmarks.systems.translating import SEARCHES, draw_sentences
from dragoman.export.source_model import find_direction
from dragoman.loadtest.results import CapacityResult, RunResult
from dragoman.loadtest.scenario import ConstantPhase, Objective, Scenario, SearchOptions
from dragoman.loadtest.session import CURVE_SHARES, LiveView, LoadSession
from dragoman.model.config import TransformerConfig
from dragoman.model.data.corpus import Corpus, read_corpus
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.serve.bundle.manifest import BundleDirection, Precision
from dragoman.serve.bundle.tokenizer import TOKENIZER_FILE, write_tokenizer
from dragoman.serve.host.server_process import server_command
from dragoman.serve.settings import QUEUE_PER_SLOT
from dragoman.tables import described

DRAGOMAN: Maker = "dragoman"
BASELINE: Maker = "ctranslate2"
SYSTEMS = (DRAGOMAN, BASELINE)
# The latency bound is this multiple of a single request to the slower server.
TIMES_ALONE = 3.0
# Closed-loop users in trials of settings, enough for full batches.
USERS = 16
WARM_UP_SECONDS = 2.0
# Maximum sentences in a batch of the baseline.
BATCH_SIZE = 64
# Short trials cannot distinguish rates closer than this.
TIE = 0.05
GOODPUT = "goodput, requests/s"


class Setting(NamedTuple):
    """How a server is started; copies are concurrent batches or engines, no window means continuous batching."""

    copies: int
    threads: int
    window_ms: float | None

    def __str__(self) -> str:
        window = "" if self.window_ms is None else f", window {self.window_ms:g} ms"
        return f"{self.copies} x {self.threads} threads{window}"


@described(__file__)
class OnlinePlan(ServersPlan):
    """The parameters of this benchmark."""

    libraries = ("onnxruntime", "ctranslate2", "aiohttp", "numpy")

    run: Path | None = None
    random: TransformerConfig = BASE
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MAX_TOKENS)
    interface: Interface = "rest"
    bounds_ms: tuple[Annotated[float, Field(gt=0)], ...] = ()
    curve: bool = True
    checkouts: dict[str, Path] = Field({})
    server_processes: int = Field(1, ge=1)
    data: str = "multi30k:en-de"
    precision: Precision = "int8"
    searches: tuple[Literal["greedy", "beam 4"], ...] = Field(("greedy", "beam 4"), min_length=1)
    windows_ms: tuple[Annotated[float, Field(ge=0)], ...] = Field((2.0, 5.0, 10.0), min_length=1)
    slots: int = Field(32, ge=4)
    alone_seconds: float = Field(5.0, gt=0)
    trial_seconds: float = Field(6.0, gt=0)
    first_rate: float = Field(40.0, gt=0)
    tolerance: float = Field(0.1, gt=0, lt=1)
    max_lag_seconds: float = Field(0.02, gt=0)
    rounds: int = Field(3, ge=1)

    def compared(self) -> tuple[ComparedModel, Corpus, int | None]:
        """Returns the model, the texts to translate, and the maximum of target tokens; None: the model's limit.

        A random model does not end a translation by itself: all of its translations have the mean length of the data.
        Equal lengths suit static batches, which wait for their longest translation.
        """
        corpus = read_corpus(self.data, "test")
        if self.run is not None:
            model = trained_model(self.run)
            model.sentences(corpus)  # reports sentences that the model cannot read
            return model, corpus, None
        model, lengths = random_model(self.random, self.vocabulary_size), lengths_of(corpus, None)
        drawn = model.checked(draw_sentences(RANDOM_SEED, lengths, self.vocabulary_size, EOS_ID))
        texts = [model.exportable.tokenizer.decode(item.source_ids[:-1]) for item in drawn]
        made_up = Corpus(RANDOM_DIRECTION.source, RANDOM_DIRECTION.target, texts, texts)
        return model, made_up, round(sum(target for _, target in lengths) / len(lengths))

    def settings(self, system: str) -> list[Setting]:
        """Returns the settings to try; Dragoman has only its defaults."""
        cpus = len(set(self.server_cpus))
        if system != BASELINE:
            return [Setting(max(cpus, self.server_processes), 1, None)]
        workers = {cpus, self.server_processes} if self.server_processes > 1 else {cpus}
        shapes = dict.fromkeys([*((count, 1) for count in sorted(workers)), (1, cpus)])
        return [Setting(copies, threads, window) for copies, threads in shapes for window in self.windows_ms]

    def measure(self) -> Report:
        """Measures both servers with each search. Takes an hour on an otherwise idle machine."""
        import_module("ctranslate2")
        model, corpus, longest = self.compared()
        report = Report([], self.cpus)
        with TemporaryDirectory(prefix="dragoman-") as folder, LiveView.open(Console(stderr=True)) as view:
            workshop = Path(folder)
            for system in SYSTEMS:
                model.write(workshop / system, system, self.precision)
            write_tokenizer(model.exportable.tokenizer, workshop)
            with running_on(self.generator_cpus):
                for search in dict.fromkeys(self.searches):
                    comparison = Comparison(self, model, corpus, workshop, SEARCHES[search], view, longest)
                    tables, report.details[search] = asyncio.run(comparison.measure(search))
                    report.tables.extend(tables)
        text = f"**{model.name}**, {self.precision}: {model.describe()}. {len(corpus.sources):,} sentences."
        report.tables[0] = replace(report.tables[0], text=f"{text}\n\n{report.tables[0].text}")
        return report


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both servers of a model with one kind of search. Every measurement starts a new process.

    Clients send the sources of the corpus. The folder `workshop` has the files of each server, and the tokenizer. No
    translation has more than `longest` tokens; None: the model's limit.
    """

    plan: OnlinePlan
    model: ComparedModel
    corpus: Corpus
    workshop: Path
    beam_size: int
    view: LiveView
    longest: int | None = None

    @property
    def direction(self) -> BundleDirection:
        """The direction of the texts."""
        return find_direction(self.model.exportable, self.corpus.languages)

    async def measure(self, search: str) -> tuple[list[Table], dict[str, Any]]:
        """Measures both servers; returns the tables and what they do not have."""
        plan, systems = self.plan, (*SYSTEMS, *self.plan.checkouts)
        tried = {system: await self._try_settings(system) for system in systems}
        best = {system: best_setting(rates) for system, rates in tried.items()}
        alone = {system: await self._alone(system, best[system]) for system in systems}
        bounds_ms = plan.bounds_ms or (1000 * TIMES_ALONE * max(alone[system] for system in SYSTEMS),)
        tables, capacities = list[Table](), dict[str, Any]()
        for bound_ms in bounds_ms:
            found = await self._goodput(best, bound_ms / 1000)
            tables += tables_of(search, f"{search}, p99 <= {bound_ms:.0f} ms, no failure:", alone, found)
            capacities[f"{bound_ms:g}"] = {system: list(map(asdict, results)) for system, results in found.items()}
        tables[0].notes.insert(0, f"Settings: {', '.join(f'{system} {setting}' for system, setting in best.items())}.")
        details = {
            "bounds_ms": bounds_ms,
            "tried": {system: {str(item): rate for item, rate in rates.items()} for system, rates in tried.items()},
            "capacities": capacities,
        }
        return tables, details

    async def _goodput(self, best: Mapping[str, Setting], bound_seconds: float) -> dict[str, list[CapacityResult]]:
        """Returns the searches for the goodput of each system, one per round."""
        plan = self.plan
        found: dict[str, list[CapacityResult]] = {system: [] for system in best}
        for number in range(plan.rounds):
            for system in rotated(tuple(best), number):
                objective = Objective(latency_seconds=bound_seconds)
                async with self._load(system, best[system], plan.trial_seconds, objective) as session:
                    found[system].append(await session.find_capacity(system, curve=plan.curve and number == 0))
        return found

    async def _try_settings(self, system: str) -> dict[Setting, float]:
        """Returns the closed-loop throughput of each setting, requests per second; 0 for an only one, untried."""
        settings = self.plan.settings(system)
        if len(settings) == 1:
            return {settings[0]: 0.0}
        seconds = self.plan.trial_seconds
        return {
            setting: (await self._closed(system, setting, seconds, USERS)).requests_per_second for setting in settings
        }

    async def _alone(self, system: str, setting: Setting) -> float:
        """Returns the median latency of single requests, in seconds."""
        requests = (await self._closed(system, setting, self.plan.alone_seconds, 1)).all
        if requests.latency_seconds is None:
            raise BenchmarkError(f"{system}: expected answers, got none: {requests.errors}")
        return requests.latency_seconds.p50

    async def _closed(self, system: str, setting: Setting, seconds: float, users: int) -> RunResult:
        async with self._load(system, setting, seconds, Objective(), users) as session:
            (result,) = await session.run(f"{system}, {setting}")
        return result

    @asynccontextmanager
    async def _load(
        self, system: str, setting: Setting, seconds: float, objective: Objective, users: int | None = None
    ) -> AsyncIterator[LoadSession]:
        """Runs a server and a load generator; the load has closed-loop users, or is open-loop."""
        plan = self.plan
        options = SearchOptions(beam_size=self.beam_size, max_target_tokens=self.longest)
        # The baseline has no streams of requests.
        interface = "grpc" if system == BASELINE and plan.interface == "grpc-many" else plan.interface
        scenario = Scenario(
            warm_up_seconds=WARM_UP_SECONDS,
            requests=(request_kind(interface, self.direction, options),),
            # Enough different requests for a closed loop.
            phases=(ConstantPhase(name="closed", rate=plan.first_rate, duration_seconds=seconds),),
            objective=objective,
            trial_seconds=plan.trial_seconds,
            tolerance=plan.tolerance,
            max_lag_seconds=plan.max_lag_seconds,
        )
        with serving(lambda ports: self.command(system, setting, ports), plan.server_cpus) as server:
            generator: dict[str, Any] = {"processes": plan.processes, "cpus": plan.generator_cpus, "users": users}
            sources, targets = self.corpus.sources, server.targets
            async with LoadSession.open(scenario, sources, targets, self.view, **generator) as session:
                yield session

    def command(self, system: str, setting: Setting, ports: tuple[int, int]) -> list[str]:
        """Returns the command line of a server, with ports of REST and gRPC; another checkout serves `run`."""
        folder, plan = self.workshop / system, self.plan
        if system != BASELINE:
            checkout = plan.checkouts.get(system)
            if checkout is not None and plan.run is not None:
                folder = plan.run.resolve()
            command = server_command(folder, *ports, slots=plan.slots, processes=plan.server_processes)
            # `python -m` finds the modules of the folder that it runs in.
            return command if checkout is None else ["env", "-C", str(checkout), *command]
        options = {"folder": str(folder), "copies": setting.copies, "threads": setting.threads}
        options["compute_type"] = compute_type(plan.precision)
        server = BaselineServer(
            port=ports[0],
            grpc_port=ports[1],
            translator=LOADERS[BASELINE],
            options=options,
            tokenizer=self.workshop / TOKENIZER_FILE,
            prefix=self.direction.source_prefix,
            suffix=self.model.exportable.source_suffix,
            longest=self.longest or self.model.model.config.max_target_tokens,
            beam_size=self.beam_size,
            size=BATCH_SIZE,
            window_seconds=(setting.window_ms or 0.0) / 1000,
            workers=setting.copies,
            waiting=QUEUE_PER_SLOT * plan.slots * len(set(plan.server_cpus)),
        )
        return [sys.executable, "-m", "benchmarks.baseline_server", server.model_dump_json()]


def best_setting(tried: Mapping[Setting, float]) -> Setting:
    """Returns the setting with the highest rate; within `TIE` of it, the one with the shortest window.

    Every request pays for the window, and the latency bound of all servers depends on it.
    """
    most = max(tried.values())
    as_good = [setting for setting, rate in tried.items() if rate >= (1 - TIE) * most]
    return min(as_good, key=lambda setting: setting.window_ms or 0.0)


def tables_of(
    search: str, bound: str, alone: Mapping[str, float], found: Mapping[str, Sequence[CapacityResult]]
) -> list[Table]:
    """Returns a table of the goodput and its ratios, with a note per void search, and the curves of the first round."""
    goodput: dict[str, list[Figures]] = {}
    curves: dict[str, list[Figures]] = {}
    notes, shares = [], [f"{share:g}" for share in CURVE_SHARES]
    for system, results in found.items():
        goodput[system] = [{GOODPUT: result.capacity_per_second or 0.0} for result in results]
        goodput[system][0] = {"alone, p50, ms": 1000 * alone[system], **goodput[system][0]}
        points = zip(shares, results[0].curve, strict=False)
        curves[system] = [{share: point.goodput_per_second for share, point in points if point.void is None}]
        notes += [
            f"{system}, round {number}: VOID: all higher rates are void: {result.void}"
            for number, result in enumerate(results, start=1)
            if result.void is not None
        ]
    offered = "Goodput, requests/s, at multiples of the goodput of the first round; void trials are left out:"
    measured = [Table("offered", curves, order=shares, text=offered)] if any(map(any, curves.values())) else []
    return [Table(search, goodput, DRAGOMAN, (GOODPUT,), text=bound, notes=notes), *measured]
