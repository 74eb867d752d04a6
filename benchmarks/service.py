"""`dragoman bench service`: the cost of tokenizer, interfaces, queue and metrics in addition to the model.

One client compares the times of one sentence, milliseconds apart, between the bare engine, gRPC and REST. Many clients
keep a server busy, whose CPU time in ONNX Runtime is then separated from the rest.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.harness.rounds import in_turn, reporting, running_on, take_turns
from benchmarks.service_load import (
    BusyServer,
    LoneClient,
    LoneClientError,
    ServiceOptions,
    ServiceSentence,
    ServiceSentences,
    engine_client,
    grpc_client,
    read_sentences,
    rest_client,
)
from benchmarks.service_results import (
    ENGINE,
    INTERFACES,
    BusyResult,
    OverheadResult,
    Quartiles,
    ServiceResult,
    Way,
    WayResult,
    format_service,
)
from loadtest.clients import Targets
from loadtest.closed_loop import BusyServerError
from loadtest.generator import GeneratorLostError
from loadtest.report_files import ReportFiles
from loadtest.scenario import LoadRequest
from model.provenance import Provenance, command_line
from serve.bundle.bundle import Bundle
from serve.errors import ServiceError
from serve.server_process import HOST, ServerProcess, ServerProcessError, choose_ports, server_command

LIBRARIES = ("onnxruntime", "grpcio", "uvicorn", "numpy")
WATCHED_SERVER = ("benchmarks.watched_server",)
START_SECONDS = 120.0


class BenchServiceCommand(ServiceOptions):
    """Measures the overhead of the service over its bare engine.

    One client: each sentence goes to the bare engine (scheduler, engine and runtime in this process, token ids to token
    ids), to a server over gRPC and to the same server over REST, in turn. The result is the time difference per
    sentence. Many clients: a closed loop over gRPC, REST and TranslateMany keeps a server busy with short sentences.
    The result is the share of CPU time outside ONNX Runtime.

    Engines have one thread and search greedily. Servers and the bare engine run on --server-cpus, clients on
    --generator-cpus. Writes service.md and service.json. Takes minutes on an otherwise idle machine.
    """

    def cli_cmd(self) -> None:
        """Measures, prints and writes the results."""
        files = ReportFiles("service", self.out, self.document)
        failures = (BusyServerError, GeneratorLostError, LoneClientError, ServerProcessError, ServiceError)
        with reporting("service", [files], *failures):
            bundle = Bundle.open(self.bundle)
            sentences = read_sentences(bundle, self.data, self.max_target_ratio)
            texts = sentences.short(self.words)
            with (
                TemporaryDirectory(prefix="dragoman-") as folder,
                running_on(self.generator_cpus),
                tqdm(total=self.rounds * (1 + len(INTERFACES)), unit=" turns", disable=None) as progress,
            ):
                measurement = _Measurement(self, sentences, Path(folder), progress.update)
                overhead = measurement.overhead()
                busy = asyncio.run(measurement.busy(texts))
            manifest, engines = bundle.manifest, len(self.server_cpus)
            result = ServiceResult(manifest.name, str(sentences.direction), manifest.precision, engines, overhead, busy)
            table = format_service(result)
            print(table)
            cpus = f"CPUs of the server: {engines}, of the clients: {len(self.generator_cpus)}"
            provenance = Provenance.now(command_line("bench service", self, positional="bundle"), LIBRARIES, cpus)
            files.write(table, {"settings": self.model_dump(mode="json"), **asdict(result)}, provenance)


# Fill connections, caches and memory of both engines.
WARM_UP_SENTENCES = 20
_PERCENTS = (25, 50, 75)


def measure_overhead(
    clients: Mapping[Way, LoneClient],
    sentences: Sequence[ServiceSentence],
    rounds: int,
    advance: Callable[[], object],
    clock: Callable[[], int] = time.perf_counter_ns,
) -> OverheadResult:
    """Measures the cost of every way to the model; the first client is the bare engine, the clock has nanoseconds.

    Raises:
        LoneClientError: if a sentence is not translated, or differently than by the bare engine.
        ServiceError: if the bare engine fails.
    """
    ways = list(clients)
    for sentence in sentences[:WARM_UP_SENTENCES]:
        _ask_all(clients, ways, sentence, clock)
    taken_ms: dict[Way, NDArray[np.float64]] = {way: np.zeros((rounds, len(sentences))) for way in ways}
    for number in range(rounds):
        for place, sentence in enumerate(sentences):
            for way, milliseconds in _ask_all(clients, in_turn(ways, number + place), sentence, clock).items():
                taken_ms[way][number, place] = milliseconds
        advance()
    return OverheadResult(len(sentences), rounds, [_result(way, taken_ms[way], taken_ms[ENGINE]) for way in ways])


def _ask_all(
    clients: Mapping[Way, LoneClient], order: Sequence[Way], sentence: ServiceSentence, clock: Callable[[], int]
) -> dict[Way, float]:
    """Returns the milliseconds of every way for one sentence."""
    taken_ms, answers = {}, {}
    for way in order:
        started_ns = clock()
        answers[way] = clients[way](sentence)
        taken_ms[way] = (clock() - started_ns) / 1e6
    expected = answers[ENGINE]()
    for way, answer in answers.items():
        if answer() != expected:
            raise LoneClientError(f"{way}: {sentence.text}: {answer()}: expected {expected}, as the bare engine")
    return taken_ms


def _result(way: Way, taken_ms: NDArray[np.float64], engine_ms: NDArray[np.float64]) -> WayResult:
    """Summarizes one way; both arrays are float64 [rounds, sentences]."""
    over_ms = taken_ms - engine_ms
    compared = way != ENGINE
    return WayResult(
        way,
        _quartiles(taken_ms),
        _quartiles(over_ms) if compared else None,
        np.median(over_ms, axis=1).tolist() if compared else [],
    )


def _quartiles(values: NDArray[np.float64]) -> Quartiles:
    return Quartiles(*np.percentile(values, _PERCENTS).tolist())


@dataclass(frozen=True, slots=True)
class _Measurement:
    options: ServiceOptions
    sentences: ServiceSentences
    workshop: Path
    advance: Callable[[], object]

    def overhead(self) -> OverheadResult:
        """Measures one client; server and bare engine have one engine each."""
        options = self.options
        request = LoadRequest((), languages=self.sentences.languages, options=options.search_options.given())
        http_port, grpc_port = choose_ports(0, 0)
        command = [*server_command(options.bundle, http_port, grpc_port), *self._engines(1)]
        with ExitStack() as stack:
            stack.enter_context(self._serve(command, http_port))
            with running_on(options.server_cpus):  # the engine's thread inherits these CPUs
                engine = stack.enter_context(engine_client(options.bundle, options.slots, self.sentences.tokenizer))
            grpc = stack.enter_context(grpc_client(f"{HOST}:{grpc_port}", request))
            rest = stack.enter_context(rest_client(HOST, http_port, request))
            clients: dict[Way, LoneClient] = {"engine": engine, "gRPC": grpc, "REST": rest}
            sentences = self.sentences.sentences[: options.sentences]
            return measure_overhead(clients, sentences, options.rounds, self.advance)

    async def busy(self, texts: Sequence[str]) -> BusyResult:
        """Measures a busy server with one engine per CPU."""
        options = self.options
        with socket.create_server((HOST, 0)) as other:  # reserves a third port
            watch_port = other.getsockname()[1]
            http_port, grpc_port = choose_ports(0, 0)
        command = server_command(options.bundle, http_port, grpc_port, WATCHED_SERVER)
        command += [*self._engines(len(options.server_cpus)), "--watch-port", str(watch_port)]
        targets = Targets(f"{HOST}:{grpc_port}", f"http://{HOST}:{http_port}", connections=1)
        watch_url = f"http://{HOST}:{watch_port}/metrics"
        with self._serve(command, http_port):
            async with BusyServer.open(options, targets, watch_url, texts, self.sentences.languages) as server:
                turns = await take_turns(INTERFACES, options.rounds, server.take_turn, self.advance)
        return BusyResult(options.clients, len(texts), options.words, turns)

    def _engines(self, count: int) -> list[str]:
        return ["--engines", str(count), "--threads-per-engine", "1", "--slots", str(self.options.slots)]

    @contextmanager
    def _serve(self, command: list[str], http_port: int) -> Iterator[None]:
        """Runs a server on its CPUs until the block ends."""
        with ExitStack() as stack:
            with running_on(self.options.server_cpus):
                process = ServerProcess.run(command, http_port, self.workshop / "server.log")
                server = stack.enter_context(process)
            server.wait_until_ready(START_SECONDS)
            yield
