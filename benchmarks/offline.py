"""The engine compared with other inference libraries: throughput, latency, memory and quality.

All systems of a model hold the same weights, have the same number of threads, and translate token ids to token ids,
greedily and with a beam of 4. For each model: trials of batch sizes, then rounds with all sentences at once, then
rounds with single sentences. The random model gets exactly the target lengths of the references. Bergamot and Marian
translate texts.
"""

import json
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_serializer, model_validator

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.plan import Positive
from benchmarks.harness.process import Launch
from benchmarks.harness.report import Columns, Figures, Report, Table
from benchmarks.harness.rounds import Round, play
from benchmarks.systems.compared_model import LOADERS, ComparedModel, Maker, ModelsPlan, Variant, compute_type
from benchmarks.systems.engine_system import ENGINES
from benchmarks.systems.peer_system import PEERS
from benchmarks.systems.translating import SEARCHES, SourceSentence, spread, write_sentences
from dragoman.model.config import Section
from dragoman.model.scoring import score
from dragoman.serve.bundle.manifest import Precision
from dragoman.serve.host.system import available_cpus
from dragoman.tables import described

# Precisions and devices of the baselines.
KINDS: dict[Maker, tuple[str, ...]] = {
    "ctranslate2": ("fp32:cpu", "int8:cpu", "fp16:cuda"),
    "pytorch": ("fp32:cpu", "fp32:cuda", "fp16:cuda"),
    **dict.fromkeys(PEERS, ("fp32:cpu", "int8:cpu", "fp32:shortlist", "int8:shortlist")),
}
# A trained model's translations are compared with those of the first of these, in the same floating-point precision.
REFERENCES: tuple[Maker, ...] = ("ctranslate2", "pytorch")
SENTENCES = "sentences.json"
# Sentences of a model of Marian's kind whose tokens are compared before the measurement.
CHECKED_SENTENCES = 40
MEMORY, PROPORTIONAL = "memory, MB", "proportional memory, MB"
SPEEDS = [f"{search}, {row}" for search in SEARCHES for row in ("tokens/s", "sentences/s", "alone, ms")]
COMPARED = (*SPEEDS, MEMORY, PROPORTIONAL)
Batch = Annotated[str, Field(pattern=r"^[1-9][0-9]*:(examples|tokens)$")]


