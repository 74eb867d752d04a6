"""Servers of a bundle under measurement: their sentences, their processes, and clients that keep them busy.

The clients are a closed loop: it measures the throughput of that many clients, not latency under load.
"""

import asyncio
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from pydantic import Field

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.plan import BenchmarkPlan, Cpus
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Figures
from benchmarks.systems.translating import SourceSentence
from dragoman.export.source_model import find_direction
from dragoman.loadtest.clients import OK
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.measurement import Run, measure
from dragoman.loadtest.plan import draw_plan
from dragoman.loadtest.protocols import PROTOCOLS
from dragoman.loadtest.reliability.replicas import START_SECONDS, Command, ServedProcess, start_replicas
from dragoman.loadtest.scenario import ConstantPhase, RequestKind, Scenario, SearchOptions
from dragoman.loadtest.server_metrics import MetricsReader, ServerState, rows_per_step
from dragoman.model.data.corpus import read_corpus
from dragoman.model.errors import CorpusError
from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.host.server_process import server_command
from dragoman.serve.translation.segments import split_text

Interface = Literal["grpc", "rest", "grpc-many"]
MEBIBYTE = 1 << 20
GREEDY = SearchOptions()
# The native loop names its threads so.
ENGINE_THREAD = "dragoman-engine"
SEED = 1
# Upper bound; the clients normally go on until they are stopped.
MAX_SECONDS = 600.0
# A client that has sent this many sentences starts again with the first.
SENTENCES_OF_A_CLIENT = 20
# A saturated server on few CPUs answers /metrics late, and a timeout would end the measurement.
STATE_TIMEOUT_SECONDS = 60.0


class BusyPlan(BenchmarkPlan):
    """The parameters of a benchmark of servers with closed-loop clients."""

    server_cpus: Cpus = Field((0,), description="CPUs of every server")
    generator_cpus: Cpus = Field((1,), description="CPUs of the clients")
    processes: int = Field(1, ge=1, description="processes of the clients")
    bundle: Path = Field(description="bundle to serve")
    data: str | None = Field(
        None, description="test data as in `dragoman evaluate`; null: the golden sentences of the bundle"
    )
    clients: int = Field(64, ge=1, description="closed-loop clients that keep the servers busy")
    seconds: float = Field(6.0, gt=0, description="measured part of a turn")
    warm_up_seconds: float = Field(2.0, gt=0, description="warm-up before the measured part of a turn")

    @property
    def cpus(self) -> str:
        """The numbers of CPUs, for the report."""
        return f"CPUs of the servers: {len(set(self.server_cpus))}, of the clients: {len(set(self.generator_cpus))}"


class ServedSentence(NamedTuple):
    """A sentence that a server translates as one sequence, as text and as tokens with limits."""

    text: str
    source: SourceSentence


@dataclass(frozen=True, slots=True)
class ServedSentences:
    """At least one sentence of a direction, with the tokenizer of the bundle."""

    direction: BundleDirection
    sentences: Sequence[ServedSentence]
    tokenizer: TextTokenizer


def read_sentences(bundle: Bundle, data: str | None) -> ServedSentences:
    """Returns sentences that no server segments; without data, golden sentences in the direction of the first one."""
    manifest = bundle.manifest
    if data is None:
        languages = bundle.golden[0].languages
        direction = find_direction(manifest, languages)
        texts = [sentence.source for sentence in bundle.golden if sentence.languages == languages]
    else:
        corpus = read_corpus(data, "test")
        direction, texts = find_direction(manifest, corpus.languages), corpus.sources
    tokenizer = load_tokenizer(bundle)
    sentences = []
    for text in texts:
        source_ids = (*direction.source_prefix, *tokenizer.encode(text), *manifest.source_suffix)
        plain = split_text(text, direction.source, lambda _: True, len(text)).plain
        if plain and len(source_ids) <= manifest.max_source_tokens:
            sentences.append(ServedSentence(text, SourceSentence(source_ids, 0, manifest.max_target_tokens)))
    if not sentences:
        raise CorpusError(f"data: {data}: expected sentences within the model's limits")
    return ServedSentences(direction, sentences, tokenizer)


@contextmanager
def serving(command: Command, cpus: Collection[int]) -> Iterator[ServedProcess]:
    """Runs a server on some CPUs until the block ends, which begins when it is ready.

    `command` maps the HTTP and gRPC ports of the server to its command line.
    """
    with TemporaryDirectory(prefix="dragoman-") as folder, ExitStack() as stack:
        with running_on(cpus):
            (server,) = stack.enter_context(start_replicas(command, Path(folder), 1))
        server.wait_until_ready(START_SECONDS)
        yield server


