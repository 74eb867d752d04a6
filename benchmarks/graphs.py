"""The systems that `dragoman bench graphs` compares: our graphs by variant and precision, and CTranslate2.

Knows what each is, which files it needs, how it is started and with which it is compared. Knows no torch.

The options of `dragoman bench graphs`: flags, environment variables and what they may be. Needs no torch.

`dragoman bench graphs`: how large, fast and good exported graphs are, beside CTranslate2 with the same weights.

The tables of `docs/export.md` are made by one call of it. Knows the options alone: what needs torch is imported when
the command runs, so that its lack can be explained.

What precision costs: BLEU of the translations that a system finds greedily.

Called by `benchmarks.graphs`.

What `dragoman bench graphs` has its systems do, and what it measured of them. Knows no torch.

Measures all systems of one model, as `dragoman bench graphs` does: writes their files, lets them take turns.

The files are in a temporary folder and gone afterwards. Knows no options and no tables.

The table of `dragoman bench graphs`: a row for each system of a model, in Markdown. Knows figures only.

What `dragoman bench graphs` does with its options: makes models, has them measured, writes the tables.

Needs torch, unlike the options themselves; called by `benchmarks.graphs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sacrebleu.metrics.bleu import BLEU
from tqdm import tqdm

from benchmarks.harness.process import Launch, SystemFailedError
from benchmarks.harness.rounds import (
    Player,
    Progress,
    Round,
    Spread,
    format_ratio,
    missing_library,
    play,
    ratio,
    steps_of,
)
from benchmarks.systems.compared_model import (
    BASE,
    BASE_VOCABULARY_SIZE,
    MOST_TOKENS,
    ComparedModel,
    ModelFiles,
    compared_models,
)
from export.verify.graph_decoder import translate
from loadtest.report_files import ReportFileError, ReportFiles
from model.config import TransformerConfig
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.provenance import Provenance, command_line
from model.run import RunError
from model.scoring import Measure, measure
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import GraphVariant, Precision

SystemName = Literal[
    "cpu-fp32",
    "portable-fp32",
    "ctranslate2-float32",
    "cpu-int8",
    "cpu-int8-static",
    "portable-int8",
    "ctranslate2-int8",
]


@dataclass(frozen=True, slots=True)
class OnnxSystem:
    """A bundle, run by ONNX Runtime.

    Attributes:
        peer: the CTranslate2 of the same precision.
    """

    name: SystemName
    variant: GraphVariant
    precision: Precision
    peer: SystemName

    def write(self, model: ModelFiles, folder: Path) -> None:
        """Has a model write the bundle."""
        model.write_bundle(folder, self.variant, self.precision)

    def launch(self, folder: Path, threads: int, slots: int) -> Launch:
        """Returns how it is started from its folder, for steps of at most `slots` rows on each thread."""
        options = {"folder": str(folder), "threads": threads, "slots": slots}
        return Launch(self.name, "benchmarks.systems.onnx_decoder", options)


@dataclass(frozen=True, slots=True)
class CTranslate2System:
    """A model of CTranslate2, the measure of all others, which is compared with nothing."""

    name: SystemName
    compute_type: str
    peer: None = None

    def write(self, model: ModelFiles, folder: Path) -> None:
        """Has a model write itself in the form of CTranslate2."""
        model.write_ctranslate2(folder, self.compute_type)

    def launch(self, folder: Path, threads: int, slots: int) -> Launch:  # noqa: ARG002 - it allocates what it needs
        """Returns how it is started from its folder."""
        options = {"folder": str(folder), "threads": threads, "compute_type": self.compute_type}
        return Launch(self.name, "benchmarks.systems.ctranslate2_decoder", options)


GraphSystem = OnnxSystem | CTranslate2System

SYSTEMS: dict[SystemName, GraphSystem] = {
    system.name: system
    for system in (
        OnnxSystem("cpu-fp32", "cpu", "fp32", "ctranslate2-float32"),
        OnnxSystem("portable-fp32", "portable", "fp32", "ctranslate2-float32"),
        CTranslate2System("ctranslate2-float32", "float32"),
        OnnxSystem("cpu-int8", "cpu", "int8", "ctranslate2-int8"),
        OnnxSystem("cpu-int8-static", "cpu", "int8-static", "ctranslate2-int8"),
        OnnxSystem("portable-int8", "portable", "int8", "ctranslate2-int8"),
        CTranslate2System("ctranslate2-int8", "int8"),
    )
}


class GraphOptions(BaseSettings):
    """All options; what is done with them, the command tells, which adds how it is called."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_GRAPHS_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder that gets graphs.md and graphs.json")
    document: Path | None = Field(None, description="Markdown file whose place <!-- graphs --> gets the table")
    run: Path | None = Field(
        None, description="training run or bundle in fp32, whose model is measured beside a random one"
    )
    quality: str | None = Field(
        None, description="test data, as `dragoman evaluate` takes them: measures BLEU of the trained model's systems"
    )
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    systems: tuple[SystemName, ...] = Field(tuple(SYSTEMS), min_length=1, description="which systems are measured")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 8, 32, 128), min_length=1, description="sources that each thread decodes at a time"
    )
    threads: int = Field(2, gt=0, description="threads of each system, each with batches of its own")
    source_tokens: int = Field(20, gt=1, description="length of each source, end token included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    rounds: int = Field(5, gt=0, description="turns of each system at each number of rows")
    turn_seconds: float = Field(1.0, ge=0, description="a turn repeats its batches for about so long")


# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {
    "torch": "export",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "cpu",
    "sacrebleu": "train",
    "ctranslate2": "peers",
}


