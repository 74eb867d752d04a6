"""The engine compared with other inference libraries: throughput, latency, memory and quality.

All systems of a model hold the same weights, have the same number of threads, and translate token ids to token ids,
greedily and with a beam of 4. For each model: trials of batch sizes, then rounds with all sentences at once, then
rounds with single sentences. The random model gets exactly the target lengths of the references.
"""

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from benchmarks.harness.plan import Question, require_libraries
from benchmarks.harness.process import Launch
from benchmarks.harness.report import Cell, Figures, Report, Table, cells_of
from benchmarks.harness.rounds import Player, Round, play
from benchmarks.systems.compared_model import ComparedModel, ModelsPlan, compute_type
from benchmarks.systems.pytorch_system import narrowest_margin
from benchmarks.systems.translating import PATTERN, SEARCHES, SourceSentence, write_sentences
from model.run import RunError
from model.scoring import score
from serve.bundle.manifest import EIGHT_BITS, GraphVariant, Precision
from serve.system import available_cpus

if TYPE_CHECKING:
    from benchmarks.systems.optimum_system import OptimumEnvironment

Maker = Literal["dragoman", "ctranslate2", "pytorch", "transformers", "optimum"]
# What the process of a system calls.
LOADERS: dict[Maker, str] = {
    "dragoman": "benchmarks.systems.engine:load_engines",
    "ctranslate2": "benchmarks.systems.ctranslate2_system:CTranslate2Translator",
    "pytorch": "benchmarks.systems.pytorch_system:PyTorchTranslator",
    "transformers": "benchmarks.systems.transformers_system:load_transformers",
    "optimum": "benchmarks.systems.optimum_system:load_optimum",
}
# Precisions and devices of the baselines.
KINDS: dict[Maker, tuple[str, ...]] = {
    "ctranslate2": ("fp32:cpu", "int8:cpu"),
    "pytorch": ("fp32:cpu", "fp32:cuda", "fp16:cuda"),
    "transformers": ("fp32:cpu",),
    "optimum": ("fp32:cpu",),
}
# Libraries that are imported only for a baseline.
BASELINE_LIBRARIES = {"ctranslate2": "ctranslate2", "transformers": "transformers", "optimum": "transformers"}


class OfflineSystem(BaseModel):
    """A system, also written as `MAKER:PRECISION:VARIANT`; `variant` is that of the graphs, or the device."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    maker: Maker
    precision: Precision = "fp32"
    variant: GraphVariant = "cpu"

    @model_validator(mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return dict(zip(cls.model_fields, value.split(":", 2), strict=False)) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        kind = f"{self.precision}:{self.variant}"
        if self.batched and kind not in KINDS[self.maker]:
            raise ValueError(f"{kind}: expected {self.maker} with {' or '.join(KINDS[self.maker])}")
        return self

    @model_serializer
    def __str__(self) -> str:
        return ":".join([self.maker, self.precision, *([] if self.variant == "cpu" else [self.variant])])

    @property
    def batched(self) -> bool:
        """Whether it translates static batches instead of continuous ones."""
        return self.maker != "dragoman"

    @property
    def eight_bits(self) -> bool:
        """Whether its weights have 8 bits."""
        return self.precision in EIGHT_BITS


SYSTEMS = "dragoman:fp32 dragoman:int8 dragoman:int8-static ctranslate2:fp32 ctranslate2:int8 pytorch transformers"


class OfflinePlan(ModelsPlan):
    """The systems, and the sizes of batches and engines to try."""

    systems: Annotated[tuple[OfflineSystem, ...], Field(min_length=1)] = Field(
        tuple(map(OfflineSystem.model_validate, SYSTEMS.split())),
        description="MAKER:PRECISION:VARIANT, as optimum, dragoman:fp32:portable or pytorch:fp16:cuda",
    )
    optimum_python: Path = Field(Path(".venv-optimum/bin/python"), description="interpreter of `make optimum`")
    alone: int = Field(50, gt=0, description="number of sentences also translated one at a time")
    trials: int = Field(2, gt=0, description="passes per size of a batch or an engine; the fastest pass counts")
    batches: Annotated[tuple[Annotated[str, Field(pattern=PATTERN)], ...], Field(min_length=1)] = Field(
        ("16:examples", "32:examples", "64:examples", "128:examples", "512:tokens", "2048:tokens"),
        description="batch sizes to try for baselines",
    )
    slots: Annotated[tuple[Annotated[int, Field(ge=4)], ...], Field(min_length=1)] = Field(
        (32, 64, 128), description="rows of each Dragoman engine to try"
    )
    engines: int | None = Field(None, gt=0, description="engines of Dragoman, threads of the others; null: one per CPU")
    prefill_token_budget: int | None = Field(None, gt=0, description="of Dragoman; null: that of the server")
    alone_threads: Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(min_length=1)] = Field(
        (1, 2), description="thread counts to try for one sentence at a time"
    )

    @field_validator("systems")
    @classmethod
    def _check_systems(cls, systems: tuple[OfflineSystem, ...]) -> tuple[OfflineSystem, ...]:
        twice = next((str(system) for system in systems if systems.count(system) > 1), None)
        if twice is not None:
            raise ValueError(f"expected different systems, got {twice} twice")
        return systems

    @property
    def threads(self) -> int:
        """Threads of each system."""
        return self.engines or available_cpus()

    def sizes(self, system: OfflineSystem) -> list[str]:
        """Returns the batch sizes to try, as `Batching.parse` reads them."""
        return list(dict.fromkeys(self.batches if system.batched else (f"{slots}:rows" for slots in self.slots)))


MEMORY = "memory, MB"
# Rows with ratios.
COMPARED = {f"{search}, {row}" for search in SEARCHES for row in ("tokens/s", "sentences/s", "alone, ms")} | {MEMORY}
# Tokens per second in every pass, by search and size.
Trials = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one system.

    Attributes:
        size_bytes: of its files.
        together: all sentences at once, one entry per round.
        alone: one sentence at a time, one entry per round, by number of threads.
        targets: target tokens of each sentence, by search.
    """

    system: OfflineSystem
    size_bytes: int
    trials: Trials
    together: list[Round]
    alone: dict[int, list[Round]]
    targets: dict[str, list[list[int]]]

    def alone_seconds(self, search: str, threads: int) -> list[float]:
        """Returns the time of all single sentences, one figure per round."""
        return [each.turns[search].seconds for each in self.alone[threads]]

    def best_threads(self, search: str) -> int:
        """Returns the fastest number of threads for one sentence at a time."""
        return min(self.alone, key=lambda threads: statistics.median(self.alone_seconds(search, threads)))


