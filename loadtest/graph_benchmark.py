"""What `dragoman bench graphs` does with its options: makes models, has them measured, writes the tables.

Needs torch, unlike the options themselves, in `loadtest.bench_graphs`, which calls it.
"""

from collections.abc import Sequence
from dataclasses import asdict

from tqdm import tqdm

from loadtest.bench_graphs import BenchGraphsCommand
from loadtest.compared_model import ComparedModel, random_model, trained_model
from loadtest.graph_comparison import compare_systems, steps_of_model
from loadtest.graph_results import ModelResult, Workload
from loadtest.graph_systems import SYSTEMS
from loadtest.graph_table import format_model
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.system_process import SystemFailedError
from model.corpus import Corpus, CorpusError, read_corpus
from model.report.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer import TokenizerError

LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "numpy")


def benchmark(command: BenchGraphsCommand) -> None:
    """Measures every model and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("graphs", command.out, command.document)
        files.prepare()
        corpus = None if command.quality is None else read_corpus(command.quality, "test")
        models = _models(command)
        provenance = Provenance.now(
            command_line("bench graphs", command), LIBRARIES, f"threads of each system: {command.threads}"
        )
        results = _compare(command, models, corpus)
        table = "\n\n".join(map(format_model, results))
        print(table)
        figures = {"settings": command.model_dump(mode="json"), "models": [asdict(result) for result in results]}
        files.write(table, figures, provenance)
    except (CorpusError, ReportFileError, RunError, SystemFailedError, TokenizerError) as error:
        raise SystemExit(f"dragoman bench graphs: {error}") from error


def _models(command: BenchGraphsCommand) -> list[ComparedModel]:
    trained = [] if command.run is None else [trained_model(command.run)]
    models = [*trained, random_model(command.random, command.vocabulary_size)]
    for model in models:
        limits = model.model.config
        for option, asked, most in (
            ("source-tokens", command.source_tokens, limits.max_source_tokens),
            ("target-tokens", command.target_tokens, limits.max_target_tokens),
        ):
            if asked > most:
                raise RunError(f"{option}: {asked}: expected at most {most}, as the model {model.name} takes")
    return models


def _compare(command: BenchGraphsCommand, models: Sequence[ComparedModel], corpus: Corpus | None) -> list[ModelResult]:
    systems = [SYSTEMS[name] for name in dict.fromkeys(command.systems)]
    workload = Workload(
        command.rows,
        command.threads,
        command.source_tokens,
        command.target_tokens,
        command.rounds,
        command.turn_seconds,
    )
    corpora = [corpus if model.trained else None for model in models]
    steps = sum(steps_of_model(len(systems), workload, quality=each is not None) for each in corpora)
    results = []
    with tqdm(total=steps, unit=" steps", disable=None) as progress:
        for model, each in zip(models, corpora, strict=True):
            progress.set_description(model.name)
            results.append(compare_systems(model, systems, workload, each, progress))
    return results
