"""`dragoman bench offline`: throughput, latency and memory of the engines compared with other inference libraries.

All systems hold the same weights. For each model: trials of batch sizes, then rounds with all sentences at once, then
rounds with single sentences. The files of the systems are in a temporary folder.
"""

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from tqdm import tqdm

from benchmarks.harness.process import Launch
from benchmarks.harness.rounds import Player, Progress, Round, play, reporting, require_libraries, steps_of
from benchmarks.near_ties import Difference, differences, narrowest_margin
from benchmarks.offline_results import (
    SEARCHES,
    OfflineModelResult,
    OfflineResult,
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
    OptimumEnvironment,
    compared_models,
    compute_type,
)
from benchmarks.systems.translating import PATTERN, Batching, SourceSentence, write_sentences
from loadtest.report_files import ReportFiles
from model.config import TransformerConfig
from model.provenance import Provenance, command_line
from model.run import RunError
from serve.bundle.manifest import Precision
from serve.system import available_cpus

CpuPrecision = Literal["fp32", "int8", "int8-static"]
LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "transformers", "numpy")
SENTENCES_FILE = "sentences.json"
BATCHES = ("16:examples", "32:examples", "64:examples", "128:examples", "512:tokens", "2048:tokens")

Maker = Literal["dragoman", "ctranslate2", "pytorch", "transformers", "optimum"]


