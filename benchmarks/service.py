"""The cost of tokenizer, interfaces, queue and metrics in addition to the model.

One client: each sentence goes to the bare engine (token ids to token ids, in this process), to a server over gRPC and
to the same server over REST, in turn and milliseconds apart. The figure is the time difference per sentence. The client
keeps one connection and has the whole response at the end of the timed part; it parses the response later.

Many clients: a closed loop keeps a server busy with short sentences. The figure is the share of the server's CPU time
outside ONNX Runtime.
"""

import asyncio
import http.client
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import numpy as np
from pydantic import Field

from benchmarks.harness.plan import Question
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Figures, Report, Table, cells_of
from benchmarks.harness.rounds import in_turn, take_turns
from benchmarks.served import (
    BusyClients,
    BusyPlan,
    Interface,
    ServedSentence,
    ServedSentences,
    engine_options,
    read_sentences,
    serving,
)
from benchmarks.systems.engine import EngineTranslator
from benchmarks.systems.translating import Batching
from benchmarks.watched_server import read_cpu_times
from loadtest.clients import TRANSLATE_PATH
from loadtest.closed_loop import BusyServerError
from loadtest.generator import GeneratorLostError
from loadtest.protocols import PROTOCOLS
from loadtest.scenario import LoadRequest, RequestKind, SearchOptions
from model.data.corpus import CorpusError
from model.tokenizer.tokenizer import TextTokenizer
from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.bundle.bundle import Bundle
from serve.errors import ServiceError
from serve.server_process import ServerProcessError, server_command
from serve.translation.fields import TargetRatio

TIMEOUT_SECONDS = 30.0
# Fill connections, caches and memory of server and bare engine.
WARM_UP_SENTENCES = 20
ENGINE = "engine"
INTERFACES: dict[str, Interface] = {"gRPC": "grpc", "REST": "rest", "TranslateMany": "grpc-many"}


class ServicePlan(BusyPlan):
    """The parameters of this benchmark."""

    max_target_ratio: TargetRatio | None = Field(
        None, description="maximum target tokens per source token; null: the model's limit"
    )
    sentences: int = Field(100, ge=1, description="maximum number of sentences for one client")
    words: int = Field(8, ge=1, description="maximum words of a sentence for many clients")
    slots: int = Field(32, ge=1, description="rows of each engine")

    @property
    def options(self) -> SearchOptions:
        """Greedy search."""
        return SearchOptions(max_target_ratio=self.max_target_ratio)


class LoneClientError(Exception):
    """A sentence was not translated as the bare engine does; the message has the response."""


# Parses the response and returns the translation.
Answer = Callable[[], str]
# Sends one sentence and waits for the whole response.
LoneClient = Callable[[ServedSentence], Answer]


@contextmanager
def engine_client(bundle: Path, slots: int, tokenizer: TextTokenizer) -> Iterator[LoneClient]:
    """Runs an engine with one thread until the block ends; its failure is a `ServiceError`."""
    with closing(EngineTranslator(str(bundle), copies=1, threads=1, slots=slots)) as engine:

        def ask(sentence: ServedSentence) -> Answer:
            (target_ids,) = engine.translate([sentence.source], 1, Batching(1, "examples"))
            return lambda: tokenizer.decode(target_ids)

        yield ask


@contextmanager
def grpc_client(target: str, request: LoadRequest) -> Iterator[LoneClient]:
    """Keeps a gRPC channel to a server until the block ends; every request has the options of `request`."""
    with grpc.insecure_channel(target) as channel:
        stub, options = TranslationServiceStub(channel), TranslateRequest(**request.body(PROTOCOLS["grpc"]))

        def ask(sentence: ServedSentence) -> Answer:
            message = TranslateRequest(text=[sentence.text])
            message.MergeFrom(options)
            response = stub.Translate(message, timeout=TIMEOUT_SECONDS)
            return lambda: response.translations[0].text

        yield ask


