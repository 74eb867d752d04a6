"""Measures all systems of one model, as `dragoman bench offline` does: trials, then rounds together, then rounds alone.

The files are in a temporary folder and gone afterwards. Knows no options and no tables.

The options of `dragoman bench offline`: flags, environment variables and what they may be. Needs no torch.

`dragoman bench offline`: how fast the engines translate a test set, beside rivals with the same weights.

The tables of `docs/measurements/benchmarks.md` are made by one call of it. Knows the options alone: what needs torch
is imported when the command runs, so that its lack can be explained.

The systems that `dragoman bench offline` compares: our engines, and those that others made.

Knows what each is, which files it needs and how it is started. Knows no torch.

What `dragoman bench offline` does with its options: makes models and sentences, has them measured, writes tables.

Needs torch, unlike the options themselves; called by `benchmarks.offline`.
"""

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from tqdm import tqdm

from benchmarks.harness.process import Launch, SystemFailedError
from benchmarks.harness.rounds import Player, Progress, Round, missing_library, play, steps_of
from benchmarks.near_ties import Difference, differences, narrowest_margin
from benchmarks.offline_results import (
    SEARCHES,
    OfflineModelResult,
    OfflineResult,
    OfflineWorkload,
    Trials,
    best,
    format_offline,
    sentences_of,
)
from benchmarks.systems.compared_model import (
    BASE,
    BASE_VOCABULARY_SIZE,
    MOST_TOKENS,
    ComparedModel,
    ModelFiles,
    compared_models,
    compute_type,
)
from benchmarks.systems.optimum_environment import OptimumEnvironment
from benchmarks.systems.translating import PATTERN, Batching, SourceSentence, write_sentences
from loadtest.report_files import ReportFileError, ReportFiles
from model.config import TransformerConfig
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.manifest import Precision
from serve.system import available_cpus

CpuPrecision = Literal["fp32", "int8", "int8-static"]
BATCHES = ("16:examples", "32:examples", "64:examples", "128:examples", "512:tokens", "2048:tokens")


class OfflineOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_OFFLINE_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets offline.md and offline.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- offline --> gets the tables")
    run: Path | None = Field(
        None, description="training run or bundle in fp32, whose model is measured beside a random one"
    )
    data: str = Field("multi30k:en-de", description="test data, as `dragoman evaluate` takes them")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    peers: tuple[Literal["ctranslate2", "pytorch", "transformers", "optimum"], ...] = Field(
        ("ctranslate2", "pytorch", "transformers"), description="what the engines are measured beside"
    )
    optimum_python: Path = Field(
        Path(".venv-optimum/bin/python"),
        description="interpreter of the environment of the peer optimum, which `make optimum` makes",
    )
    precisions: tuple[CpuPrecision, ...] = Field(
        ("fp32", "int8", "int8-static"),
        min_length=1,
        description="of the engines; the others get the nearest they have",
    )
    sentences: int | None = Field(None, gt=0, description="so many sentences of the data; default: all")
    trials: int = Field(
        2,
        gt=0,
        description="passes of each size of --batches and --slots, if several, before the rounds; the fastest counts",
    )
    alone: int = Field(50, gt=0, description="so many of them are also translated one at a time")
    rounds: int = Field(5, gt=0, description="turns of each system at each task")
    batches: tuple[Annotated[str, Field(pattern=PATTERN)], ...] = Field(
        BATCHES, min_length=1, description="batches of the others that are tried, as in 64:examples or 1024:tokens"
    )
    engines: int | None = Field(
        None, gt=0, description="our engines; default: one for each CPU; rivals get as many threads as all engines"
    )
    threads: int = Field(1, gt=0, description="threads of each of our engines")
    slots: tuple[Annotated[int, Field(ge=4)], ...] = Field(
        (32, 64, 128), min_length=1, description="rows of each of our engines that are tried"
    )
    alone_threads: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 2), min_length=1, description="threads that are tried for one sentence at a time"
    )


# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu"}
# The same for what a peer needs besides.
PEER_EXTRAS: dict[str, dict[str, str]] = {
    "ctranslate2": {"ctranslate2": "peers"},
    "pytorch": {},
    "transformers": {"transformers": "peers"},
    "optimum": {"transformers": "peers"},
}


