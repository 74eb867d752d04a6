"""What `dragoman bench service` does with its options: one client, then many, and tables of what they found.

Called by `benchmarks.service`.

`dragoman bench service`: what tokenizer, interfaces and the rest of the service cost beside the model itself.

Knows the options alone: what needs libraries is imported when the command runs, so that their lack can be explained.

What one client waits for beside the engine: the same sentences, one at a time, by every way in turn.

The difference of two ways is taken sentence by sentence, within milliseconds of each other, so that what else the
machine does hits both alike. Every sentence begins with another way. Called by `benchmarks.service`.

Counts the CPU time of runs of ONNX Runtime, and that of the threads in which they happen.

A run of a session with one thread computes in the thread that asks for it, so that thread's CPU clock tells what the
run cost, however often the thread had to wait. Knows no sessions; `benchmarks.watched_server` puts it around
them.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.cpu_times import CpuTimes
from benchmarks.harness.rounds import AffinityError, in_turn, missing_library, running_on
from benchmarks.service_load import (
    BusyAddress,
    BusyServer,
    EngineClient,
    GrpcLoneClient,
    LoneClient,
    LoneClientError,
    RestLoneClient,
    ServiceSentence,
    ServiceSentences,
    measure_busy,
    read_sentences,
)
from benchmarks.service_options import ServiceOptions
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
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.scenario import LoadRequest
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError
from serve.errors import ServiceError
from serve.server_process import HOST, ServerProcess, ServerProcessError, choose_ports, server_command

EXTRAS = {"onnxruntime": "cpu", "aiohttp": "bench", "hdrh": "bench"}


class BenchServiceCommand(ServiceOptions):
    """Measures what the service costs over its bare engine, in two ways.

    One client: every sentence is asked of the bare engine (scheduler, engine and runtime in this process, from token
    ids to token ids), of a server over gRPC and of the same server over REST, in turn; what counts is the difference of
    the times of one sentence. Many clients: a closed loop over gRPC, REST and TranslateMany keeps a server busy with
    short sentences; what counts is the share of its CPU time that is spent in runs of ONNX Runtime.

    All engines have one thread and search greedily. Servers and the bare engine run on --server-cpus, clients on
    --generator-cpus. Writes service.md and service.json into a folder. Run it on a quiet machine; it takes minutes.
    """

    def cli_cmd(self) -> None:
        """Measures; prints and writes the tables."""
        problem = missing_library(EXTRAS)
        if problem is not None:
            raise SystemExit(f"dragoman bench service: {problem}")

        benchmark(self)


# Connections, caches and the memory of both engines are as they stay; answers are compared meanwhile.
WARM_UP_SENTENCES = 20
_PERCENTS = (25, 50, 75)


def measure_overhead(
    clients: Mapping[Way, LoneClient],
    sentences: Sequence[ServiceSentence],
    rounds: int,
    advance: Callable[[], object],
    clock: Callable[[], int] = time.perf_counter_ns,
) -> OverheadResult:
    """Returns what every way costs.

    Args:
        clients: one for each way, that of the bare engine first.
        sentences: what is asked for.
        rounds: how often.
        advance: is called after each of them.
        clock: the time in nanoseconds.

    Raises:
        LoneClientError: if a sentence is not translated, or otherwise than by the bare engine.
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
    """Returns how long every way took for a sentence, in milliseconds."""
    taken_ms, answers = {}, {}
    for way in order:
        started_ns = clock()
        answers[way] = clients[way].ask(sentence)
        taken_ms[way] = (clock() - started_ns) / 1e6
    expected = answers[ENGINE]()
    for way, answer in answers.items():
        if answer() != expected:
            raise LoneClientError(f"{way}: {sentence.text}: {answer()}: expected as the bare engine says: {expected}")
    return taken_ms


def _result(way: Way, taken_ms: NDArray[np.float64], engine_ms: NDArray[np.float64]) -> WayResult:
    """Returns what was found of a way, of float64 [rounds, sentences]."""
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


@dataclass(slots=True)
class _Thread:
    """What is known of a thread, which alone changes it."""

    runs_ns: int = 0
    until_last_run_ns: int = 0


class RunClock:
    """Two numbers for each thread, however long it runs."""

    def __init__(self) -> None:
        """Begins with no run."""
        self._threads: dict[int, _Thread] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:  # noqa: ARG002 - it does not matter which graph runs
        """Counts the CPU time of the block; that takes 4 microseconds of the thread's time, outside the block."""
        started_ns = time.thread_time_ns()
        try:
            yield
        finally:
            ended_ns = time.thread_time_ns()
            thread = self._threads.setdefault(threading.get_ident(), _Thread())
            thread.runs_ns += ended_ns - started_ns
            thread.until_last_run_ns = ended_ns

    def read(self) -> CpuTimes:
        """Returns the CPU times of this process until now. May be called from any thread."""
        threads = list(self._threads.values())
        return CpuTimes(
            time.process_time_ns() / 1e9,
            sum(each.until_last_run_ns for each in threads) / 1e9,
            sum(each.runs_ns for each in threads) / 1e9,
        )


