"""A watched server that many clients keep busy, by one interface after the other.

The clients are those of `loadtest.closed_loop`, in processes of their own. Called by
`benchmarks.service`.

What `dragoman bench service` has translated: sentences as text for the server, and as tokens for the bare engine.

Knows bundles and data, no server. `dragoman bench replicas` takes the texts.

One client that asks for one sentence at a time: of the bare engine, over gRPC and over REST.

Each keeps one connection and does as little as it can until it has the whole answer; what the answer says is looked at
later. Knows no clock; called by `benchmarks.service`.
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
from typing import Protocol, Self

import grpc

from benchmarks.cpu_times import CpuTimes, read_cpu_times
from benchmarks.harness.rounds import take_turns
from benchmarks.service_options import ServiceOptions
from benchmarks.service_results import INTERFACES, BusyResult, BusyTurn, Interface
from benchmarks.systems.engine_translator import EngineTranslator
from benchmarks.systems.translating import Batching, SourceSentence
from loadtest.clients import OK, TRANSLATE_PATH, Targets, body_of, message_of
from loadtest.closed_loop import BusyTime, ClosedLoop, read_state
from loadtest.generator import Generators
from loadtest.plan import Plan
from loadtest.scenario import Languages, LoadProtocol, LoadRequest, RequestKind
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step
from model.data.corpus import CorpusError, read_corpus
from model.tokenizer.tokenizer import TextTokenizer
from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import BundleDirection
from serve.bundle.tokenizer import load_tokenizer
from serve.search.options import SearchOptions
from serve.translation.request import SearchPlan
from serve.translation.segments import SegmentedText


@dataclass(frozen=True, slots=True)
class ServiceSentence:
    """A sentence that the server takes for one sequence.

    Attributes:
        text: as clients send it.
        source: the tokens that the server makes of it, and the limits of its translation.
    """

    text: str
    source: SourceSentence


@dataclass(frozen=True, slots=True)
class ServiceSentences:
    """What is translated.

    Attributes:
        direction: from which language into which.
        sentences: at least one.
        tokenizer: of the bundle.
    """

    direction: BundleDirection
    sentences: Sequence[ServiceSentence]
    tokenizer: TextTokenizer

    @property
    def languages(self) -> Languages:
        """The direction as clients name it."""
        return Languages(self.direction.source, self.direction.target)

    def short(self, words: int) -> list[str]:
        """Returns the texts of those with at most so many words.

        Raises:
            CorpusError: if there are none.
        """
        texts = [each.text for each in self.sentences if len(each.text.split()) <= words]
        if not texts:
            raise CorpusError(f"words: {words}: expected more, or other data: no sentence is so short")
        return texts


def read_sentences(bundle: Bundle, data: str | None, max_target_ratio: float | None = None) -> ServiceSentences:
    """Returns the sentences of a bundle or of other data; those that a server would cut into several are left out.

    Args:
        bundle: that translates them.
        data: test data; None: the golden sentences of the bundle's first direction.
        max_target_ratio: the longest translation, times the tokens of its source; None: the model's limit.

    Raises:
        CorpusError: if the data cannot be read, or the bundle does not translate them.
        TokenizerError: if the tokenizer of the bundle is none.
    """
    direction, texts = _golden(bundle) if data is None else _test_set(bundle, data)
    tokenizer = load_tokenizer(bundle)
    # As the server limits translations.
    plan = SearchPlan(SearchOptions(max_target_tokens=bundle.manifest.max_target_tokens), max_target_ratio)
    sentences = [
        ServiceSentence(
            text, SourceSentence(source_ids, 0, plan.options_for(len(source_ids), (), "").max_target_tokens)
        )
        for text, source_ids in _sources(bundle, direction, tokenizer, texts)
    ]
    if not sentences:
        raise CorpusError(f"data: {data}: expected sentences that the model reads")
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
    raise CorpusError(f"data: {data}: {'-'.join(corpus.languages)}: expected what the bundle translates: {known}")


def _sources(
    bundle: Bundle, direction: BundleDirection, tokenizer: TextTokenizer, texts: Iterable[str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the texts that a server takes for one sentence each, and the tokens that it makes of them."""
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

# Tells the text of a translation.
Answer = Callable[[], str]


class LoneClientError(Exception):
    """A sentence was not translated; the message holds what was answered instead."""


class LoneClient(Protocol):
    """Asks for one sentence at a time."""

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns the answer, which is there as a whole.

        Raises:
            LoneClientError: if there is none.
        """


class EngineClient:
    """Has the bare engine translate."""

    def __init__(self, engine: EngineTranslator, tokenizer: TextTokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer

    @classmethod
    @contextmanager
    def open(cls, bundle: Path, slots: int, tokenizer: TextTokenizer) -> Iterator["EngineClient"]:
        """Runs an engine with one thread until the block ends."""
        with closing(EngineTranslator(str(bundle), copies=1, threads=1, slots=slots)) as engine:
            yield cls(engine, tokenizer)

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns what the engine says.

        Raises:
            ServiceError: if it fails.
        """
        (target_ids,) = self._engine.translate([sentence.source], 1, _ALONE)
        return lambda: self._tokenizer.decode(target_ids)