class BenchOfflineCommand(OfflineOptions):
    """Measures the engines beside rivals with the same weights, sentences and options: throughput, latency, memory.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Each system is a process of its own and translates token ids to token ids, greedily and with a beam of 4: all
    sentences as fast as it can, then some of them one after the other. The random model never ends by itself: its
    translations get exactly the lengths of the references. In every round each system is started once and then takes
    its turn at each task. Figures are the median of the rounds; behind a rival's stands how many times that ours is:
    the median of the rounds' ratios, the smallest and the largest.

    Rivals that take batches get the best of --batches, and our engines the best of --slots; --trials passes of each
    come before the rounds. One sentence at a time is translated with each of --alone-threads, and the best counts, for
    every system. Writes offline.md and offline.json into a folder. Run it on a quiet machine; it takes hours.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        self._check_peers()

        benchmark(self)

    def _check_peers(self) -> None:
        needed = EXTRAS.copy()
        for peer in self.peers:
            needed |= PEER_EXTRAS[peer]
        problem = missing_library(needed)
        if problem is not None:
            raise SystemExit(f"dragoman bench offline: {problem}")


Maker = Literal["dragoman", "ctranslate2", "pytorch", "transformers", "optimum"]


@dataclass(frozen=True, slots=True)
class OfflineSystem:
    """A system of a precision.

    Attributes:
        maker: what translates.
        precision: what it computes in.
        module: its process.
        write: has a model write the files that it loads into a new folder.
        options: of its translator, beside those that all have.
        python: the interpreter of its process.
    """

    maker: Maker
    precision: Precision
    module: str
    write: Callable[[ModelFiles, Path], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable

    @property
    def name(self) -> str:
        """In messages."""
        return f"{self.maker} {self.precision}"

    @property
    def batched(self) -> bool:
        """Whether it translates static batches; else sequences join and leave its rows."""
        return self.maker != "dragoman"

    def launch(self, folder: Path, sentences: Path, copies: int, threads: int) -> Launch:
        """Returns how it is started.

        Args:
            folder: with its files.
            sentences: the file that `benchmarks.systems.translating` writes.
            copies: what translates side by side.
            threads: of each copy.
        """
        places = {"folder": str(folder), "sentences": str(sentences), "copies": copies, "threads": threads}
        return Launch(f"{self.name}, {copies} x {threads}", self.module, {**places, **self.options}, self.python)


def offline_systems(
    peers: Collection[str], precisions: Collection[Precision], slots: int, optimum: OptimumEnvironment
) -> list[OfflineSystem]:
    """Returns ours and those of the peers in each precision; ours first.

    Args:
        peers: what ours is compared with.
        precisions: of ours; those of the peers are the nearest that they have, if any.
        slots: rows of each of our engines, until a batching tells another number.
        optimum: where Optimum is installed, if it is a peer.
    """
    systems: list[OfflineSystem] = []
    for precision in precisions:
        systems += [_dragoman(precision, slots), _ctranslate2(precision)]
        if precision == "fp32":
            systems += [_with_torch("pytorch"), _with_torch("transformers"), _optimum(optimum)]
    return [system for system in systems if system.maker in ("dragoman", *peers)]


def _dragoman(precision: Precision, slots: int) -> OfflineSystem:
    return OfflineSystem(
        "dragoman",
        precision,
        "benchmarks.systems.engine_translator",
        lambda model, folder: model.write_bundle(folder, "cpu", precision),
        {"slots": slots},
    )


def _ctranslate2(precision: Precision) -> OfflineSystem:
    weights = compute_type(precision)
    return OfflineSystem(
        "ctranslate2",
        precision,
        "benchmarks.systems.ctranslate2_translator",
        lambda model, folder: model.write_ctranslate2(folder, weights),
        {"compute_type": weights},
    )


def _with_torch(peer: Literal["pytorch", "transformers"]) -> OfflineSystem:
    return OfflineSystem(
        peer, "fp32", f"benchmarks.systems.{peer}_translator", lambda model, folder: model.write_checkpoint(folder)
    )


def _optimum(environment: OptimumEnvironment) -> OfflineSystem:
    return OfflineSystem(
        "optimum",
        "fp32",
        "benchmarks.systems.optimum_translator",
        environment.write_model,
        python=str(environment.python),
    )


def steps_of_model(systems: Sequence[OfflineSystem], workload: OfflineWorkload) -> int:
    """Returns how many steps `compare_offline` tells a progress bar."""
    searches = len(SEARCHES)
    trials = sum(steps_of(1, searches * len(_tried(system, workload)), _passes(system, workload)) for system in systems)
    together = steps_of(len(systems), searches, workload.rounds)
    alone = steps_of(len(systems) * len(workload.alone_threads), searches, workload.rounds)
    return len(systems) + trials + together + alone


def compare_offline(
    model: ComparedModel, systems: Sequence[OfflineSystem], workload: OfflineWorkload, progress: Progress
) -> OfflineModelResult:
    """Measures all systems of a model.

    Args:
        model: whose weights they hold.
        systems: which.
        workload: what they do.
        progress: is told each step.

    Raises:
        RunError: if a bundle cannot be made.
        SystemFailedError: if a system fails.
    """
    with TemporaryDirectory(prefix="dragoman-") as workshop:
        results = _Comparison(model, systems, workload, Path(workshop), progress).run()
    alone = min(workload.alone, len(workload.sentences))
    return OfflineModelResult(model.name, model.describe(), len(workload.sentences), alone, results)


class _Comparison:
    """The systems of a model, their files, and the parts of the measurement."""

    def __init__(
        self,
        model: ComparedModel,
        systems: Sequence[OfflineSystem],
        workload: OfflineWorkload,
        workshop: Path,
        progress: Progress,
    ) -> None:
        self._model = model
        self._systems = systems
        self._workload = workload
        self._workshop = workshop
        self._progress = progress
        self._sentences = workshop / "sentences.json"

    def run(self) -> list[OfflineResult]:
        """Measures, and returns the result of each system."""
        write_sentences(self._sentences, self._workload.sentences)
        for system in self._systems:
            system.write(self._model, self._workshop / system.name)
            self._progress.update()
        trials = {system.name: self._try_batchings(system) for system in self._systems}
        together = self._play_together(trials)
        alone = self._play_alone()
        return [
            OfflineResult(
                system.maker,
                system.precision,
                trials[system.name],
                together[system.name],
                alone[system.name],
                self._differences(system),
            )
            for system in self._systems
        ]

    def _try_batchings(self, system: OfflineSystem) -> Trials:
        """Translates with each batching, and keeps the translations."""
        names = {
            (search, str(batching)): f"{search}, {batching}"
            for search in SEARCHES
            for batching in _tried(system, self._workload)
        }
        tasks = {
            name: _task(search, batching, output=str(self._translations(system, search)))
            for (search, batching), name in names.items()
        }
        launch = self._launch(system)
        tried = self._play([Player(launch, tasks)], _passes(system, self._workload))[launch.name]
        trials: Trials = {search: {} for search in SEARCHES}
        for (search, batching), name in names.items():
            trials[search][batching] = [each.tokens_per_second[name] for each in tried]
        return trials

    def _play_together(self, trials: Mapping[str, Trials]) -> dict[str, list[Round]]:
        players = {
            system.name: Player(
                self._launch(system),
                {search: _task(search, best(tried)) for search, tried in trials[system.name].items()},
            )
            for system in self._systems
        }
        played = self._play(list(players.values()), self._workload.rounds)
        return {name: played[player.launch.name] for name, player in players.items()}

    def _play_alone(self) -> dict[str, dict[int, list[Round]]]:
        players = {
            (system.name, threads): Player(
                system.launch(self._workshop / system.name, self._sentences, copies=1, threads=threads),
                {
                    # Of one sentence there is one batch, in any batching.
                    search: _task(search, str(_tried(system, self._workload)[0]), alone=self._workload.alone)
                    for search in SEARCHES
                },
            )
            for system in self._systems
            for threads in self._workload.alone_threads
        }
        played = self._play(list(players.values()), self._workload.rounds)
        found: dict[str, dict[int, list[Round]]] = {system.name: {} for system in self._systems}
        for (name, threads), player in players.items():
            found[name][threads] = played[player.launch.name]
        return found

    def _play(self, players: Sequence[Player], rounds: int) -> dict[str, list[Round]]:
        return play(players, rounds=rounds, seconds=None, progress=self._progress)

    def _launch(self, system: OfflineSystem) -> Launch:
        engines, threads = self._workload.engines, self._workload.threads
        # For a peer, copies of one thread are what serves best; ours has what the server has.
        copies, threads = (engines * threads, 1) if system.batched else (engines, threads)
        return system.launch(self._workshop / system.name, self._sentences, copies, threads)

    def _differences(self, system: OfflineSystem) -> dict[str, list[Difference]] | None:
        """Compares a system with CTranslate2, where both compute in floats and the model ends by itself."""
        peer = next((each for each in self._systems if each.maker == "ctranslate2" and each.precision == "fp32"), None)
        if peer is None or peer is system or system.precision != "fp32" or not self._model.trained:
            return None
        found = {}
        for search, beam_size in SEARCHES.items():
            ours, theirs = (json.loads(self._translations(each, search).read_bytes()) for each in (system, peer))
            found[search] = differences(ours, theirs, partial(self._margin, beam_size))
        return found

    def _margin(self, beam_size: int, place: int) -> float:
        return narrowest_margin(self._model.model, self._workload.sentences[place].source_ids, beam_size)

    def _translations(self, system: OfflineSystem, search: str) -> Path:
        return self._workshop / f"{system.name}, {search}.json"


def _tried(system: OfflineSystem, workload: OfflineWorkload) -> tuple[Batching, ...]:
    """Returns the batchings to try."""
    return workload.batchings if system.batched else workload.rows


def _passes(system: OfflineSystem, workload: OfflineWorkload) -> int:
    """Returns how often each of them is tried: a single one, of which nothing is chosen, once for its translations."""
    return workload.trials if len(_tried(system, workload)) > 1 else 1


def _task(search: str, batching: str, **options: Any) -> dict[str, Any]:
    """Returns what `benchmarks.systems.translating` takes as a task."""
    return {"beam_size": SEARCHES[search], "batching": batching, **options}


LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "transformers", "numpy")


def benchmark(options: OfflineOptions) -> None:
    """Measures every model and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("offline", options.out, options.document)
        files.prepare()
        optimum = OptimumEnvironment(options.optimum_python)
        versions = {"optimum": optimum.versions()} if "optimum" in options.peers else {}
        engines = options.engines or available_cpus()
        models = compared_models(options.run, options.random, options.vocabulary_size)
        systems = offline_systems(options.peers, options.precisions, options.slots[0], optimum)
        if any(system.maker in ("transformers", "optimum") for system in systems):
            _check_transformers(models)
        all_sentences = sentences_of(models, options.data, options.sentences)
        workloads = [_workload(options, engines, sentences) for sentences in all_sentences]
        threads = f"threads of each system: {engines * options.threads}"
        provenance = Provenance.now(command_line("bench offline", options), LIBRARIES, threads, versions)
        results = _compare(models, systems, workloads)
        files.write_models(results, map(format_offline, results), options.model_dump(mode="json"), provenance)
    except (CorpusError, ReportFileError, RunError, SystemFailedError, TokenizerError) as error:
        raise SystemExit(f"dragoman bench offline: {error}") from error