LIBRARIES = ("onnxruntime", "grpcio", "uvicorn", "numpy")
WATCHED_SERVER = ("benchmarks.watched_server",)
START_SECONDS = 120.0


def benchmark(options: ServiceOptions) -> None:
    """Measures and leaves the findings.

    Raises:
        SystemExit: naming what was wrong and what was expected.
    """
    try:
        files = ReportFiles("service", options.out, options.document)
        files.prepare()
        bundle = Bundle.open(options.bundle)
        sentences = read_sentences(bundle, options.data, options.max_target_ratio)
        texts = sentences.short(options.words)
        cpus = f"CPUs of the server: {len(options.server_cpus)}, of the clients: {len(options.generator_cpus)}"
        provenance = Provenance.now(command_line("bench service", options, positional="bundle"), LIBRARIES, cpus)
        with (
            TemporaryDirectory(prefix="dragoman-") as folder,
            running_on(options.generator_cpus),
            tqdm(total=options.rounds * (1 + len(INTERFACES)), unit=" turns", disable=None) as progress,
        ):
            measurement = _Measurement(options, sentences, Path(folder), progress.update)
            overhead = measurement.overhead()
            busy = asyncio.run(measurement.busy(texts))
        manifest = bundle.manifest
        engines = len(options.server_cpus)
        result = ServiceResult(manifest.name, str(sentences.direction), manifest.precision, engines, overhead, busy)
        table = format_service(result)
        print(table)
        files.write(table, {"settings": options.model_dump(mode="json"), **asdict(result)}, provenance)
    except (
        AffinityError,
        BundleError,
        BusyServerError,
        CorpusError,
        GeneratorLostError,
        LoneClientError,
        ReportFileError,
        ServerProcessError,
        ServiceError,
        TokenizerError,
    ) as error:
        raise SystemExit(f"dragoman bench service: {error}") from error


class _Measurement:
    def __init__(
        self,
        options: ServiceOptions,
        sentences: ServiceSentences,
        workshop: Path,
        advance: Callable[[], object],
    ) -> None:
        self._options = options
        self._sentences = sentences
        self._workshop = workshop
        self._advance = advance

    def overhead(self) -> OverheadResult:
        """Returns what one client waits for; server and bare engine have one engine each."""
        options = self._options
        request = LoadRequest((), languages=self._sentences.languages, options=options.search_options.given())
        http_port, grpc_port = choose_ports(0, 0)
        command = [*server_command(options.bundle, http_port, grpc_port), *self._engines(1)]
        with ExitStack() as stack:
            stack.enter_context(self._serve(command, http_port))
            with running_on(options.server_cpus):  # where its thread starts, and stays
                engine = stack.enter_context(
                    EngineClient.open(options.bundle, options.slots, self._sentences.tokenizer)
                )
            grpc = stack.enter_context(GrpcLoneClient.open(f"{HOST}:{grpc_port}", request))
            rest = stack.enter_context(RestLoneClient.open(HOST, http_port, request))
            clients: dict[Way, LoneClient] = {"engine": engine, "gRPC": grpc, "REST": rest}
            sentences = self._sentences.sentences[: options.sentences]
            return measure_overhead(clients, sentences, options.rounds, self._advance)

    async def busy(self, texts: Sequence[str]) -> BusyResult:
        """Returns what the server does while many clients keep it busy; it has an engine for each CPU."""
        options = self._options
        with socket.create_server((HOST, 0)) as other:  # holds a port that is not one of the next two
            watch_port = other.getsockname()[1]
            http_port, grpc_port = choose_ports(0, 0)
        command = server_command(options.bundle, http_port, grpc_port, WATCHED_SERVER)
        command += [*self._engines(len(options.server_cpus)), "--watch-port", str(watch_port)]
        targets = Targets(f"{HOST}:{grpc_port}", f"http://{HOST}:{http_port}", connections=1)
        address = BusyAddress(targets, f"http://{HOST}:{watch_port}/metrics")
        with self._serve(command, http_port):
            async with BusyServer.open(options, address, texts, self._sentences.languages) as server:
                return await measure_busy(server, options, texts, self._advance)

    def _engines(self, count: int) -> list[str]:
        return ["--engines", str(count), "--threads-per-engine", "1", "--slots", str(self._options.slots)]

    @contextmanager
    def _serve(self, command: list[str], http_port: int) -> Iterator[None]:
        """Runs a server on its CPUs until the block ends."""
        with ExitStack() as stack:
            with running_on(self._options.server_cpus):
                process = ServerProcess.run(command, http_port, self._workshop / "server.log")
                server = stack.enter_context(process)
            server.wait_until_ready(START_SECONDS)
            yield