def request_kind(
    protocol: str, direction: BundleDirection, options: SearchOptions = GREEDY, texts: int = 1
) -> RequestKind:
    """Returns the requests of a protocol for one direction, with a number of texts each."""
    languages = {"source_language": direction.source, "target_language": direction.target}
    return RequestKind(protocol=protocol, options=options, texts={texts: 1.0}, **languages)


def command_of(bundle: Path, engines: int, slots: int, within: Sequence[str] = (), **settings: int) -> Command:
    """Returns the command line of a server with some engines of one thread each; `within`: a command that runs it."""
    settings |= {"engines": engines, "threads_per_engine": 1, "slots": slots}
    return lambda ports: [*within, *server_command(bundle.resolve(), *ports, **settings)]


def engine_seconds(process_id: int) -> float:
    """Returns the CPU time of the threads of native engines in a process (Linux)."""
    ticks = 0
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            name, _, fields = (thread / "stat").read_text(encoding="ascii").partition("(")[2].rpartition(")")
            if name == ENGINE_THREAD:
                ticks += sum(map(int, fields.split()[11:13]))  # utime and stime
    return ticks / os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """Counters of a server at a monotonic time: answered texts, metrics, and CPU seconds of the engines."""

    seconds: float
    answered: int
    state: ServerState
    engine_seconds: float


@dataclass(frozen=True, slots=True)
class BusyClients:
    """Clients that send some of the sentences per request."""

    plan: BusyPlan
    sentences: ServedSentences
    server: ServedProcess

    def measure_busy(self, interface: Interface, texts: int = 1) -> Figures:
        """Keeps the server busy over one interface. Each client sends its next request when it has its answer.

        With several texts per request, there are fewer clients, but at least two.
        """
        return asyncio.run(self._measure_busy(interface, texts))

    async def _measure_busy(self, interface: Interface, texts: int) -> Figures:
        plan, readings = self.plan, list[Reading]()
        users = plan.clients if texts == 1 else max(2, plan.clients // texts)
        kind = request_kind(interface, self.sentences.direction, texts=texts)
        # A closed loop ignores the rate. It only determines how many requests there are.
        phase = ConstantPhase(rate=users * SENTENCES_OF_A_CLIENT / MAX_SECONDS, duration_seconds=MAX_SECONDS)
        scenario = Scenario(warm_up_seconds=0, requests=(kind,), phases=(phase,))
        requests = draw_plan(scenario, [sentence.text for sentence in self.sentences.sentences], SEED)
        targets = replace(self.server.targets, connections=1)
        async with (
            MetricsReader.open(targets) as metrics,
            Generators.run(plan.processes, targets, {interface}, plan.generator_cpus) as generators,
        ):

            async def read() -> None:
                state = await metrics.read(STATE_TIMEOUT_SECONDS)
                if state is None:
                    raise BenchmarkError("/metrics: expected the server's metrics, got none")
                answered = texts * state.requests.get(f"{PROTOCOLS[interface].interface} ok", 0)
                seconds = engine_seconds(self.server.process_id)
                readings.append(Reading(time.monotonic(), answered, state, seconds))

            async def watch(run: Run) -> None:
                """Reads the counters at both ends of the measured time, while the clients go on."""
                await asyncio.sleep(plan.warm_up_seconds - run.now_seconds)
                await read()
                first = readings[-1].answered
                while readings[-1].answered == first:
                    if run.now_seconds > MAX_SECONDS:
                        raise BenchmarkError("no request was answered in the measured time")
                    await asyncio.sleep(plan.seconds)
                    await read()
                generators.halt()

            await read()
            samples = (await measure(generators, requests, users=users, disturb=watch)).samples
            await read()
        before, first, *_, last, after = readings
        return {
            **figures_between(first, last),
            "failed requests": sum(samples.errors.values()),
            # Only the server or only the clients count them as answered, warm-up included.
            "uncounted requests": abs((after.answered - before.answered) / texts - samples.outcomes[OK]),
        }


def figures_between(first: Reading, last: Reading) -> Figures:
    """Returns throughput and CPU time between two readings."""
    sentences = last.answered - first.answered
    seconds, cpu_seconds = last.seconds - first.seconds, last.state.cpu_seconds - first.state.cpu_seconds
    return {
        "sentences/s": sentences / seconds,
        "rows of a decoder step": rows_per_step(first.state, last.state) or 0.0,
        "CPU of a sentence, ms": 1000 * cpu_seconds / sentences,
        "CPUs used": cpu_seconds / seconds,
        "CPU in engines, %": 100 * (last.engine_seconds - first.engine_seconds) / cpu_seconds,
        "resident memory, MiB": last.state.resident_bytes / MEBIBYTE,
    }