class GrpcLoneClient:
    """Asks a server over one gRPC channel."""

    def __init__(self, channel: grpc.Channel, request: LoadRequest) -> None:
        self._stub = TranslationServiceStub(channel)
        self._message = message_of(request)

    @classmethod
    @contextmanager
    def open(cls, target: str, request: LoadRequest) -> Iterator["GrpcLoneClient"]:
        """Connects to a server and leaves it when the block ends.

        Args:
            target: the server's host and port.
            request: what is asked for, but for its text.
        """
        with grpc.insecure_channel(target) as channel:
            yield cls(channel, request)

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns what the server says.

        Raises:
            LoneClientError: if it does not translate.
        """
        message = TranslateRequest(text=[sentence.text])
        message.MergeFrom(self._message)
        try:
            response = self._stub.Translate(message, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise LoneClientError(f"gRPC: {sentence.text}: {error}") from error
        return lambda: response.translations[0].text


class RestLoneClient:
    """Asks a server over one HTTP connection that is kept alive."""

    def __init__(self, connection: http.client.HTTPConnection, request: LoadRequest) -> None:
        self._connection = connection
        self._body = body_of(request)

    @classmethod
    @contextmanager
    def open(cls, host: str, port: int, request: LoadRequest) -> Iterator["RestLoneClient"]:
        """Connects to a server and leaves it when the block ends.

        Args:
            host: of the server.
            port: of its REST interface.
            request: what is asked for, but for its text.
        """
        with closing(http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)) as connection:
            yield cls(connection, request)

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns what the server says.

        Raises:
            LoneClientError: if it does not translate.
        """
        body = json.dumps({**self._body, "text": sentence.text})
        try:
            self._connection.request("POST", TRANSLATE_PATH, body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LoneClientError(f"REST: {sentence.text}: {error}") from error
        if response.status != HTTPStatus.OK:
            raise LoneClientError(f"REST: {sentence.text}: {response.status}: {content.decode(errors='replace')}")
        return lambda: str(json.loads(content)["translations"][0]["text"])


_PROTOCOLS: dict[Interface, LoadProtocol] = {"gRPC": "grpc", "REST": "rest", "TranslateMany": "grpc-many"}
# As the server counts them.
_REQUESTS: dict[Interface, str] = {
    "gRPC": "grpc translate ok",
    "REST": "rest translate ok",
    "TranslateMany": "grpc translate_many ok",
}


@dataclass(frozen=True, slots=True)
class BusyAddress:
    """Where a watched server is.

    Attributes:
        targets: its interfaces.
        watch_url: where it shows CPU times.
    """

    targets: Targets
    watch_url: str


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the server says at a moment of the machine's monotonic clock."""

    seconds: float
    state: ServerState
    cpu: CpuTimes


class BusyServer:
    """A server with its clients."""

    def __init__(
        self,
        loop: ClosedLoop,
        plans: dict[Interface, Plan],
        generators: Generators,
        metrics: MetricsReader,
        watch_url: str,
    ) -> None:
        self._loop = loop
        self._plans = plans
        self._generators = generators
        self._metrics = metrics
        self._watch_url = watch_url

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: ServiceOptions, address: BusyAddress, texts: Sequence[str], languages: Languages
    ) -> AsyncIterator[Self]:
        """Starts the clients, and stops them when the block ends.

        Args:
            options: of the benchmark.
            address: of the server.
            texts: that are asked for, one in each request.
            languages: from which into which.
        """
        loop = ClosedLoop(options.clients, options.warm_up_seconds, options.seconds)
        asked = {**asdict(languages), "options": options.search_options}
        plans = {
            interface: loop.plan(RequestKind(protocol=protocol, **asked), texts)
            for interface, protocol in _PROTOCOLS.items()
        }
        async with (
            MetricsReader.open(address.targets) as metrics,
            Generators.run(
                options.processes, address.targets, set(_PROTOCOLS.values()), options.generator_cpus
            ) as generators,
        ):
            yield cls(loop, plans, generators, metrics, address.watch_url)

    async def take_turn(self, interface: Interface) -> BusyTurn:
        """Keeps the server busy by one interface.

        Raises:
            BusyServerError: if it does not tell what it does, or does nothing.
            GeneratorLostError: if clients die.
        """
        requests = _REQUESTS[interface]

        def worked(first: _Reading, last: _Reading) -> bool:
            return _requests(first.state, last.state, requests) > 0 and last.cpu.runs > first.cpu.runs

        before = await read_state(self._metrics)
        busy = await self._loop.keep_busy(self._generators, self._plans[interface], self._read, worked)
        return _turn(busy, requests, _requests(before, await read_state(self._metrics), requests))

    async def _read(self) -> _Reading:
        """Returns what the server says now, which costs it some milliseconds."""
        state = await read_state(self._metrics)
        cpu = await asyncio.to_thread(read_cpu_times, self._watch_url)
        return _Reading(time.monotonic(), state, cpu)


async def measure_busy(
    server: BusyServer, options: ServiceOptions, texts: Sequence[str], advance: Callable[[], object]
) -> BusyResult:
    """Has every interface take its turn in every round, beginning with another one each time.

    Args:
        server: with its clients.
        options: of the benchmark.
        texts: that are asked for.
        advance: is called after each turn.

    Raises:
        BusyServerError: if the server does not tell what it does.
        GeneratorLostError: if clients die.
    """
    turns = await take_turns(INTERFACES, options.rounds, server.take_turn, advance)
    return BusyResult(options.clients, len(texts), options.words, turns)


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
    """Returns how many requests the server answered in between."""
    return last.requests.get(requests, 0) - first.requests.get(requests, 0)
