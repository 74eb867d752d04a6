"""`dragoman bench scheduling`: how engines schedule concurrent requests, in four parts."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from benchmarks.harness.rounds import reporting
from benchmarks.offline_results import sentences_of
from benchmarks.scheduling_parts import (
    HEAD_OF_LINE,
    MODES,
    WORK_CONSERVATION,
    Part,
    PartMeasure,
    ScheduledModel,
    SchedulingOptions,
)
from benchmarks.scheduling_stalls import PREFILL
from benchmarks.systems.compared_model import ComparedModel, compared_models
from benchmarks.systems.translating import SourceSentence, write_sentences
from loadtest.report_files import ReportFiles
from model.provenance import Provenance, command_line
from model.run import RunError
from serve.errors import ServiceError
from serve.system import available_cpus

LIBRARIES = ("onnxruntime", "numpy")
PARTS: dict[Part, PartMeasure] = {
    "modes": MODES,
    "prefill": PREFILL,
    "head-of-line": HEAD_OF_LINE,
    "work-conservation": WORK_CONSERVATION,
}


class BenchSchedulingCommand(SchedulingOptions):
    """Measures how the engines schedule concurrent requests.

    modes: all sentences at once and some of them one at a time, in the modes throughput and latency. prefill: how long
    running rows stall while a burst of sentences joins them, per token budget, and the throughput of each budget.
    head-of-line: the latency of a short request while others of maximum length run. work-conservation: the share of
    occupied slots while sequences wait, and the time between two decoder runs.

    Measures a random model, by default the base model of Vaswani et al. 2017, and with --run a trained one. The
    variants of a part take turns in every round. Writes a Markdown and a JSON file per part. Takes several minutes on
    an otherwise idle machine.
    """

    def cli_cmd(self) -> None:
        """Measures every part of every model, prints and writes the results."""
        files = {part: ReportFiles(part, self.out, self.document) for part in self.parts}
        with reporting("scheduling", files.values(), RunError, ServiceError):
            models = compared_models(self.run, self.random, self.vocabulary_size)
            sentences = sentences_of(models, self.data, self.sentences)
            with TemporaryDirectory(prefix="dragoman-") as workshop:
                scheduled = [
                    _scheduled(model, some, self, Path(workshop) / model.name)
                    for model, some in zip(models, sentences, strict=True)
                ]
                found = _measure(list(files), scheduled, self)
            threads = f"threads of all engines: {available_cpus()}"
            provenance = Provenance.now(command_line("bench scheduling", self), LIBRARIES, threads)
            for part, results in found.items():
                table = f"{_describe(models, sentences)}\n\n{PARTS[part].table(results)}"
                print(f"{table}\n")
                figures = {name: [asdict(result) for result in some] for name, some in results.items()}
                settings = self.model_dump(mode="json")
                files[part].write(table, {"settings": settings, "models": figures}, provenance)
            print(provenance)


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