class BenchGraphsCommand(GraphOptions):
    """Measures exported graphs beside CTranslate2 with the same weights: size, load time, memory, speed, BLEU.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Each system is a process of its own with one ONNX Runtime session or one CTranslate2 translator, and decodes
    the same sources greedily to targets of the same length, on each thread so many rows at a time. In every round each
    system is started once and then takes its turn at each number of rows. Tokens per second are the median of the
    rounds; behind it stands how many times the speed of CTranslate2 in the same precision that is: the median of the
    rounds' ratios, the smallest and the largest.

    Writes graphs.md and graphs.json into a folder. Run it on a quiet machine with as many CPUs as threads; it takes
    many minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        if self.quality is not None and self.run is None:
            raise SystemExit("dragoman bench graphs: quality: expected --run as well: a random model has none")
        self._check_libraries()

        benchmark(self)

    def _check_libraries(self) -> None:
        peers = any(isinstance(SYSTEMS[name], CTranslate2System) for name in self.systems)
        problem = missing_library({name: extra for name, extra in EXTRAS.items() if peers or extra != "peers"})
        if problem is not None:
            raise SystemExit(f"dragoman bench graphs: {problem}")


def measure_quality(model: ComparedModel, corpus: Corpus, system: GraphSystem, folder: Path, threads: int) -> Measure:
    """Returns the BLEU of a system, whose files are in a folder.

    Raises:
        CorpusError: if the model cannot translate it.
    """
    targets = _translate(model, model.source_ids(corpus), system, folder, threads)
    translations = [model.exportable.tokenizer.decode(target) for target in targets]
    return measure(BLEU(), translations, corpus.targets)


def _translate(
    model: ComparedModel, sources: Sequence[tuple[int, ...]], system: GraphSystem, folder: Path, threads: int
) -> list[Sequence[int]]:
    if isinstance(system, OnnxSystem):
        return [answer.target_ids for answer in translate(Bundle.open(folder), sources)]
    from benchmarks.systems.ctranslate2_decoder import CTranslate2Decoder  # noqa: PLC0415 - only with this peer

    decoder = CTranslate2Decoder(str(folder), threads, system.compute_type)
    return [*decoder.translate(sources, model.model.config.max_target_tokens)]


SEED = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """What the systems do.

    Attributes:
        rows: sources that each thread decodes at a time; a task for each number.
        threads: so many.
        source_tokens: length of each source, EOS included.
        target_tokens: length of each target.
        rounds: in which every system has a turn at every task.
        turn_seconds: the least length of a turn, about.
    """

    rows: tuple[int, ...]
    threads: int
    source_tokens: int
    target_tokens: int
    rounds: int
    turn_seconds: float

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Returns the tasks by their number of rows, the fewest first."""
        lengths = {"source_tokens": self.source_tokens, "target_tokens": self.target_tokens}
        return {str(rows): {"seed": SEED, "rows": rows, **lengths} for rows in sorted(self.rows)}


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What was measured of one system.

    Attributes:
        name: of the system.
        peer: the name of the one that it is compared with.
        size_bytes: of its files.
        rounds: what it did in each.
        bleu: of its translations, if they were measured.
    """

    name: str
    peer: str | None
    size_bytes: int
    rounds: list[Round]
    bleu: Measure | None


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What was measured of all systems of one model."""

    name: str
    description: str
    systems: list[SystemResult]


def steps_of_model(systems: int, workload: Workload, *, quality: bool) -> int:
    """Returns how many steps `compare_systems` tells a progress bar."""
    return systems * (2 if quality else 1) + steps_of(systems, len(workload.tasks()), workload.rounds)


