"""What `dragoman bench scheduling` does with its options: makes models and sentences, measures parts, writes tables.

Needs torch, unlike the options themselves; called by `benchmarks.bench_scheduling`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from benchmarks import scheduling_head_of_line as head_of_line
from benchmarks import scheduling_modes as mode_comparison
from benchmarks import scheduling_stalls as prefill_stalls
from benchmarks import scheduling_work_conservation as work_conservation
from benchmarks.harness.rounds import Progress
from benchmarks.harness.system_process import SystemFailedError
from benchmarks.offline_sentences import sentences_of
from benchmarks.scheduled_model import ScheduledModel
from benchmarks.scheduling_options import Part, SchedulingOptions
from benchmarks.systems.compared_model import ComparedModel, compared_models
from benchmarks.systems.source_sentence import SourceSentence, write_sentences
from loadtest.report_files import ReportFileError, ReportFiles
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.errors import ServiceError
from serve.system import available_cpus

LIBRARIES = ("onnxruntime", "numpy")


@dataclass(frozen=True, slots=True)
class PartMeasure:
    """A part of the benchmark.

    Attributes:
        steps: how many steps of a progress bar it takes for a model.
        measure: measures a model.
        table: makes the table of what was found, by the models' names.
    """

    steps: Callable[[SchedulingOptions], int]
    measure: Callable[[ScheduledModel, SchedulingOptions, Progress], list[Any]]
    table: Callable[[dict[str, list[Any]]], str]


PARTS: dict[Part, PartMeasure] = {
    "modes": PartMeasure(mode_comparison.steps, mode_comparison.measure, mode_comparison.table),
    "prefill": PartMeasure(prefill_stalls.steps, prefill_stalls.measure, prefill_stalls.table),
    "head-of-line": PartMeasure(head_of_line.steps, head_of_line.measure, head_of_line.table),
    "work-conservation": PartMeasure(work_conservation.steps, work_conservation.measure, work_conservation.table),
}


def benchmark(options: SchedulingOptions) -> None:
    """Measures every part of every model and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        parts = list(dict.fromkeys(options.parts))
        files = {part: ReportFiles(part, options.out, options.document) for part in parts}
        for each in files.values():
            each.prepare()
        models = compared_models(options.run, options.random, options.vocabulary_size)
        sentences = sentences_of(models, options.data, options.sentences)
        provenance = Provenance.now(
            command_line("bench scheduling", options), LIBRARIES, f"threads of all engines: {available_cpus()}"
        )
        with TemporaryDirectory(prefix="dragoman-") as workshop:
            scheduled = [
                _scheduled(model, some, options, Path(workshop) / model.name)
                for model, some in zip(models, sentences, strict=True)
            ]
            for part, found in _measure(parts, scheduled, options).items():
                table = f"{_describe(models, sentences)}\n\n{PARTS[part].table(found)}"
                print(f"{table}\n")
                results = {name: [asdict(result) for result in some] for name, some in found.items()}
                figures = {"settings": options.model_dump(mode="json"), "models": results}
                files[part].write(table, figures, provenance)
        print(provenance)
    except (CorpusError, ReportFileError, RunError, ServiceError, SystemFailedError, TokenizerError) as error:
        raise SystemExit(f"dragoman bench scheduling: {error}") from error


def _scheduled(
    model: ComparedModel, sentences: list[SourceSentence], options: SchedulingOptions, folder: Path
) -> ScheduledModel:
    folder.mkdir()
    model.write_bundle(folder / "bundle", "cpu", options.precision)
    write_sentences(folder / "sentences.json", sentences)
    return ScheduledModel(model.name, folder / "bundle", sentences, folder / "sentences.json")


def _describe(models: Sequence[ComparedModel], sentences: Sequence[list[SourceSentence]]) -> str:
    return "\n".join(
        f"- **{model.name}**: {model.describe()}; {len(some):,} sentences"
        for model, some in zip(models, sentences, strict=True)
    )


def _measure(
    parts: Sequence[Part], models: Sequence[ScheduledModel], options: SchedulingOptions
) -> dict[Part, dict[str, list[Any]]]:
    found: dict[Part, dict[str, list[Any]]] = {part: {} for part in parts}
    steps = sum(PARTS[part].steps(options) for part in parts) * len(models)
    with tqdm(total=steps, unit=" steps", disable=None) as progress:
        for part in parts:
            for model in models:
                progress.set_description(f"{part}, {model.name}")
                found[part][model.name] = PARTS[part].measure(model, options, progress)
    return found
