"""What `dragoman bench scheduling` does with its options: makes models and sentences, measures parts, writes tables.

Needs torch, unlike the options themselves; called by `benchmarks.scheduling`.

`dragoman bench scheduling`: how the engines share their time out between requests that come together.

The tables of `docs/engine.md` are made by one call of it. Knows the options alone: what needs torch is imported when
the command runs, so that its lack can be explained.
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
from benchmarks.harness.process import SystemFailedError
from benchmarks.harness.rounds import Progress, missing_library
from benchmarks.offline_results import sentences_of
from benchmarks.scheduling_options import Part, SchedulingOptions
from benchmarks.scheduling_stalls import ScheduledModel
from benchmarks.systems.compared_model import ComparedModel, compared_models
from benchmarks.systems.translating import SourceSentence, write_sentences
from loadtest.report_files import ReportFileError, ReportFiles
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.errors import ServiceError
from serve.system import available_cpus

# What is imported when the command runs, and the extra of the project that brings it.
EXTRAS = {"torch": "export", "onnx": "export", "onnxscript": "export", "onnxruntime": "cpu"}


class BenchSchedulingCommand(SchedulingOptions):
    """Measures how the engines share their time out between requests that come together.

    modes: all sentences at once and some of them one at a time, in the modes throughput and latency. prefill: how long
    running rows stand still while a burst of sentences joins them, with each token budget, and what the budget costs.
    head-of-line: how much longer a short request takes beside others of maximum length. work-conservation: how many
    of the slots are taken while something waits, and how long a decoder stands still between two runs.

    A random model of a shape is measured, by default the base model of Vaswani et al. 2017, and with --run a trained
    one. Every part does its variants in turns, so many rounds. Writes a Markdown and a JSON file for each part into a
    folder. Run it on a quiet machine; it takes several minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        problem = missing_library(EXTRAS)
        if problem is not None:
            raise SystemExit(f"dragoman bench scheduling: {problem}")

        benchmark(self)


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