def compare_systems(
    model: ComparedModel, systems: Sequence[GraphSystem], workload: Workload, corpus: Corpus | None, progress: Progress
) -> ModelResult:
    """Measures all systems of a model.

    Args:
        model: whose weights they hold.
        systems: which.
        workload: what they do.
        corpus: what they translate to measure the quality, if it is to be measured.
        progress: is told each step.

    Raises:
        CorpusError: if the model cannot translate the corpus.
        RunError: if a bundle cannot be made.
        SystemFailedError: if a system fails.
    """
    with TemporaryDirectory(prefix="dragoman-") as workshop:
        folders = {system.name: Path(workshop) / system.name for system in systems}
        bleu: dict[str, Measure] = {}
        for system in systems:
            system.write(model, folders[system.name])
            progress.update()
            if corpus is not None:
                bleu[system.name] = measure_quality(model, corpus, system, folders[system.name], workload.threads)
                progress.update()
        players = [
            Player(system.launch(folders[system.name], workload.threads, max(workload.rows)), workload.tasks())
            for system in systems
        ]
        played = play(players, rounds=workload.rounds, seconds=workload.turn_seconds, progress=progress)
        return ModelResult(
            model.name,
            model.describe(),
            [
                SystemResult(
                    system.name,
                    system.peer,
                    sum(path.stat().st_size for path in folders[system.name].iterdir()),
                    played[system.name],
                    bleu.get(system.name),
                )
                for system in systems
            ],
        )


def format_model(result: ModelResult) -> str:
    """Returns a heading, the table, and the signature of BLEU if it was measured."""
    tasks = list(result.systems[0].rounds[0].tokens_per_second)
    measured = next((system.bleu for system in result.systems if system.bleu is not None), None)
    heading = ["system", "size, MB", "load, s", "memory, MB", *(_rows_of(task) for task in tasks)]
    heading += [] if measured is None else ["BLEU"]
    by_name = {system.name: system for system in result.systems}
    lines = [_row(heading), _row(["---", *["---:"] * (len(heading) - 1)])]
    lines += [_row(_cells(system, by_name, tasks)) for system in result.systems]
    parts = [f"**{result.name}**: {result.description}.", "\n".join(lines)]
    return "\n\n".join(parts if measured is None else [*parts, f"BLEU: `{measured.signature}`."])


def _cells(system: SystemResult, by_name: Mapping[str, SystemResult], tasks: list[str]) -> list[str]:
    load = Spread.of([each.load_seconds for each in system.rounds])
    memory = Spread.of([each.peak_bytes for each in system.rounds])
    peer = by_name.get(system.peer) if system.peer else None
    speeds = [format_speed(_speeds(system, task), None if peer is None else _speeds(peer, task)) for task in tasks]
    cells = [system.name, f"{system.size_bytes / 1e6:,.1f}", f"{load.median:.2f}", f"{memory.median / 1e6:,.0f}"]
    return [*cells, *speeds, *([] if system.bleu is None else [str(system.bleu.system)])]


def format_speed(ours: list[float], theirs: list[float] | None) -> str:
    """Returns the median of figures and, if there is a peer, how many times those of the peer they are.

    Args:
        ours: tokens per second, round by round.
        theirs: those of the peer.

    Returns:
        As in `997, 1.66x (1.61-1.70)`: median, median of the ratios, their smallest and their largest.
    """
    median = f"{Spread.of(ours).median:,.0f}"
    return median if theirs is None else f"{median}, {format_ratio(ratio(ours, theirs))}"


def _speeds(system: SystemResult, task: str) -> list[float]:
    return [each.tokens_per_second[task] for each in system.rounds]


def _rows_of(task: str) -> str:
    return f"tokens/s, {task} row{'' if task == '1' else 's'}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "numpy")


def benchmark(options: GraphOptions) -> None:
    """Measures every model and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("graphs", options.out, options.document)
        files.prepare()
        corpus = None if options.quality is None else read_corpus(options.quality, "test")
        models = _models(options)
        provenance = Provenance.now(
            command_line("bench graphs", options), LIBRARIES, f"threads of each system: {options.threads}"
        )
        results = _compare(options, models, corpus)
        files.write_models(results, map(format_model, results), options.model_dump(mode="json"), provenance)
    except (CorpusError, ReportFileError, RunError, SystemFailedError, TokenizerError) as error:
        raise SystemExit(f"dragoman bench graphs: {error}") from error


def _models(options: GraphOptions) -> list[ComparedModel]:
    models = compared_models(options.run, options.random, options.vocabulary_size)
    for model in models:
        limits = model.model.config
        for option, asked, most in (
            ("source-tokens", options.source_tokens, limits.max_source_tokens),
            ("target-tokens", options.target_tokens, limits.max_target_tokens),
        ):
            if asked > most:
                raise RunError(f"{option}: {asked}: expected at most {most}, as the model {model.name} takes")
    return models


def _compare(options: GraphOptions, models: Sequence[ComparedModel], corpus: Corpus | None) -> list[ModelResult]:
    systems = [SYSTEMS[name] for name in dict.fromkeys(options.systems)]
    workload = Workload(
        options.rows,
        options.threads,
        options.source_tokens,
        options.target_tokens,
        options.rounds,
        options.turn_seconds,
    )
    corpora = [corpus if model.trained else None for model in models]
    steps = sum(steps_of_model(len(systems), workload, quality=each is not None) for each in corpora)
    results = []
    with tqdm(total=steps, unit=" steps", disable=None) as progress:
        for model, each in zip(models, corpora, strict=True):
            progress.set_description(model.name)
            results.append(compare_systems(model, systems, workload, each, progress))
    return results