def best_size(tried: dict[str, list[float]]) -> str:
    """Returns the size with the fastest single pass: other load on the machine only slows a pass down."""
    return max(tried, key=lambda size: max(tried[size]))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The systems of one model, with their files in the folder `workshop`."""

    plan: OfflinePlan
    model: ComparedModel
    sentences: Sequence[SourceSentence]
    workshop: Path

    def measure(self) -> list[Measured]:
        """Measures all systems.

        Raises:
            RunError: if a bundle cannot be made.
            SystemFailedError: if a system fails.
        """
        systems = self.plan.systems
        write_sentences(self.workshop / "sentences.json", self.sentences)
        for system in systems:
            self._write(system)
        trials = {system: self._try_sizes(system) for system in systems}
        together = {
            system: Player(
                self._launch(system, self.plan.threads),
                {search: self._task(search, best_size(tried)) for search, tried in trials[system].items()},
            )
            for system in systems
        }
        alone = {
            (system, threads): Player(
                self._launch(system, 1, threads),
                # A single sentence is one batch, in any size.
                {search: self._task(search, self.plan.sizes(system)[0], alone=self.plan.alone) for search in SEARCHES},
            )
            for system in systems
            for threads in dict.fromkeys(self.plan.alone_threads)
        }
        rounds = self._play([*together.values()], self.plan.rounds, "together")
        alone_rounds = self._play([*alone.values()], self.plan.rounds, "alone")
        return [
            Measured(
                system,
                sum(path.stat().st_size for path in self._folder(system).iterdir()),
                trials[system],
                rounds[together[system].launch.name],
                {
                    threads: alone_rounds[player.launch.name]
                    for (each, threads), player in alone.items()
                    if each == system
                },
                {search: json.loads(self._targets(system, search).read_bytes()) for search in SEARCHES},
            )
            for system in systems
        ]

    def _write(self, system: OfflineSystem) -> None:
        """Writes the files that a system loads."""
        folder = self._folder(system)
        match system.maker:
            case "dragoman":
                self.model.write_bundle(folder, system.variant, system.precision)
            case "ctranslate2":
                self.model.write_ctranslate2(folder, compute_type(system.precision))
            case _:
                self.model.write_checkpoint(folder)
        if system.maker == "optimum":
            _optimum(self.plan).export(folder)

    def _launch(self, system: OfflineSystem, copies: int, threads: int = 1) -> Launch:
        """Returns how to start a system; `copies` are engines, or concurrent batches."""
        copies = 1 if system.variant == "cuda" else copies
        options: dict[str, Any] = {"folder": str(self._folder(system)), "copies": copies, "threads": threads}
        python = sys.executable
        match system.maker:
            case "dragoman":
                options |= {"slots": self.plan.slots[0], "prefill_token_budget": self.plan.prefill_token_budget}
            case "ctranslate2":
                options["compute_type"] = compute_type(system.precision)
            case "pytorch":
                options |= {"device": system.variant, "precision": system.precision}
            case "optimum":
                python = str(self.plan.optimum_python)
        return Launch(f"{system}, {copies} x {threads}", LOADERS[system.maker], options, python)

    def _try_sizes(self, system: OfflineSystem) -> Trials:
        """Translates with each size, and stores the translations."""
        sizes = self.plan.sizes(system)
        tasks = {
            f"{search}, {size}": self._task(search, size, output=str(self._targets(system, search)))
            for search in SEARCHES
            for size in sizes
        }
        player = Player(self._launch(system, self.plan.threads), tasks)
        # One pass, for the translations, if there is nothing to choose from.
        tried = self._play([player], self.plan.trials if len(sizes) > 1 else 1, str(system))[player.launch.name]
        return {
            search: {size: [each.turns[f"{search}, {size}"].tokens_per_second for each in tried] for size in sizes}
            for search in SEARCHES
        }

    def _play(self, players: Sequence[Player], rounds: int, label: str) -> dict[str, list[Round]]:
        return play(players, rounds, f"{self.model.name}, {label}")

    def _task(self, search: str, size: str, **options: Any) -> dict[str, Any]:
        """Returns the arguments of `Translator.prepare`."""
        sentences = str(self.workshop / "sentences.json")
        return {"sentences": sentences, "beam_size": SEARCHES[search], "batching": size, **options}

    def _folder(self, system: OfflineSystem) -> Path:
        return self.workshop / str(system)

    def _targets(self, system: OfflineSystem, search: str) -> Path:
        return self.workshop / f"{system}, {search}.json"


def figures_of(measured: Measured, sentences: int, alone: int) -> list[Figures]:
    """Returns the figures of a system in each round; `alone` of the sentences were also translated one at a time."""
    alone_seconds = {search: measured.alone_seconds(search, measured.best_threads(search)) for search in SEARCHES}
    found: list[Figures] = []
    for number, together in enumerate(measured.together):
        figures: Figures = {}
        for search, turn in together.turns.items():
            figures[f"{search}, tokens/s"] = turn.tokens_per_second
            figures[f"{search}, sentences/s"] = sentences / turn.seconds
        figures |= {f"{search}, alone, ms": 1e3 * each[number] / alone for search, each in alone_seconds.items()}
        found.append({**figures, MEMORY: together.peak_bytes / 1e6, "load, ms": 1e3 * together.load_seconds})
    found[0]["files, MB"] = measured.size_bytes / 1e6
    return found


def quality_of(measured: Measured, model: ComparedModel, references: Sequence[str]) -> Figures:
    """Returns the BLEU of a trained model's translations."""
    decode = model.exportable.tokenizer.decode
    return {
        f"{search}, BLEU": score(list(map(decode, targets)), references).bleu
        for search, targets in measured.targets.items()
    }