def _check_transformers(models: Sequence[ComparedModel]) -> None:
    from benchmarks.systems.transformers_model import NoSuchModelError, check_known  # noqa: PLC0415 - only with this peer

    for model in models:
        try:
            check_known(model.model.config)
        except NoSuchModelError as error:
            raise RunError(f"{model.name}: {error}; leave it out of --peers") from error


def _workload(options: OfflineOptions, engines: int, sentences: list[SourceSentence]) -> OfflineWorkload:
    return OfflineWorkload(
        sentences,
        options.alone,
        options.trials,
        options.rounds,
        tuple(map(Batching.parse, dict.fromkeys(options.batches))),
        tuple(Batching(slots, "rows") for slots in dict.fromkeys(options.slots)),
        engines,
        options.threads,
        tuple(dict.fromkeys(options.alone_threads)),
    )


def _compare(
    models: Sequence[ComparedModel], systems: Sequence[OfflineSystem], workloads: Sequence[OfflineWorkload]
) -> list[OfflineModelResult]:
    results = []
    steps = sum(steps_of_model(systems, workload) for workload in workloads)
    with tqdm(total=steps, unit=" steps", disable=None) as progress:
        for model, workload in zip(models, workloads, strict=True):
            progress.set_description(model.name)
            results.append(compare_offline(model, systems, workload, progress))
    return results