@dataclass(frozen=True, slots=True)
class OfflineSystem:
    """A system in one precision.

    Attributes:
        load: runs in its process, as `module:name`.
        write: writes the files that it loads into a new folder.
        options: of its translator, in addition to those common to all.
    """

    maker: Maker
    precision: Precision
    load: str
    write: Callable[[ComparedModel, Path], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"{self.maker} {self.precision}"

    @property
    def batched(self) -> bool:
        """Whether it translates static batches instead of continuous ones."""
        return self.maker != "dragoman"

    def launch(self, folder: Path, copies: int, threads: int) -> Launch:
        """Returns how to start it; `copies` are concurrent batches, or engines."""
        options = {"folder": str(folder), "copies": copies, "threads": threads, **self.options}
        return Launch(f"{self.name}, {copies} x {threads}", self.load, options, self.python)


# Libraries that are imported only for a baseline.
BASELINE_LIBRARIES = {"ctranslate2": "ctranslate2", "transformers": "transformers", "optimum": "transformers"}


class BenchOfflineCommand(BaseSettings):
    """Compares the engines with other inference libraries: throughput, latency and memory.

    Measures a random model, by default the base model of Vaswani et al. 2017, and with --run a trained one. All systems
    hold the same weights and have the same number of threads. Each is a process that translates token ids to token ids,
    greedily and with a beam of 4: all sentences at once, then some of them one at a time. The random model gets exactly
    the target lengths of the references. All systems take turns in every round. A baseline's figure is followed by the
    ratio of Dragoman to it: the median of the rounds' ratios and their range.

    Baselines use the fastest of --batches, Dragoman the fastest of --slots, every system the fastest of
    --alone-threads. Writes offline.md and offline.json. Takes hours on an otherwise idle machine.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_OFFLINE_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    HELP_GROUPS: ClassVar[dict[str, str]] = {
        "out": "output",
        "run": "model and data",
        "baselines": "systems",
        "sentences": "measurement",
        "batches": "batches and threads",
    }

    out: Path = Field(description="folder for offline.md and offline.json")
    document: Path | None = Field(None, description="Markdown file; the tables replace its <!-- offline --> section")
    run: Path | None = Field(None, description="training run or fp32 bundle of a second, trained model")
    data: str = Field("multi30k:en-de", description="test data as in `dragoman evaluate`")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    baselines: tuple[Literal["ctranslate2", "pytorch", "transformers", "optimum"], ...] = Field(
        ("ctranslate2", "pytorch", "transformers"), description="systems to compare with"
    )
    optimum_python: Path = Field(
        Path(".venv-optimum/bin/python"),
        description="interpreter of the optimum environment, as `make optimum` makes one",
    )
    precisions: tuple[CpuPrecision, ...] = Field(
        ("fp32", "int8", "int8-static"),
        min_length=1,
        description="precisions of the engines; baselines use the nearest they have",
    )
    sentences: int | None = Field(None, gt=0, description="number of sentences; default: all")
    trials: int = Field(2, gt=0, description="passes per size in --batches or --slots; the fastest pass counts")
    alone: int = Field(50, gt=0, description="number of sentences also translated one at a time")
    rounds: int = Field(5, gt=0, description="turns of each system at each task")
    batches: tuple[Annotated[str, Field(pattern=PATTERN)], ...] = Field(
        BATCHES, min_length=1, description="batch sizes to try for baselines, as 64:examples or 1024:tokens"
    )
    engines: int | None = Field(None, gt=0, description="number of Dragoman engines; default: one per CPU")
    threads: int = Field(1, gt=0, description="threads of each engine")
    slots: tuple[Annotated[int, Field(ge=4)], ...] = Field(
        (32, 64, 128), min_length=1, description="rows of each engine to try"
    )
    alone_threads: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 2), min_length=1, description="thread counts to try for one sentence at a time"
    )

    @property
    def engine_count(self) -> int:
        """Number of Dragoman's engines; baselines get as many threads as all engines together."""
        return self.engines or available_cpus()

    def sizes(self, system: OfflineSystem) -> list[Batching]:
        """Returns the batch sizes to try."""
        if system.batched:
            return [Batching.parse(size) for size in dict.fromkeys(self.batches)]
        return [Batching(slots, "rows") for slots in dict.fromkeys(self.slots)]

    def passes(self, system: OfflineSystem) -> int:
        """Returns the passes per size: one, for the translations, if there is nothing to choose from."""
        return self.trials if len(self.sizes(system)) > 1 else 1

    def cli_cmd(self) -> None:
        """Measures every model, prints and writes the results."""
        require_libraries(BASELINE_LIBRARIES[each] for each in self.baselines if each in BASELINE_LIBRARIES)
        files = ReportFiles("offline", self.out, self.document)
        with reporting("offline", [files], RunError):
            optimum = OptimumEnvironment(self.optimum_python)
            versions = {"optimum": optimum.versions()} if "optimum" in self.baselines else {}
            models = compared_models(self.run, self.random, self.vocabulary_size)
            systems = offline_systems(self.baselines, self.precisions, self.slots[0], optimum)
            if any(system.maker in ("transformers", "optimum") for system in systems):
                _check_transformers(models)
            results = _compare(self, models, systems)
            threads = f"threads of each system: {self.engine_count * self.threads}"
            provenance = Provenance.now(command_line("bench offline", self), LIBRARIES, threads, versions)
            files.write_models(results, map(format_offline, results), self.model_dump(mode="json"), provenance)


WITH_CHECKPOINT: dict[Maker, str] = {
    "pytorch": "benchmarks.systems.pytorch_system:PyTorchTranslator",
    "transformers": "benchmarks.systems.transformers_system:load_transformers",
}


def offline_systems(
    baselines: Collection[str], precisions: Collection[Precision], slots: int, optimum: OptimumEnvironment
) -> list[OfflineSystem]:
    """Returns Dragoman, then the baselines, per precision; a baseline has the nearest precision it supports, if any."""
    systems: list[OfflineSystem] = []
    for precision in precisions:
        systems += [_dragoman(precision, slots), _ctranslate2(precision)]
        if precision == "fp32":
            systems += [OfflineSystem(maker, "fp32", load, _checkpoint) for maker, load in WITH_CHECKPOINT.items()]
            systems.append(_optimum(optimum))
    return [system for system in systems if system.maker in ("dragoman", *baselines)]


def _dragoman(precision: Precision, slots: int) -> OfflineSystem:
    return OfflineSystem(
        "dragoman",
        precision,
        "benchmarks.systems.engine:load_engines",
        lambda model, folder: model.write_bundle(folder, "cpu", precision),
        {"slots": slots},
    )


def _ctranslate2(precision: Precision) -> OfflineSystem:
    weights = compute_type(precision)
    return OfflineSystem(
        "ctranslate2",
        precision,
        "benchmarks.systems.ctranslate2_system:CTranslate2Translator",
        lambda model, folder: model.write_ctranslate2(folder, weights),
        {"compute_type": weights},
    )


def _checkpoint(model: ComparedModel, folder: Path) -> None:
    model.write_checkpoint(folder)


def _optimum(environment: OptimumEnvironment) -> OfflineSystem:
    load = "benchmarks.systems.optimum_system:load_optimum"
    return OfflineSystem("optimum", "fp32", load, environment.write_model, python=str(environment.python))


def _steps(systems: Sequence[OfflineSystem], options: BenchOfflineCommand) -> int:
    """Returns the number of progress steps per model."""
    searches = len(SEARCHES)
    trials = sum(steps_of(1, searches * len(options.sizes(system)), options.passes(system)) for system in systems)
    together = steps_of(len(systems), searches, options.rounds)
    alone = steps_of(len(systems) * len(set(options.alone_threads)), searches, options.rounds)
    return len(systems) + trials + together + alone


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The systems of one model, with their files."""

    options: BenchOfflineCommand
    model: ComparedModel
    sentences: list[SourceSentence]
    systems: Sequence[OfflineSystem]
    workshop: Path
    progress: Progress

    def run(self) -> OfflineModelResult:
        """Measures all systems.

        Raises:
            RunError: if a bundle cannot be made.
            SystemFailedError: if a system fails.
        """
        write_sentences(self.workshop / SENTENCES_FILE, self.sentences)
        for system in self.systems:
            system.write(self.model, self.workshop / system.name)
            self.progress.update()
        trials = {system.name: self._try_batchings(system) for system in self.systems}
        together = self._play_together(trials)
        alone = self._play_alone()
        results = [
            OfflineResult(
                system.maker,
                system.precision,
                trials[system.name],
                together[system.name],
                alone[system.name],
                self._differences(system),
            )
            for system in self.systems
        ]
        count = len(self.sentences)
        return OfflineModelResult(
            self.model.name, self.model.describe(), count, min(self.options.alone, count), results
        )

    def _try_batchings(self, system: OfflineSystem) -> Trials:
        """Translates with each batching, and stores the translations."""
        names = {
            (search, str(batching)): f"{search}, {batching}"
            for search in SEARCHES
            for batching in self.options.sizes(system)
        }
        tasks = {
            name: self._task(search, batching, output=str(self._translations(system, search)))
            for (search, batching), name in names.items()
        }
        launch = self._launch(system)
        tried = self._play([Player(launch, tasks)], self.options.passes(system))[launch.name]
        trials: Trials = {search: {} for search in SEARCHES}
        for (search, batching), name in names.items():
            trials[search][batching] = [each.tokens_per_second[name] for each in tried]
        return trials

    def _play_together(self, trials: Mapping[str, Trials]) -> dict[str, list[Round]]:
        players = {
            system.name: Player(
                self._launch(system),
                {search: self._task(search, best(tried)) for search, tried in trials[system.name].items()},
            )
            for system in self.systems
        }
        played = self._play(list(players.values()), self.options.rounds)
        return {name: played[player.launch.name] for name, player in players.items()}

    def _play_alone(self) -> dict[str, dict[int, list[Round]]]:
        players = {
            (system.name, threads): Player(
                system.launch(self.workshop / system.name, copies=1, threads=threads),
                {
                    # A single sentence is one batch, in any batching.
                    search: self._task(search, str(self.options.sizes(system)[0]), alone=self.options.alone)
                    for search in SEARCHES
                },
            )
            for system in self.systems
            for threads in self.options.alone_threads
        }
        played = self._play(list(players.values()), self.options.rounds)
        return {
            system.name: {
                threads: played[players[system.name, threads].launch.name] for threads in self.options.alone_threads
            }
            for system in self.systems
        }

    def _play(self, players: Sequence[Player], rounds: int) -> dict[str, list[Round]]:
        return play(players, rounds=rounds, seconds=None, progress=self.progress)

    def _launch(self, system: OfflineSystem) -> Launch:
        engines, threads = self.options.engine_count, self.options.threads
        # Baselines are fastest with copies of one thread. Dragoman has the engines of the server.
        copies, threads = (engines * threads, 1) if system.batched else (engines, threads)
        return system.launch(self.workshop / system.name, copies, threads)

    def _task(self, search: str, batching: str, **options: Any) -> dict[str, Any]:
        """Returns the arguments of `Translator.plan`."""
        sentences = str(self.workshop / SENTENCES_FILE)
        return {"sentences": sentences, "beam_size": SEARCHES[search], "batching": batching, **options}

    def _differences(self, system: OfflineSystem) -> dict[str, list[Difference]] | None:
        """Compares a trained fp32 model with CTranslate2; None in other cases."""
        baseline = next(
            (each for each in self.systems if each.maker == "ctranslate2" and each.precision == "fp32"), None
        )
        if baseline is None or baseline is system or system.precision != "fp32" or not self.model.trained:
            return None
        found = {}
        for search, beam_size in SEARCHES.items():
            found_ids, expected_ids = (
                json.loads(self._translations(each, search).read_bytes()) for each in (system, baseline)
            )
            found[search] = differences(found_ids, expected_ids, partial(self._margin, beam_size))
        return found

    def _margin(self, beam_size: int, place: int) -> float:
        return narrowest_margin(self.model.model, self.sentences[place].source_ids, beam_size)

    def _translations(self, system: OfflineSystem, search: str) -> Path:
        return self.workshop / f"{system.name}, {search}.json"


def _check_transformers(models: Sequence[ComparedModel]) -> None:
    # needs transformers
    from benchmarks.systems.transformers_system import NoSuchModelError, check_known  # noqa: PLC0415

    for model in models:
        try:
            check_known(model.model.config)
        except NoSuchModelError as error:
            raise RunError(f"{model.name}: {error}; leave it out of --baselines") from error


def _compare(
    options: BenchOfflineCommand, models: Sequence[ComparedModel], systems: Sequence[OfflineSystem]
) -> list[OfflineModelResult]:
    sentences = sentences_of(models, options.data, options.sentences)
    results = []
    with tqdm(total=len(models) * _steps(systems, options), unit=" steps", disable=None) as progress:
        for model, some in zip(models, sentences, strict=True):
            progress.set_description(model.name)
            with TemporaryDirectory(prefix="dragoman-") as workshop:
                results.append(_Comparison(options, model, some, systems, Path(workshop), progress).run())
    return results
