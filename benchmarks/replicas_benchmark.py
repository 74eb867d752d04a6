"""What `dragoman bench replicas` does with its options: turns of every number of replicas, and a table of them.

Called by `benchmarks.bench_replicas`.
"""

import asyncio
from dataclasses import asdict

from tqdm import tqdm

from benchmarks.cost import million_cost
from benchmarks.harness.affinity import AffinityError, check_cpus, running_on
from benchmarks.harness.rounds import take_turns
from benchmarks.replicas import BusyReplicas
from benchmarks.replicas_options import ReplicasOptions
from benchmarks.replicas_results import Layout, LayoutResult, ReplicasResult, ReplicasTurn, median_throughput
from benchmarks.replicas_table import format_replicas
from benchmarks.service_sentences import ServiceSentences, read_sentences
from loadtest.closed_loop import BusyServerError
from loadtest.generators import GeneratorLostError
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.served_process import ServedProcessError
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError

LIBRARIES = ("onnxruntime", "grpcio", "uvicorn", "numpy")


def benchmark(options: ReplicasOptions) -> None:
    """Measures and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("replicas", options.out, options.document)
        files.prepare()
        bundle = Bundle.open(options.bundle)
        sentences = read_sentences(bundle, options.data)
        check_cpus(options.server_cpus)
        cpus = f"CPUs of the replicas: {len(options.server_cpus)}, of the clients: {len(options.generator_cpus)}"
        provenance = Provenance.now(command_line("bench replicas", options, positional="bundle"), LIBRARIES, cpus)
        turns = _measure(options, sentences)
        result = _result(options, bundle, sentences, turns)
        table = format_replicas(result)
        print(table)
        files.write(table, {"settings": options.model_dump(mode="json"), **asdict(result)}, provenance)
    except (
        AffinityError,
        BundleError,
        BusyServerError,
        CorpusError,
        GeneratorLostError,
        ReportFileError,
        ServedProcessError,
        TokenizerError,
    ) as error:
        raise SystemExit(f"dragoman bench replicas: {error}") from error


def _measure(options: ReplicasOptions, sentences: ServiceSentences) -> dict[Layout, list[ReplicasTurn]]:
    cpus = len(set(options.server_cpus))
    layouts = [Layout.of(replicas, cpus=cpus, slots=options.slots) for replicas in options.replicas]
    busy = BusyReplicas(options, [each.text for each in sentences.sentences], sentences.direction)
    with (
        running_on(options.generator_cpus),
        tqdm(total=options.rounds * len(layouts), unit=" turns", disable=None) as progress,
    ):
        return asyncio.run(take_turns(layouts, options.rounds, busy.take_turn, progress.update))


def _result(
    options: ReplicasOptions,
    bundle: Bundle,
    sentences: ServiceSentences,
    turns: dict[Layout, list[ReplicasTurn]],
) -> ReplicasResult:
    cpus = set(options.server_cpus)
    layouts = [
        LayoutResult(
            layout,
            each,
            million_cost(
                median_throughput(each),
                cpus=len(cpus),
                utilisation=options.utilisation,
                cpu_hour_price=options.cpu_hour_price,
            ),
        )
        for layout, each in turns.items()
    ]
    manifest = bundle.manifest
    return ReplicasResult(
        name=manifest.name,
        direction=str(sentences.direction),
        precision=manifest.precision,
        clients=options.clients,
        sentences=len(sentences.sentences),
        cpus=len(cpus),
        clients_share=not cpus.isdisjoint(options.generator_cpus),
        utilisation=options.utilisation,
        layouts=layouts,
    )
