"""What `dragoman bench offline` does with its options: makes models and sentences, has them measured, writes tables.

Needs torch, unlike the options themselves; called by `benchmarks.bench_offline`.
"""

from collections.abc import Sequence

from tqdm import tqdm

from benchmarks.harness.system_process import SystemFailedError
from benchmarks.offline import compare_offline, steps_of_model
from benchmarks.offline_options import OfflineOptions
from benchmarks.offline_results import OfflineModelResult, OfflineWorkload
from benchmarks.offline_sentences import sentences_of
from benchmarks.offline_systems import OfflineSystem, offline_systems
from benchmarks.offline_table import format_offline
from benchmarks.systems.batching import Batching
from benchmarks.systems.compared_model import ComparedModel, compared_models
from benchmarks.systems.optimum_environment import OptimumEnvironment
from benchmarks.systems.source_sentence import SourceSentence
from loadtest.report_files import ReportFileError, ReportFiles
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.run import RunError
from model.tokenizer.tokenizer import TokenizerError
from serve.system import available_cpus

LIBRARIES = ("onnxruntime", "ctranslate2", "torch", "transformers", "numpy")


def benchmark(options: OfflineOptions) -> None:
    """Measures every model and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("offline", options.out, options.document)
        files.prepare()
        optimum = OptimumEnvironment(options.optimum_python)
        versions = {"optimum": optimum.versions()} if "optimum" in options.peers else {}
        engines = options.engines or available_cpus()
        models = compared_models(options.run, options.random, options.vocabulary_size)
        systems = offline_systems(options.peers, options.precisions, options.slots[0], optimum)
        if any(system.maker in ("transformers", "optimum") for system in systems):
            _check_transformers(models)
        all_sentences = sentences_of(models, options.data, options.sentences)
        workloads = [_workload(options, engines, sentences) for sentences in all_sentences]
        threads = f"threads of each system: {engines * options.threads}"
        provenance = Provenance.now(command_line("bench offline", options), LIBRARIES, threads, versions)
        results = _compare(models, systems, workloads)
        files.write_models(results, map(format_offline, results), options.model_dump(mode="json"), provenance)
    except (CorpusError, ReportFileError, RunError, SystemFailedError, TokenizerError) as error:
        raise SystemExit(f"dragoman bench offline: {error}") from error


def _check_transformers(models: Sequence[ComparedModel]) -> None:
    from benchmarks.systems.transformers_model import NoSuchModelError, check_known  # noqa: PLC0415 - only with this peer

    for model in models:
        try:
            check_known(model.model.config)
        except NoSuchModelError as error:
            raise RunError(f"{model.name}: {error}; leave it out of --peers") from error


def _workload(options: OfflineOptions, engines: int, sentences: list[SourceSentence]) -> OfflineWorkload:
    return OfflineWorkload(
        sentences,
        options.alone,
        options.trials,
        options.rounds,
        tuple(map(Batching.parse, dict.fromkeys(options.batches))),
        tuple(Batching(slots, "rows") for slots in dict.fromkeys(options.slots)),
        engines,
        options.threads,
        tuple(dict.fromkeys(options.alone_threads)),
    )


def _compare(
    models: Sequence[ComparedModel], systems: Sequence[OfflineSystem], workloads: Sequence[OfflineWorkload]
) -> list[OfflineModelResult]:
    results = []
    steps = sum(steps_of_model(systems, workload) for workload in workloads)
    with tqdm(total=steps, unit=" steps", disable=None) as progress:
        for model, workload in zip(models, workloads, strict=True):
            progress.set_description(model.name)
            results.append(compare_offline(model, systems, workload, progress))
    return results