def differing(measured: Measured, reference: Measured, search: str) -> list[int]:
    """Returns the indices of the sentences that are translated differently."""
    pairs = zip(measured.targets[search], reference.targets[search], strict=True)
    return [place for place, (found, expected) in enumerate(pairs) if found != expected]


# A trained model's translations are compared with those of the first of these, in the same floating-point precision.
REFERENCES: tuple[Maker, ...] = ("ctranslate2", "pytorch")


def references_of(systems: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    """Returns pairs of a system and the reference that its translations are compared with."""
    ranked = sorted(
        (each for each in systems if each.system.maker in REFERENCES and not each.system.eight_bits),
        key=lambda each: REFERENCES.index(each.system.maker),
    )
    references = {each.system.precision: each for each in reversed(ranked)}
    pairs = [(each, references.get(each.system.precision)) for each in systems]
    return [(each, reference) for each, reference in pairs if reference not in (None, each)]


def same_of(measured: Measured, reference: Measured) -> Figures:
    """Returns the share of sentences with the same tokens as in a reference, in percent."""
    return {
        f"{search}, same as {reference.system.maker}, %": 100
        - 100 * len(differing(measured, reference, search)) / len(ids)
        for search, ids in measured.targets.items()
    }


def tables_of(systems: Sequence[Measured], cells: Sequence[Cell], name: str) -> list[Table]:
    """Returns a table per Dragoman system, with the baselines of its precision, or of another if they lack it."""
    tables = []
    leaders = [each.system for each in systems if not each.system.batched] or [systems[0].system]
    baselines = [each.system for each in systems if each.system.batched]
    for leader in leaders:
        having = {each.maker for each in baselines if each.eight_bits == leader.eight_bits}
        shown = [each for each in baselines if each.eight_bits == leader.eight_bits or each.maker not in having]
        columns = dict.fromkeys(map(str, [leader, *shown]))
        rows = {cell.row for cell in cells if cell.column == str(leader)}
        chosen = [cell for column in columns for cell in cells if cell.column == column and cell.row in rows]
        tables.append(Table(name, chosen, base=str(leader)))
    return tables


def notes_of(systems: Sequence[Measured], model: ComparedModel, sentences: Sequence[SourceSentence]) -> list[str]:
    """Returns the chosen sizes and threads, and how close each decision was that systems took differently."""
    sizes = [f"{each.system} {search} {best_size(each.trials[search])}" for each in systems for search in SEARCHES]
    threads = [f"{each.system} {search} {each.best_threads(search)}" for each in systems for search in SEARCHES]
    notes = [
        f"Batches, or rows of each engine: {', '.join(sizes)}.",
        f"Threads for one sentence at a time: {', '.join(threads)}.",
    ]
    for measured, reference in references_of(systems) if model.trained else []:
        for search, beam_size in SEARCHES.items():
            margins = [
                f"{place + 1} ({narrowest_margin(model.model, sentences[place].source_ids, beam_size):.1e})"
                for place in differing(measured, reference, search)
            ]
            if margins:
                where = f"{measured.system}, {search}, sentences that differ from {reference.system}"
                notes.append(f"{where}, with the narrowest margin of a decision: {', '.join(margins)}.")
    return notes


def measure(plan: OfflinePlan) -> Report:
    """Measures every model.

    Raises:
        CorpusError, RunError, TokenizerError: if a model or the data is invalid.
        SystemFailedError: if a system fails.
    """
    makers = {system.maker for system in plan.systems}
    require_libraries(library for maker, library in BASELINE_LIBRARIES.items() if maker in makers)
    versions = {"optimum": _optimum(plan).versions()} if "optimum" in makers else {}
    models = plan.models()
    if makers & {"transformers", "optimum"}:
        _check_transformers(model for model, _ in models)
    tables: list[Table] = []
    details: dict[str, Any] = {}
    for model, sentences in models:
        with TemporaryDirectory(prefix="dragoman-") as workshop:
            systems = Comparison(plan, model, sentences, Path(workshop)).measure()
        alone = min(plan.alone, len(sentences))
        figures = {str(each.system): figures_of(each, len(sentences), alone) for each in systems}
        if model.trained:
            for each in systems:
                figures[str(each.system)][0] |= quality_of(each, model, plan.corpus().targets)
            for each, reference in references_of(systems):
                figures[str(each.system)][0] |= same_of(each, reference)
        found = tables_of(systems, cells_of(figures, COMPARED), model.name)
        heading = f"**{model.name}**: {model.describe()}. {len(sentences):,} sentences, {alone:,} of them alone."
        found[0] = replace(found[0], text=heading)
        found[-1] = replace(found[-1], notes=notes_of(systems, model, sentences))
        tables += found
        details[model.name] = {str(each.system): _details(each) for each in systems}
    return Report(tables, f"threads of each system: {plan.threads}", details, versions)


def _details(measured: Measured) -> dict[str, Any]:
    alone = {
        search: {str(threads): measured.alone_seconds(search, threads) for threads in measured.alone}
        for search in SEARCHES
    }
    return {"trials_tokens_per_second": measured.trials, "alone_seconds_by_threads": alone}


def _optimum(plan: OfflinePlan) -> "OptimumEnvironment":
    from benchmarks.systems.optimum_system import OptimumEnvironment  # noqa: PLC0415 - needs transformers

    return OptimumEnvironment(plan.optimum_python)


def _check_transformers(models: Iterable[ComparedModel]) -> None:
    from benchmarks.systems.transformers_system import NoSuchModelError, check_known  # noqa: PLC0415

    for model in models:
        try:
            check_known(model.model.config)
        except NoSuchModelError as error:
            raise RunError(f"{model.name}: {error}; leave transformers and optimum out of systems") from error


QUESTION = Question(OfflinePlan, measure, ("onnxruntime", "ctranslate2", "torch", "transformers", "numpy"))
