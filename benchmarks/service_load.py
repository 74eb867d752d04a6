"""The options of `dragoman bench service`, its sentences, a client that sends one at a time, and many that keep busy.

A lone client keeps one connection and returns once it has the whole response, which is parsed later, outside the timed
part. The many clients are those of `loadtest.closed_loop`, in their own processes.
"""

import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Self

import grpc
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from benchmarks.harness.rounds import Cpus
from benchmarks.service_results import BusyTurn, CpuTimes, Interface, read_cpu_times
from benchmarks.systems.engine import EngineTranslator
from benchmarks.systems.translating import Batching, SourceSentence
from loadtest.clients import OK, TRANSLATE_PATH, Targets, body_of, message_of
from loadtest.closed_loop import BusyTime, ClosedLoop, read_state
from loadtest.generator import Generators
from loadtest.plan import Plan
from loadtest.scenario import Languages, LoadProtocol, LoadRequest, RequestKind
from loadtest.scenario import SearchOptions as RequestOptions
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step
from model.data.corpus import CorpusError, read_corpus
from model.tokenizer.tokenizer import TextTokenizer
from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import BundleDirection
from serve.bundle.tokenizer import load_tokenizer
from serve.search.options import SearchOptions
from serve.translation.fields import TargetRatio
from serve.translation.request import SearchPlan
from serve.translation.segments import SegmentedText


class ServiceOptions(BaseSettings):
    """All options."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_SERVICE_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="bundle to serve")
    out: Path = Field(description="folder for service.md and service.json")
    document: Path | None = Field(None, description="Markdown file; the tables replace its <!-- service --> section")
    data: str | None = Field(
        None, description="test data as in `dragoman evaluate`; default: the bundle's golden sentences"
    )
    max_target_ratio: TargetRatio | None = Field(
        None, description="maximum target tokens per source token; default: the model's limit"
    )
    sentences: int = Field(100, ge=1, description="maximum number of sentences for one client")
    words: int = Field(8, ge=1, description="maximum words of a sentence for many clients")
    clients: int = Field(64, ge=1, description="closed-loop clients that keep the server busy")
    rounds: int = Field(5, ge=1, description="turns of each interface")
    seconds: float = Field(6.0, gt=0, description="measured part of a turn with many clients")
    warm_up_seconds: float = Field(2.0, gt=0, description="warm-up before the measured part of a turn")
    slots: int = Field(32, ge=1, description="rows of each engine")
    server_cpus: Cpus = Field((0,), min_length=1, description="CPUs of the server, with one engine each")
    generator_cpus: Cpus = Field((1,), min_length=1, description="CPUs of the clients")
    processes: int = Field(1, ge=1, description="processes of the many clients, with one gRPC connection each")

    @property
    def search_options(self) -> RequestOptions:
        """Greedy search."""
        return RequestOptions(max_target_ratio=self.max_target_ratio)


@dataclass(frozen=True, slots=True)
class ServiceSentence:
    """A sentence that the server translates as one sequence, as text and as tokens with limits."""

    text: str
    source: SourceSentence


@dataclass(frozen=True, slots=True)
class ServiceSentences:
    """At least one sentence to translate, with the tokenizer of the bundle."""

    direction: BundleDirection
    sentences: Sequence[ServiceSentence]
    tokenizer: TextTokenizer

    @property
    def languages(self) -> Languages:
        """The direction as clients name it."""
        return Languages(self.direction.source, self.direction.target)

    def short(self, words: int) -> list[str]:
        """Returns the texts of at most `words` words.

        Raises:
            CorpusError: if there are none.
        """
        texts = [each.text for each in self.sentences if len(each.text.split()) <= words]
        if not texts:
            raise CorpusError(f"words: {words}: expected more words or other data: no sentence is as short")
        return texts


def read_sentences(bundle: Bundle, data: str | None, max_target_ratio: float | None = None) -> ServiceSentences:
    """Returns sentences without texts that a server would segment.

    Without data, they are the golden sentences of the first direction. `max_target_ratio` limits the target tokens per
    source token.

    Raises:
        CorpusError: if the data is unreadable, or the bundle does not translate its direction.
        TokenizerError: if the tokenizer of the bundle is invalid.
    """
    direction, texts = _golden(bundle) if data is None else _test_set(bundle, data)
    tokenizer = load_tokenizer(bundle)
    # The limits that the server applies.
    plan = SearchPlan(SearchOptions(max_target_tokens=bundle.manifest.max_target_tokens), max_target_ratio)
    sentences = [
        ServiceSentence(
            text, SourceSentence(source_ids, 0, plan.options_for(len(source_ids), (), "").max_target_tokens)
        )
        for text, source_ids in _sources(bundle, direction, tokenizer, texts)
    ]
    if not sentences:
        raise CorpusError(f"data: {data}: expected sentences within the model's limits")
    return ServiceSentences(direction, sentences, tokenizer)


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
    known = ", ".join(map(str, bundle.manifest.directions))
    raise CorpusError(f"data: {data}: {'-'.join(corpus.languages)}: expected a direction of the bundle: {known}")


def _sources(
    bundle: Bundle, direction: BundleDirection, tokenizer: TextTokenizer, texts: Iterable[str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields each text that a server translates as one sentence, with its tokens."""
    manifest = bundle.manifest
    for text in texts:
        source_ids = (*direction.source_prefix, *tokenizer.encode(text), *manifest.source_suffix)
        if (
            SegmentedText.of(text, direction.source, lambda _: True).plain
            and len(source_ids) <= manifest.max_source_tokens
        ):
            yield text, source_ids


