"""`dragoman bench graphs`: size, load time, memory, speed and BLEU of exported graphs compared with CTranslate2.

Every system is a decode loop in its own process, with the same weights. The files of the systems are in a temporary
folder.
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

from benchmarks.harness.process import Launch
from benchmarks.harness.rounds import (
    Player,
    Progress,
    Round,
    Spread,
    format_ratio,
    play,
    ratio,
    reporting,
    require_libraries,
    steps_of,
    table_line,
)
from benchmarks.systems.compared_model import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS, ComparedModel, compared_models
from export.graph_decoder import translate
from loadtest.report_files import ReportFiles
from model.config import TransformerConfig
from model.data.corpus import Corpus, read_corpus
from model.provenance import Provenance, command_line
from model.run import RunError
from model.scoring import Measure, measure
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
    """A bundle, run by ONNX Runtime; the baseline is CTranslate2 in the same precision."""

    name: SystemName
    variant: GraphVariant
    precision: Precision
    baseline: SystemName

    def write(self, model: ComparedModel, folder: Path) -> None:
        """Writes the bundle."""
        model.write_bundle(folder, self.variant, self.precision)

    def launch(self, folder: Path, threads: int, slots: int) -> Launch:
        """Returns how to start it, for steps of at most `slots` rows on each thread."""
        options = {"folder": str(folder), "threads": threads, "slots": slots}
        return Launch(self.name, "benchmarks.systems.onnx_decoder:OnnxDecoder", options)


@dataclass(frozen=True, slots=True)
class CTranslate2System:
    """A CTranslate2 model, the baseline."""

    name: SystemName
    compute_type: str
    baseline: None = None

    def write(self, model: ComparedModel, folder: Path) -> None:
        """Writes the model in the format of CTranslate2."""
        model.write_ctranslate2(folder, self.compute_type)

    # CTranslate2 allocates as needed
    def launch(self, folder: Path, threads: int, slots: int) -> Launch:  # noqa: ARG002
        """Returns how to start it."""
        options = {"folder": str(folder), "threads": threads, "compute_type": self.compute_type}
        return Launch(self.name, "benchmarks.systems.ctranslate2_system:CTranslate2Decoder", options)


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


LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "numpy")
SEED = 1


class BenchGraphsCommand(BaseSettings):
    """Compares exported graphs with CTranslate2: size, load time, memory, speed and BLEU.

    Measures a random model, by default the base model of Vaswani et al. 2017, and with --run a trained one. Each system
    has the same weights and one ONNX Runtime session or CTranslate2 translator in its own process. It decodes the same
    sources greedily to targets of the same length, --rows at a time on each thread. All systems take turns in every
    round. Tokens per second are the median of the rounds, followed by the ratio to CTranslate2 in the same precision:
    the median of the rounds' ratios and their range.

    Writes graphs.md and graphs.json. Takes many minutes on an otherwise idle machine with as many CPUs as threads.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_GRAPHS_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder for graphs.md and graphs.json")
    document: Path | None = Field(None, description="Markdown file; the table replaces its <!-- graphs --> section")
    run: Path | None = Field(None, description="training run or fp32 bundle of a second, trained model")
    quality: str | None = Field(None, description="test data as in `dragoman evaluate`, for BLEU of the trained model")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    systems: tuple[SystemName, ...] = Field(tuple(SYSTEMS), min_length=1, description="systems to measure")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 8, 32, 128), min_length=1, description="sources that each thread decodes at once"
    )
    threads: int = Field(2, gt=0, description="threads of each system, each with its own batches")
    source_tokens: int = Field(20, gt=1, description="length of each source, EOS included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    rounds: int = Field(5, gt=0, description="turns of each system at each number of rows")
    turn_seconds: float = Field(1.0, ge=0, description="approximate length of a turn")

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Returns the tasks of the systems by their number of rows, ascending."""
        lengths = {"source_tokens": self.source_tokens, "target_tokens": self.target_tokens}
        return {str(rows): {"seed": SEED, "rows": rows, **lengths} for rows in sorted(self.rows)}

    def cli_cmd(self) -> None:
        """Measures every model, prints and writes the results."""
        if self.quality is not None and self.run is None:
            raise SystemExit("dragoman bench graphs: quality: expected with --run: a random model has no quality")
        if any(isinstance(SYSTEMS[name], CTranslate2System) for name in self.systems):
            require_libraries(["ctranslate2"])
        files = ReportFiles("graphs", self.out, self.document)
        with reporting("graphs", [files], RunError):
            corpus = None if self.quality is None else read_corpus(self.quality, "test")
            results = _compare(self, _models(self), corpus)
            threads = f"threads of each system: {self.threads}"
            provenance = Provenance.now(command_line("bench graphs", self), LIBRARIES, threads)
            files.write_models(results, map(format_model, results), self.model_dump(mode="json"), provenance)


def measure_quality(model: ComparedModel, corpus: Corpus, system: GraphSystem, folder: Path, threads: int) -> Measure:
    """Returns the BLEU of a system's greedy translations.

    Raises:
        CorpusError: if the model cannot translate the corpus.
    """
    targets = _translate(model, model.source_ids(corpus), system, folder, threads)
    translations = [model.exportable.tokenizer.decode(target) for target in targets]
    return measure(BLEU(), translations, corpus.targets)


def _translate(
    model: ComparedModel, sources: Sequence[tuple[int, ...]], system: GraphSystem, folder: Path, threads: int
) -> list[Sequence[int]]:
    if isinstance(system, OnnxSystem):
        return [answer.target_ids for answer in translate(Bundle.open(folder), sources)]
    from benchmarks.systems.ctranslate2_system import CTranslate2Decoder  # noqa: PLC0415 - needs ctranslate2

    decoder = CTranslate2Decoder(str(folder), threads, system.compute_type)
    return [*decoder.translate(sources, model.model.config.max_target_tokens)]


@dataclass(frozen=True, slots=True)
class SystemResult:
    """The results of one system; `size_bytes` is the sum of its files."""

    name: str
    baseline: str | None
    size_bytes: int
    rounds: list[Round]
    bleu: Measure | None


@dataclass(frozen=True, slots=True)
class ModelResult:
    """The results of all systems of one model."""

    name: str
    description: str
    systems: list[SystemResult]


def compare_systems(
    model: ComparedModel,
    systems: Sequence[GraphSystem],
    options: BenchGraphsCommand,
    corpus: Corpus | None,
    progress: Progress,
) -> ModelResult:
    """Measures all systems of a model, and BLEU on the corpus if given.

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
                bleu[system.name] = measure_quality(model, corpus, system, folders[system.name], options.threads)
                progress.update()
        players = [
            Player(system.launch(folders[system.name], options.threads, max(options.rows)), options.tasks())
            for system in systems
        ]
        played = play(players, rounds=options.rounds, seconds=options.turn_seconds, progress=progress)
        return ModelResult(
            model.name,
            model.describe(),
            [
                SystemResult(
                    system.name,
                    system.baseline,
                    sum(path.stat().st_size for path in folders[system.name].iterdir()),
                    played[system.name],
                    bleu.get(system.name),
                )
                for system in systems
            ],
        )


def format_model(result: ModelResult) -> str:
    """Returns a heading, the table, and the signature of BLEU if measured."""
    tasks = list(result.systems[0].rounds[0].tokens_per_second)
    measured = next((system.bleu for system in result.systems if system.bleu is not None), None)
    heading = ["system", "size, MB", "load, s", "memory, MB", *(_rows_of(task) for task in tasks)]
    heading += [] if measured is None else ["BLEU"]
    by_name = {system.name: system for system in result.systems}
    lines = [table_line(heading), table_line(["---", *["---:"] * (len(heading) - 1)])]
    lines += [table_line(_cells(system, by_name, tasks)) for system in result.systems]
    parts = [f"**{result.name}**: {result.description}.", "\n".join(lines)]
    return "\n\n".join(parts if measured is None else [*parts, f"BLEU: `{measured.signature}`."])


def _cells(system: SystemResult, by_name: Mapping[str, SystemResult], tasks: list[str]) -> list[str]:
    load = Spread.of([each.load_seconds for each in system.rounds])
    memory = Spread.of([each.peak_bytes for each in system.rounds])
    baseline = by_name.get(system.baseline) if system.baseline else None
    speeds = [
        format_speed(_speeds(system, task), None if baseline is None else _speeds(baseline, task)) for task in tasks
    ]
    cells = [system.name, f"{system.size_bytes / 1e6:,.1f}", f"{load.median:.2f}", f"{memory.median / 1e6:,.0f}"]
    return [*cells, *speeds, *([] if system.bleu is None else [str(system.bleu.system)])]


def format_speed(system: list[float], baseline: list[float] | None) -> str:
    """Returns `997, 1.66x (1.61-1.70)`: median of the rounds, then median and range of the ratios to the baseline."""
    median = f"{Spread.of(system).median:,.0f}"
    return median if baseline is None else f"{median}, {format_ratio(ratio(system, baseline))}"


def _speeds(system: SystemResult, task: str) -> list[float]:
    return [each.tokens_per_second[task] for each in system.rounds]


def _rows_of(task: str) -> str:
    return f"tokens/s, {task} row{'' if task == '1' else 's'}"


def _models(options: BenchGraphsCommand) -> list[ComparedModel]:
    models = compared_models(options.run, options.random, options.vocabulary_size)
    for model in models:
        limits = model.model.config
        for option, asked, most in (
            ("source-tokens", options.source_tokens, limits.max_source_tokens),
            ("target-tokens", options.target_tokens, limits.max_target_tokens),
        ):
            if asked > most:
                raise RunError(f"{option}: {asked}: expected at most {most}, as the model {model.name} allows")
    return models


def _compare(options: BenchGraphsCommand, models: Sequence[ComparedModel], corpus: Corpus | None) -> list[ModelResult]:
    systems = [SYSTEMS[name] for name in dict.fromkeys(options.systems)]
    corpora = [corpus if model.trained else None for model in models]
    steps = sum(len(systems) * (1 if each is None else 2) for each in corpora)
    steps += len(models) * steps_of(len(systems), len(options.tasks()), options.rounds)
    results = []
    with tqdm(total=steps, unit=" steps", disable=None) as progress:
        for model, each in zip(models, corpora, strict=True):
            progress.set_description(model.name)
            results.append(compare_systems(model, systems, options, each, progress))
    return results