@contextmanager
def rest_client(address: str, request: LoadRequest) -> Iterator[LoneClient]:
    """Keeps an HTTP connection to a server until the block ends; every request has the options of `request`."""
    with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)) as connection:
        options = request.body(PROTOCOLS["rest"])

        def ask(sentence: ServedSentence) -> Answer:
            body = json.dumps({**options, "text": sentence.text})
            connection.request("POST", TRANSLATE_PATH, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            if response.status != HTTPStatus.OK:
                raise http.client.HTTPException(f"{response.status}: {content.decode(errors='replace')}")
            return lambda: str(json.loads(content)["translations"][0]["text"])

        yield ask


def ask_all(
    clients: Mapping[str, LoneClient], order: Sequence[str], sentence: ServedSentence, clock: Callable[[], int]
) -> dict[str, float]:
    """Returns the milliseconds of every client for one sentence; the clock has nanoseconds.

    Raises:
        LoneClientError: if a sentence is not translated, or differently than by the bare engine.
        ServiceError: if the bare engine fails.
    """
    taken_ms: dict[str, float] = {}
    answers: dict[str, Answer] = {}
    for name in order:
        started_ns = clock()
        try:
            answers[name] = clients[name](sentence)
        except (grpc.RpcError, OSError, http.client.HTTPException) as error:
            raise LoneClientError(f"{name}: {sentence.text}: {error}") from error
        taken_ms[name] = (clock() - started_ns) / 1e6
    expected = answers[ENGINE]()
    for name, answer in answers.items():
        if answer() != expected:
            raise LoneClientError(f"{name}: {sentence.text}: {answer()}: expected {expected}, as the bare engine")
    return taken_ms


def measure_lone(
    clients: Mapping[str, LoneClient],
    sentences: Sequence[ServedSentence],
    rounds: int,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, list[Figures]]:
    """Returns the figures of each client, one of which is the bare engine; see `ask_all` for clock and errors."""
    for sentence in sentences[:WARM_UP_SENTENCES]:
        ask_all(clients, list(clients), sentence, clock)
    found: dict[str, list[Figures]] = {name: [] for name in clients}
    for number in take_turns(range(rounds), 1, "service, one client"):
        taken = [
            ask_all(clients, in_turn(list(clients), number + place), sentence, clock)
            for place, sentence in enumerate(sentences)
        ]
        for name in clients:
            milliseconds = np.array([each[name] for each in taken])
            figures = {"a sentence, ms": float(np.median(milliseconds))}
            if name != ENGINE:
                over = np.percentile(milliseconds - [each[ENGINE] for each in taken], (50, 25, 75)).tolist()
                figures |= dict(zip(("over the engine, ms", "- lower quartile", "- upper quartile"), over, strict=True))
            found[name].append(figures)
    return found


async def one_client(plan: ServicePlan, sentences: ServedSentences) -> dict[str, list[Figures]]:
    """Measures one client; server and bare engine have one engine each."""
    source, target = sentences.direction.source, sentences.direction.target
    request = LoadRequest((), RequestKind(source_language=source, target_language=target, options=plan.options))

    def command(ports: tuple[int, int]) -> list[str]:
        return [*server_command(plan.bundle, *ports), *engine_options(1, plan.slots)]

    async with serving(command, plan.server_cpus) as (server,):
        with ExitStack() as stack:
            with running_on(plan.server_cpus):  # the engine's thread inherits these CPUs
                engine = stack.enter_context(engine_client(plan.bundle, plan.slots, sentences.tokenizer))
            clients = {
                ENGINE: engine,
                "gRPC": stack.enter_context(grpc_client(server.targets.grpc, request)),
                "REST": stack.enter_context(rest_client(server.targets.rest.removeprefix("http://"), request)),
            }
            return measure_lone(clients, sentences.sentences[: plan.sentences], plan.rounds)


def with_shares(figures: Figures) -> Figures:
    """Returns the figures of a turn with shares of the server's CPU time.

    Engine threads outside ONNX Runtime are scheduler, search and Python around the runs. Other threads are interfaces,
    tokenizer and metrics.
    """
    runs, engines = (figures[f"CPU in {part}, %"] for part in ("ONNX Runtime", "engine threads"))
    shares = {
        "CPU outside ONNX Runtime, %": 100 - runs,
        "- in engine threads, %": engines - runs,
        "- in other threads, %": 100 - engines,
    }
    return {**figures, **shares}


async def many_clients(plan: ServicePlan, sentences: ServedSentences) -> dict[str, list[Figures]]:
    """Measures a busy server with one engine per CPU."""
    with TemporaryDirectory(prefix="dragoman-") as folder:
        clock = Path(folder) / "clock"

        def command(ports: tuple[int, int]) -> list[str]:
            engines = engine_options(len(set(plan.server_cpus)), plan.slots)
            watched = server_command(plan.bundle, *ports, ("benchmarks.watched_server",))
            return [*watched, *engines, "--clock-file", str(clock)]

        found: dict[str, list[Figures]] = defaultdict(list)
        async with serving(command, plan.server_cpus) as (server,):
            clients = BusyClients(
                plan,
                sentences,
                replace(server.targets, connections=1),
                (server.targets,),
                plan.options,
                lambda: read_cpu_times(clock),
            )
            for name in take_turns(list(INTERFACES), plan.rounds, "service, many clients"):
                found[name].append(with_shares(await clients.take_turn(INTERFACES[name])))
    return found


def short_sentences(sentences: ServedSentences, words: int) -> ServedSentences:
    """Returns the sentences of at most `words` words.

    Raises:
        CorpusError: if there are none.
    """
    short = [each for each in sentences.sentences if len(each.text.split()) <= words]
    if not short:
        raise CorpusError(f"words: {words}: expected more words or other data: no sentence is as short")
    return replace(sentences, sentences=short)


def measure(plan: ServicePlan) -> Report:
    """Measures one client, then many. Engines have one thread and search greedily."""
    bundle = Bundle.open(plan.bundle)
    sentences = read_sentences(bundle, plan.data, plan.max_target_ratio)
    short = short_sentences(sentences, plan.words)
    with running_on(plan.generator_cpus):
        lone = asyncio.run(one_client(plan, sentences))
        busy = asyncio.run(many_clients(plan, short))
    manifest, engines = bundle.manifest, len(set(plan.server_cpus))
    model = f"**{manifest.name}**, {manifest.precision}, {sentences.direction}, greedy search, engines with one thread."
    asked = min(plan.sentences, len(sentences.sentences))
    one = f"{model} One client, {asked} sentences one at a time; rounds: {plan.rounds}."
    many = (
        f"Closed loop of {plan.clients} clients, {len(short.sentences)} sentences of at most {plan.words} words; "
        f"engines: {engines}; rounds: {plan.rounds}."
    )
    tables = [
        Table("one client", cells_of(lone), text=one, notes=["Target: at most 2 ms over the engine."]),
        Table("many clients", cells_of(busy), text=many, notes=["Target: at most 25 % of CPU outside ONNX Runtime."]),
    ]
    return Report(tables, f"CPUs of the server: {engines}, of the clients: {len(set(plan.generator_cpus))}")


QUESTION = Question(
    ServicePlan,
    measure,
    ("onnxruntime", "grpcio", "uvicorn", "numpy"),
    (BusyServerError, GeneratorLostError, LoneClientError, ServerProcessError, ServiceError),
)
