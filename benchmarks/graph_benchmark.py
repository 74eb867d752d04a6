"""What `dragoman bench graphs` does with its options: makes models, has them measured, writes the tables.

Needs torch, unlike the options themselves; called by `benchmarks.bench_graphs`.
"""

from collections.abc import Sequence

from tqdm import tqdm

from benchmarks.graph_comparison import compare_systems, steps_of_model
from benchmarks.graph_options import GraphOptions
from benchmarks.graph_results import ModelResult, Workload
from benchmarks.graph_table import format_model
from benchmarks.graphs import SYSTEMS
from benchmarks.harness.system_process import SystemFailedError
from benchmarks.systems.compared_model import ComparedModel, compared_models
from loadtest.report_files import ReportFileError, ReportFiles
from model.data.corpus import Corpus, CorpusError, read_corpus
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError

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
