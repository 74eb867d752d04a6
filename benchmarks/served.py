"""Servers of a bundle under measurement: their sentences, their processes, and clients that keep them busy.

The clients are a closed loop: it measures the throughput of that many clients, not latency under load.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from pydantic import Field

from benchmarks.harness.plan import Cpus, Plan
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Figures
from benchmarks.systems.translating import SourceSentence
from loadtest.clients import OK, Targets
from loadtest.closed_loop import ClosedLoop, read_state
from loadtest.generator import Generators
from loadtest.protocols import PROTOCOLS
from loadtest.reliability.replicas import Command, ServedProcess, balanced_by_clients, start_replicas
from loadtest.scenario import RequestKind, SearchOptions
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step, together
from model.data.corpus import CorpusError, read_corpus
from model.tokenizer.tokenizer import TextTokenizer
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import BundleDirection
from serve.bundle.tokenizer import load_tokenizer
from serve.search import options as search
from serve.translation.request import SearchPlan
from serve.translation.segments import SegmentedText


class BusyPlan(Plan):
    """The parameters of a benchmark with closed-loop clients."""

    bundle: Path = Field(description="bundle to serve")
    data: str | None = Field(
        None, description="test data as in `dragoman evaluate`; null: the golden sentences of the bundle"
    )
    clients: int = Field(64, ge=1, description="closed-loop clients that keep the servers busy")
    processes: int = Field(1, ge=1, description="processes of the clients")
    seconds: float = Field(6.0, gt=0, description="measured part of a turn")
    warm_up_seconds: float = Field(2.0, gt=0, description="warm-up before the measured part of a turn")
    server_cpus: Cpus = Field((0,), description="CPUs of the servers, with one engine thread each")
    generator_cpus: Cpus = Field((1,), description="CPUs of the clients")


@dataclass(frozen=True, slots=True)
class ServedSentence:
    """A sentence that a server translates as one sequence, as text and as tokens with limits."""

    text: str
    source: SourceSentence


@dataclass(frozen=True, slots=True)
class ServedSentences:
    """At least one sentence of a direction, with the tokenizer of the bundle."""

    direction: BundleDirection
    sentences: Sequence[ServedSentence]
    tokenizer: TextTokenizer


def read_sentences(bundle: Bundle, data: str | None, max_target_ratio: float | None = None) -> ServedSentences:
    """Returns sentences without texts that a server would segment.

    Without data, they are the golden sentences of the first direction. `max_target_ratio` limits the target tokens per
    source token.

    Raises:
        CorpusError: if the data is unreadable, or the bundle does not translate its direction.
        TokenizerError: if the tokenizer of the bundle is invalid.
    """
    manifest = bundle.manifest
    direction, texts = _golden(bundle) if data is None else _test_set(bundle, data)
    tokenizer = load_tokenizer(bundle)
    # The limits that the server applies.
    plan = SearchPlan(search.SearchOptions(max_target_tokens=manifest.max_target_tokens), max_target_ratio)
    sentences = []
    for text in texts:
        source_ids = (*direction.source_prefix, *tokenizer.encode(text), *manifest.source_suffix)
        plain = SegmentedText.of(text, direction.source, lambda _: True, len(text)).plain
        if plain and len(source_ids) <= manifest.max_source_tokens:
            longest = plan.options_for(len(source_ids), (), "").max_target_tokens
            sentences.append(ServedSentence(text, SourceSentence(source_ids, 0, longest)))
    if not sentences:
        raise CorpusError(f"data: {data}: expected sentences within the model's limits")
    return ServedSentences(direction, sentences, tokenizer)


def _golden(bundle: Bundle) -> tuple[BundleDirection, list[str]]:
    direction = bundle.manifest.directions[0]
    languages = (direction.source, direction.target)
    golden = [each.source for each in bundle.golden if (each.source_language, each.target_language) == languages]
    return direction, golden


def _test_set(bundle: Bundle, data: str) -> tuple[BundleDirection, list[str]]:
    corpus = read_corpus(data, "test")
    for direction in bundle.manifest.directions:
        if (direction.source, direction.target) == corpus.languages:
            return direction, corpus.sources
    expected = ", ".join(map(str, bundle.manifest.directions))
    raise CorpusError(f"data: {data}: {'-'.join(corpus.languages)}: expected a direction of the bundle: {expected}")


@asynccontextmanager
async def serving(command: Command, cpus: Collection[int], count: int = 1) -> AsyncIterator[tuple[ServedProcess, ...]]:
    """Runs servers on some CPUs until the block ends, which begins when all are ready.

    `command` maps the HTTP and gRPC ports of a server to its command line.

    Raises:
        AffinityError: if a CPU is not available.
        ServerProcessError: if a server does not become ready.
    """
    with TemporaryDirectory(prefix="dragoman-") as folder, ExitStack() as stack:
        with running_on(cpus):
            servers = stack.enter_context(start_replicas(command, Path(folder), count))
        await balanced_by_clients(servers).wait_ready()
        yield servers


def engine_options(engines: int, slots: int) -> list[str]:
    """Returns the options of a server with some engines of one thread and of so many slots each."""
    return ["--engines", str(engines), "--threads-per-engine", "1", "--slots", str(slots)]


Interface = Literal["grpc", "rest", "grpc-many"]
# CPU seconds of parts of a server, by name.
Parts = Mapping[str, float]


class _Reading(NamedTuple):
    """Counters at one time: seconds of the monotonic clock, answered requests by server, sum of all servers."""

    seconds: float
    answered: Sequence[int]
    state: ServerState
    parts: Parts


MEBIBYTE = 1 << 20
GREEDY = SearchOptions()


@dataclass(frozen=True, slots=True)
class BusyClients:
    """Clients that send one of the sentences per request.

    Attributes:
        targets: addresses of all servers.
        servers: the addresses of each server.
        read_parts: reads the CPU times of parts of a single server.
    """

    plan: BusyPlan
    sentences: ServedSentences
    targets: Targets
    servers: Sequence[Targets]
    options: SearchOptions = GREEDY
    read_parts: Callable[[], Parts] = dict

    async def take_turn(self, interface: Interface) -> Figures:
        """Keeps the servers busy over one interface.

        Raises:
            BusyServerError: if a server exposes no metrics, or all are idle.
            GeneratorLostError: if a client process ends.
        """
        plan, direction = self.plan, self.sentences.direction
        loop = ClosedLoop(plan.clients, plan.warm_up_seconds, plan.seconds)
        kind = RequestKind(
            protocol=interface,
            source_language=direction.source,
            target_language=direction.target,
            options=self.options,
        )
        counter = f"{PROTOCOLS[interface].interface} ok"
        requests = loop.plan(kind, [each.text for each in self.sentences.sentences])
        async with AsyncExitStack() as stack:
            metrics = [await stack.enter_async_context(MetricsReader.open(server)) for server in self.servers]
            generators = await stack.enter_async_context(
                Generators.run(plan.processes, self.targets, {interface}, plan.generator_cpus)
            )

            async def read() -> _Reading:
                states = await asyncio.gather(*map(read_state, metrics))
                answered = [state.requests.get(counter, 0) for state in states]
                return _Reading(time.monotonic(), answered, together(states), self.read_parts())

            before = await read()
            busy = await loop.keep_busy(
                generators, requests, read, lambda first, last: sum(last.answered) > sum(first.answered)
            )
            served = sum((await read()).answered) - sum(before.answered)
        return {
            **_figures(busy.first, busy.last),
            "failed requests": sum(busy.samples.errors.values()),
            # Only the servers or only the clients count them as answered, warm-up included.
            "uncounted requests": abs(served - busy.samples.outcomes[OK]),
        }


def _figures(first: _Reading, last: _Reading) -> Figures:
    """Returns throughput and CPU time between two readings. Every request has one sentence."""
    sentences = [late - early for early, late in zip(first.answered, last.answered, strict=True)]
    seconds, cpu_seconds = last.seconds - first.seconds, last.state.cpu_seconds - first.state.cpu_seconds
    return {
        "sentences/s": sum(sentences) / seconds,
        **({"least asked server, %": 100 * min(sentences) / sum(sentences)} if len(sentences) > 1 else {}),
        "rows of a decoder step": rows_per_step(first.state, last.state) or 0.0,
        "CPU of a sentence, ms": 1000 * cpu_seconds / sum(sentences),
        "CPUs used": cpu_seconds / seconds,
        **{f"CPU in {part}, %": 100 * (last.parts[part] - first.parts[part]) / cpu_seconds for part in first.parts},
        "resident memory, MiB": last.state.resident_bytes / MEBIBYTE,
    }