class OfflineSystem(Section):
    """A system, also written as `MAKER:PRECISION:VARIANT`; `variant` is of the graphs, the device, or `shortlist`."""

    maker: Maker
    precision: Precision = "fp32"
    variant: Variant = "cpu"

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
        return self.maker not in ENGINES

    @property
    def eight_bits(self) -> bool:
        """Whether its weights have 8 bits."""
        return self.precision == "int8"

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether its weights have 8 bits, and whether it has a shortlist."""
        return self.eight_bits, self.variant == "shortlist"


SYSTEMS = "dragoman:fp32 dragoman:int8 ctranslate2:fp32 ctranslate2:int8 pytorch"


@described(__file__)
class OfflinePlan(ModelsPlan):
    """The systems, and the sizes of batches and engines to try."""

    libraries = ("onnxruntime", "ctranslate2", "torch", "numpy")

    systems: tuple[OfflineSystem, ...] = Field(tuple(map(OfflineSystem.model_validate, SYSTEMS.split())), min_length=1)
    alone: int = Field(50, gt=0)
    trials: int = Field(2, gt=0)
    batches: tuple[Batch, ...] = Field(
        ("16:examples", "32:examples", "64:examples", "128:examples", "512:tokens", "2048:tokens"), min_length=1
    )
    slots: tuple[Annotated[int, Field(ge=4)], ...] = Field((32, 64, 128), min_length=1)
    engines: int | None = Field(None, gt=0)
    alone_threads: tuple[Positive, ...] = Field((1, 2), min_length=1)

    bergamot_python: Path | None = None
    marian_python: Path | None = None

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
        """Returns the batch sizes to try, as `Translator.prepare` reads them."""
        if system.maker in PEERS:
            processes = dict.fromkeys((1, self.threads))
            return [f"{batch}/{number}" for batch in self.batches for number in processes]
        return list(dict.fromkeys(self.batches if system.batched else (f"{slots}:rows" for slots in self.slots)))

    def measure(self) -> Report:
        """Measures every model."""
        makers = {system.maker for system in self.systems}
        if "ctranslate2" in makers:
            import_module("ctranslate2")
        report = Report([], f"threads of each system: {self.threads}")
        for model, sentences in self.models():
            pythons = {"bergamot": self.bergamot_python, "marian": self.marian_python}
            problems = {item: model.problem(item.maker, item.variant, pythons.get(item.maker)) for item in self.systems}
            notes = [f"{system} is left out: {problem}." for system, problem in problems.items() if problem]
            plan = self.model_copy(update={"systems": tuple(item for item in self.systems if not problems[item])})
            if not plan.systems:
                raise BenchmarkError(f"systems: expected one that can be measured: {' '.join(notes)}")
            notes += same_in_fp32(plan, model, sentences) if model.is_marian else []
            with TemporaryDirectory(prefix="dragoman-") as workshop:
                systems = measure_systems(plan, model, sentences, Path(workshop))
            report.tables.extend(self._tables(model, sentences, systems))
            report.tables[-1].notes.extend(notes)
            report.details[model.name] = {str(system.system): system.details() for system in systems}
        return report

    def _tables(
        self, model: ComparedModel, sentences: Sequence[SourceSentence], systems: Sequence["Measured"]
    ) -> list[Table]:
        alone = min(self.alone, len(sentences))
        columns = {str(system.system): figures_of(system, len(sentences), alone) for system in systems}
        if model.trained:
            references, decode = self.corpus().targets, model.exportable.tokenizer.decode
            for system in systems:
                for search, targets in system.targets.items():
                    columns[str(system.system)][0][f"{search}, BLEU"] = score(
                        list(map(decode, targets)), references
                    ).bleu
            for item, reference in references_of(systems):
                columns[str(item.system)][0] |= same_of(item, reference)
        tables = tables_of([system.system for system in systems], columns, model.name)
        heading = f"**{model.name}**: {model.describe()}. {len(sentences):,} sentences, {alone:,} of them alone."
        tables[0] = replace(tables[0], text=heading)
        tables[-1] = replace(tables[-1], notes=notes_of(systems))
        return tables


@dataclass(slots=True)
class Measured:
    """A system with its files in a folder of `workshop`, and its results.

    Attributes:
        size_bytes: of its files.
        trials: tokens per second in every pass, by search and size.
        together: all sentences at once, one entry per round.
        alone: one sentence at a time, one entry per round, by number of threads.
        targets: target tokens of each sentence, by search.
    """

    system: OfflineSystem
    plan: OfflinePlan
    workshop: Path
    size_bytes: int = 0
    trials: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    together: list[Round] = field(default_factory=list)
    alone: dict[int, list[Round]] = field(default_factory=dict)
    targets: dict[str, list[list[int]]] = field(default_factory=dict)

    def try_sizes(self, model: ComparedModel) -> None:
        """Writes the files, and translates with each size; an only size has one pass, for the translations."""
        system, folder, sizes = self.system, self.workshop / str(self.system), self.plan.sizes(self.system)
        model.write(folder, system.maker, system.precision, system.variant)
        self.size_bytes = sum(path.stat().st_size for path in folder.iterdir())
        outputs = {search: self.workshop / f"{system}, {search}.json" for search in SEARCHES}
        names = {(search, size): f"{search}, {size}" for search in SEARCHES for size in sizes}
        tasks = {name: self.task(*key, output=str(outputs[key[0]])) for key, name in names.items()}
        launch = self.launch(self.plan.threads, 1, tasks)
        tried = play([launch], self.plan.trials if len(sizes) > 1 else 1, f"{model.name}, {system}")[launch.name]
        for (search, size), name in names.items():
            speeds = [repetition.measurements[name].tokens_per_second for repetition in tried]
            self.trials.setdefault(search, {})[size] = speeds
        self.targets = {search: json.loads(output.read_bytes()) for search, output in outputs.items()}

    def task(self, search: str, size: str, **options: Any) -> dict[str, Any]:
        """Returns the arguments of `Translator.prepare`."""
        return {"sentences": str(self.workshop / SENTENCES), "beam_size": SEARCHES[search], "batching": size, **options}

    def launch(self, copies: int, threads: int, tasks: dict[str, Any]) -> Launch:
        """Returns how to start the system; `copies` are engines, or concurrent batches."""
        system, plan = self.system, self.plan
        copies = 1 if system.variant == "cuda" else copies
        options: dict[str, Any] = {"folder": str(self.workshop / str(system)), "copies": copies, "threads": threads}
        match system.maker:
            case maker if maker in ENGINES:
                options |= {"slots": plan.slots[0], "engine": maker}
            case "ctranslate2":
                options |= {"device": system.variant, "compute_type": compute_type(system.precision)}
            case "pytorch":
                options |= {"device": system.variant, "precision": system.precision}
            case peer:
                options |= {"peer": peer, "python": str(getattr(plan, f"{peer}_python")), "precision": system.precision}
        return Launch(f"{system}, {copies} x {threads}", LOADERS[system.maker], options, tasks)

    def best_size(self, search: str) -> str:
        """Returns the size with the fastest single pass: other load on the machine only slows a pass down."""
        return max(self.trials[search], key=lambda size: max(self.trials[search][size]))

    def alone_seconds(self, search: str, threads: int) -> list[float]:
        """Returns the time of all single sentences, one figure per round."""
        return [item.measurements[search].seconds for item in self.alone[threads]]

    def best_threads(self, search: str) -> int:
        """Returns the fastest number of threads for one sentence at a time."""
        return min(self.alone, key=lambda threads: statistics.median(self.alone_seconds(search, threads)))

    def details(self) -> dict[str, Any]:
        """Returns the figures that no table has."""
        alone = {search: {str(item): self.alone_seconds(search, item) for item in self.alone} for search in SEARCHES}
        return {"trials_tokens_per_second": self.trials, "alone_seconds_by_threads": alone}


def measure_systems(
    plan: OfflinePlan, model: ComparedModel, sentences: Sequence[SourceSentence], workshop: Path
) -> list[Measured]:
    """Measures all systems of a model, with their files in a folder."""
    write_sentences(workshop / SENTENCES, sentences)
    systems = [Measured(system, plan, workshop) for system in plan.systems]
    for system in systems:
        system.try_sizes(model)
    together, alone = [], []
    for system in systems:
        tasks = {search: system.task(search, system.best_size(search)) for search in SEARCHES}
        together.append((system, system.launch(plan.threads, 1, tasks)))
        # A single sentence is one batch, in any size.
        tasks = {search: system.task(search, plan.sizes(system.system)[0], alone=plan.alone) for search in SEARCHES}
        alone += [(system, threads, system.launch(1, threads, tasks)) for threads in dict.fromkeys(plan.alone_threads)]
    rounds = play([launch for _, launch in together], plan.rounds, f"{model.name}, together")
    for item, launch in together:
        item.together = rounds[launch.name]
    rounds = play([launch for *_, launch in alone], plan.rounds, f"{model.name}, alone")
    for item, threads, launch in alone:
        item.alone[threads] = rounds[launch.name]
    return systems


def same_in_fp32(plan: OfflinePlan, model: ComparedModel, sentences: Sequence[SourceSentence]) -> list[str]:
    """Returns the shares of some sentences that have the tokens of the first system, all in fp32, as notes."""
    quick = plan.model_copy(update={"engines": 1, "batches": plan.batches[:1], "slots": plan.slots[:1]})
    makers = list(dict.fromkeys(system.maker for system in plan.systems))
    checked = spread(sentences, CHECKED_SENTENCES)
    with TemporaryDirectory(prefix="dragoman-") as workshop:
        write_sentences(Path(workshop) / SENTENCES, checked)
        systems = [Measured(OfflineSystem(maker=maker), quick, Path(workshop)) for maker in makers]
        for system in systems:
            system.try_sizes(model)
    shares = ((item.system, *share) for item in systems[1:] for share in same_of(item, systems[0]).items())
    return [f"Of {len(checked)} sentences: {system}, {row}: {share:.0f}." for system, row, share in shares]


def figures_of(measured: Measured, sentences: int, alone: int) -> list[Figures]:
    """Returns the figures of a system in each round; `alone` of the sentences were also translated one at a time."""
    alone_seconds = {search: measured.alone_seconds(search, measured.best_threads(search)) for search in SEARCHES}
    found: list[Figures] = []
    for number, together in enumerate(measured.together):
        figures: Figures = {}
        for search, measurement in together.measurements.items():
            figures[f"{search}, tokens/s"] = measurement.tokens_per_second
            figures[f"{search}, sentences/s"] = sentences / measurement.seconds
        figures |= {
            f"{search}, alone, ms": 1e3 * duration[number] / alone for search, duration in alone_seconds.items()
        }
        proportional = max(measurement.proportional_bytes for measurement in together.measurements.values())
        figures |= {MEMORY: together.peak_bytes / 1e6, PROPORTIONAL: proportional / 1e6}
        # Peers load at the first task.
        found.append(figures | ({} if measured.system.maker in PEERS else {"load, ms": 1e3 * together.load_seconds}))
    found[0]["files, MB"] = measured.size_bytes / 1e6
    return found


def references_of(systems: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    """Returns pairs of a system and the reference that its translations are compared with."""
    ranked = sorted(
        (system for system in systems if system.system.maker in REFERENCES and not system.system.eight_bits),
        key=lambda system: REFERENCES.index(system.system.maker),
    )
    references = {item.system.precision: item for item in reversed(ranked)}
    pairs = [(system, references.get(system.system.precision)) for system in systems]
    return [(pair, reference) for pair, reference in pairs if reference not in (None, pair)]


def same_of(measured: Measured, reference: Measured) -> Figures:
    """Returns the share of sentences with the same tokens as in a reference, in percent."""
    return {
        f"{search}, same as {reference.system.maker}, %": 100 * statistics.fmean(map(operator.eq, ids, expected))
        for (search, ids), expected in zip(measured.targets.items(), reference.targets.values(), strict=True)
    }


def tables_of(systems: Sequence[OfflineSystem], columns: Columns, name: str) -> list[Table]:
    """Returns a table per `dragoman`, with the variants of the others that are nearest to it."""
    tables = []
    baselines = [system for system in systems if system.maker != "dragoman"]
    for leader in [system for system in systems if system.maker == "dragoman"] or systems[:1]:
        nearest: dict[Maker, tuple[bool, ...]] = {}
        distances = [(item, tuple(map(operator.ne, item.kind, leader.kind))) for item in baselines]
        for item, distance in distances:
            nearest[item.maker] = min(distance, nearest.get(item.maker, distance))
        shown = [item for item, distance in distances if distance == nearest[item.maker]]
        rows = {row for column in columns[str(leader)] for row in column}
        chosen = {
            column: [{row: figure for row, figure in item.items() if row in rows} for item in columns[column]]
            for column in map(str, [leader, *shown])
        }
        tables.append(Table(name, chosen, str(leader), COMPARED))
    return tables


def notes_of(systems: Sequence[Measured]) -> list[str]:
    """Returns the chosen sizes and threads."""
    sizes = [f"{system.system} {search} {system.best_size(search)}" for system in systems for search in SEARCHES]
    threads = [f"{system.system} {search} {system.best_threads(search)}" for system in systems for search in SEARCHES]
    return [
        f"Batches, or rows of each engine: {', '.join(sizes)}.",
        f"Threads for one sentence at a time: {', '.join(threads)}.",
    ]