TIMEOUT_SECONDS = 30.0
_ALONE = Batching(1, "examples")

# Parses the response and returns the translation.
Answer = Callable[[], str]


class LoneClientError(Exception):
    """A sentence was not translated; the message has the response."""


# Sends one sentence and waits for the whole response. Raises `LoneClientError` if the translation fails.
LoneClient = Callable[[ServiceSentence], Answer]


@contextmanager
def engine_client(bundle: Path, slots: int, tokenizer: TextTokenizer) -> Iterator[LoneClient]:
    """Runs an engine with one thread until the block ends; its failure is a `ServiceError`."""
    with closing(EngineTranslator(str(bundle), copies=1, threads=1, slots=slots)) as engine:

        def ask(sentence: ServiceSentence) -> Answer:
            (target_ids,) = engine.translate([sentence.source], 1, _ALONE)
            return lambda: tokenizer.decode(target_ids)

        yield ask


@contextmanager
def grpc_client(target: str, request: LoadRequest) -> Iterator[LoneClient]:
    """Keeps a gRPC channel to a server until the block ends; every request has the options of `request`."""
    with grpc.insecure_channel(target) as channel:
        stub, options = TranslationServiceStub(channel), message_of(request)

        def ask(sentence: ServiceSentence) -> Answer:
            message = TranslateRequest(text=[sentence.text])
            message.MergeFrom(options)
            try:
                response = stub.Translate(message, timeout=TIMEOUT_SECONDS)
            except grpc.RpcError as error:
                raise LoneClientError(f"gRPC: {sentence.text}: {error}") from error
            return lambda: response.translations[0].text

        yield ask


@contextmanager
def rest_client(host: str, port: int, request: LoadRequest) -> Iterator[LoneClient]:
    """Keeps an HTTP connection to a server until the block ends; every request has the options of `request`."""
    with closing(http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)) as connection:
        options = body_of(request)

        def ask(sentence: ServiceSentence) -> Answer:
            body = json.dumps({**options, "text": sentence.text})
            try:
                connection.request("POST", TRANSLATE_PATH, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise LoneClientError(f"REST: {sentence.text}: {error}") from error
            if response.status != HTTPStatus.OK:
                raise LoneClientError(f"REST: {sentence.text}: {response.status}: {content.decode(errors='replace')}")
            return lambda: str(json.loads(content)["translations"][0]["text"])

        yield ask


_PROTOCOLS: dict[Interface, LoadProtocol] = {"gRPC": "grpc", "REST": "rest", "TranslateMany": "grpc-many"}
# Keys of the server's request counter.
_REQUESTS: dict[Interface, str] = {
    "gRPC": "grpc translate ok",
    "REST": "rest translate ok",
    "TranslateMany": "grpc translate_many ok",
}


@dataclass(frozen=True, slots=True)
class _Reading:
    """The counters of the server; `seconds` is the monotonic clock."""

    seconds: float
    state: ServerState
    cpu: CpuTimes


@dataclass(frozen=True, slots=True)
class BusyServer:
    """A server with its clients."""

    loop: ClosedLoop
    plans: dict[Interface, Plan]
    generators: Generators
    metrics: MetricsReader
    watch_url: str

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: ServiceOptions, targets: Targets, watch_url: str, texts: Sequence[str], languages: Languages
    ) -> AsyncIterator[Self]:
        """Starts clients that send one of the texts per request, and stops them when the block ends."""
        loop = ClosedLoop(options.clients, options.warm_up_seconds, options.seconds)
        asked = {**asdict(languages), "options": options.search_options}
        plans = {
            interface: loop.plan(RequestKind(protocol=protocol, **asked), texts)
            for interface, protocol in _PROTOCOLS.items()
        }
        async with (
            MetricsReader.open(targets) as metrics,
            Generators.run(options.processes, targets, set(_PROTOCOLS.values()), options.generator_cpus) as generators,
        ):
            yield cls(loop, plans, generators, metrics, watch_url)

    async def take_turn(self, interface: Interface) -> BusyTurn:
        """Keeps the server busy over one interface.

        Raises:
            BusyServerError: if the server exposes no metrics, or is idle.
            GeneratorLostError: if a client process ends.
        """
        requests = _REQUESTS[interface]

        def worked(first: _Reading, last: _Reading) -> bool:
            return _requests(first.state, last.state, requests) > 0 and last.cpu.runs > first.cpu.runs

        before = await read_state(self.metrics)
        busy = await self.loop.keep_busy(self.generators, self.plans[interface], self._read, worked)
        return _turn(busy, requests, _requests(before, await read_state(self.metrics), requests))

    async def _read(self) -> _Reading:
        """Reads the counters, which costs the server some milliseconds."""
        state = await read_state(self.metrics)
        cpu = await asyncio.to_thread(read_cpu_times, self.watch_url)
        return _Reading(time.monotonic(), state, cpu)


def _turn(busy: BusyTime[_Reading], requests: str, served: int) -> BusyTurn:
    record, first, last = busy.record, busy.first, busy.last
    sentences = _requests(first.state, last.state, requests)
    seconds = last.seconds - first.seconds
    return BusyTurn(
        seconds,
        sentences,
        sentences / seconds,
        rows_per_step(first.state, last.state),
        last.cpu.since(first.cpu),
        record.outcomes[OK],
        served,
        record.failed,
    )


def _requests(first: ServerState, last: ServerState, requests: str) -> int:
    """Returns the number of requests answered between two readings."""
    return last.requests.get(requests, 0) - first.requests.get(requests, 0)
