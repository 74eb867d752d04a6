"""What `dragoman bench service` does with its options: one client, then many, and tables of what they found.

Called by `benchmarks.bench_service`.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from benchmarks.harness.affinity import AffinityError, running_on
from benchmarks.lone_clients import EngineClient, GrpcLoneClient, LoneClient, LoneClientError, RestLoneClient
from benchmarks.overhead import measure_overhead
from benchmarks.service_load import BusyAddress, BusyServer, measure_busy
from benchmarks.service_options import ServiceOptions
from benchmarks.service_results import INTERFACES, BusyResult, OverheadResult, ServiceResult, Way
from benchmarks.service_sentences import ServiceSentences, read_sentences
from benchmarks.service_table import format_service
from loadtest.clients import Targets
from loadtest.closed_loop import BusyServerError
from loadtest.generators import GeneratorLostError
from loadtest.report_files import ReportFileError, ReportFiles
from loadtest.request import LoadRequest
from model.data.corpus import CorpusError
from model.provenance import Provenance, command_line
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError
from serve.errors import ServiceError
from serve.server_process import HOST, ServerProcess, ServerProcessError, choose_ports, server_command

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
