"""The cost of tokenizer, interfaces, queue and metrics in addition to the model.

One client: each sentence goes to the bare engine (token ids to token ids, in this process), to a server over gRPC and
to the same server over REST, in turn and milliseconds apart. The figure is the time difference per sentence. The client
keeps one connection and has the whole response at the end of the timed part; it parses the response later.

Many clients: a closed loop keeps a server busy with short sentences. The figure is the share of the server's CPU time
outside the threads of its native engines. The servers of other checkouts can take turns with that of this one.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

import grpc
import numpy as np
from pydantic import Field
from tqdm import tqdm

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.process import running_on
from benchmarks.harness.report import Columns, Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds, rotated
from benchmarks.served import (
    BusyClients,
    BusyPlan,
    Interface,
    ServedSentence,
    ServedSentences,
    command_of,
    read_sentences,
    request_kind,
    serving,
)
from benchmarks.systems.engine_system import EngineTranslator
from benchmarks.systems.translating import Batching
from dragoman.loadtest.clients import TRANSLATE_PATH, Targets
from dragoman.loadtest.protocols import PROTOCOLS
from dragoman.loadtest.scenario import LoadRequest
from dragoman.model.errors import CorpusError
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub
from dragoman.serve.bundle.bundle import Bundle

TIMEOUT_SECONDS = 30.0
# Fill connections, caches and memory of server and bare engine.
WARM_UP_SENTENCES = 20
ENGINE = "engine"
INTERFACES: dict[str, Interface] = {"REST": "rest", "gRPC": "grpc", "TranslateMany": "grpc-many"}
TARGET = "Target: at most 25 % of CPU outside the engines."
# The room of the queue, in lists of the clients.
LISTS_IN_QUEUE = 4


class ServicePlan(BusyPlan):
    """The parameters of this benchmark."""

    libraries = ("onnxruntime", "grpcio", "httptools", "numpy")

    sentences: int = Field(100, ge=1, description="maximum number of sentences for one client")
    words: int = Field(8, ge=1, description="maximum words of a sentence for many clients")
    texts: int = Field(100, ge=2, description="texts of a list for many clients")
    slots: int = Field(32, ge=1, description="rows of each engine")
    checkouts: dict[str, Path] = Field({}, description="folders of other checkouts of Dragoman, by name, to compare")

    def measure(self) -> Report:
        """Measures one client, then many. Engines have one thread and search greedily."""
        bundle = Bundle.open(self.bundle)
        manifest, engines = bundle.manifest, len(set(self.server_cpus))
        sentences = read_sentences(bundle, self.data)
        short = [sentence for sentence in sentences.sentences if len(sentence.text.split()) <= self.words]
        if not short:
            raise CorpusError(f"words: {self.words}: expected more words or other data: no sentence is as short")
        with running_on(self.generator_cpus):
            lone = one_client(self, sentences)
            busy = many_clients(self, replace(sentences, sentences=short))
        model = (
            f"**{manifest.name}**, {manifest.precision}, {sentences.direction}, greedy search, engines with one thread."
        )
        count = min(self.sentences, len(sentences.sentences))
        one = f"{model} One client, {count} sentences one at a time; rounds: {self.rounds}."
        many = (
            f"Closed loop of {self.clients} clients, {len(short)} sentences of at most {self.words} words; "
            f"engines: {engines}; rounds: {self.rounds}."
        )
        tables = [Table("one client", lone, text=one, notes=["Target: at most 2 ms over the engine."])]
        for checkout, columns in busy.items():
            tables.append(Table(f"many clients, {checkout}", columns, text=many, notes=[TARGET]))
        return Report(tables, self.cpus)


# Parses the response and returns the translation.
Answer = Callable[[], str]
# Sends one sentence and waits for the whole response.
LoneClient = Callable[[ServedSentence], Answer]


@contextmanager
def lone_clients(plan: ServicePlan, sentences: ServedSentences, targets: Targets) -> Iterator[dict[str, LoneClient]]:
    """Runs an engine with one thread, and keeps a connection of each interface to a server, until the block ends."""
    request = LoadRequest((), request_kind("grpc", sentences.direction))
    message, options = TranslateRequest(**request.body(PROTOCOLS["grpc"])), request.body(PROTOCOLS["rest"])
    with ExitStack() as stack:
        with running_on(plan.server_cpus):  # the engine's thread inherits these CPUs
            started = EngineTranslator(str(plan.bundle), copies=1, threads=1, slots=plan.slots)
        engine = stack.enter_context(closing(started))
        stub = TranslationServiceStub(stack.enter_context(grpc.insecure_channel(targets.grpc)))
        address = targets.rest.removeprefix("http://")
        connection = stack.enter_context(closing(http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)))

        def ask_engine(sentence: ServedSentence) -> Answer:
            (target_ids,) = engine.translate([sentence.source], 1, Batching(1, "examples"))
            return lambda: sentences.tokenizer.decode(target_ids)

        def ask_grpc(sentence: ServedSentence) -> Answer:
            sent = TranslateRequest(text=[sentence.text])
            sent.MergeFrom(message)
            response = stub.Translate(sent, timeout=TIMEOUT_SECONDS)
            return lambda: response.translations[0].text

        def ask_rest(sentence: ServedSentence) -> Answer:
            body = json.dumps({**options, "text": sentence.text})
            connection.request("POST", TRANSLATE_PATH, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            if response.status != HTTPStatus.OK:
                raise http.client.HTTPException(f"{response.status}: {content.decode(errors='replace')}")
            return lambda: str(json.loads(content)["translations"][0]["text"])

        yield {ENGINE: ask_engine, "gRPC": ask_grpc, "REST": ask_rest}


def ask_all(
    clients: Mapping[str, LoneClient], order: Sequence[str], sentence: ServedSentence, clock: Callable[[], int]
) -> dict[str, float]:
    """Returns the milliseconds of every client for one sentence; the clock has nanoseconds.

    Raises BenchmarkError if a sentence is not translated, or differently than by the bare engine.
    """
    taken_ms: dict[str, float] = {}
    answers: dict[str, Answer] = {}
    for name in order:
        started_ns = clock()
        try:
            answers[name] = clients[name](sentence)
        except (grpc.RpcError, OSError, http.client.HTTPException) as error:
            raise BenchmarkError(f"{name}: {sentence.text}: {error}") from error
        taken_ms[name] = (clock() - started_ns) / 1e6
    expected = answers[ENGINE]()
    for name, answer in answers.items():
        if answer() != expected:
            raise BenchmarkError(f"{name}: {sentence.text}: {answer()}: expected {expected}, as the bare engine")
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
    for number in tqdm(range(rounds), "service, one client", unit=" rounds", disable=None):
        taken = [
            ask_all(clients, rotated(list(clients), number + index), sentence, clock)
            for index, sentence in enumerate(sentences)
        ]
        for name in clients:
            milliseconds = np.array([item[name] for item in taken])
            figures = {"a sentence, ms": float(np.median(milliseconds))}
            if name != ENGINE:
                over = np.percentile(milliseconds - [item[ENGINE] for item in taken], (50, 25, 75)).tolist()
                figures |= dict(zip(("over the engine, ms", "- lower quartile", "- upper quartile"), over, strict=True))
            found[name].append(figures)
    return found


def one_client(plan: ServicePlan, sentences: ServedSentences) -> Columns:
    """Measures one client; server and bare engine have one engine each."""
    command = command_of(plan.bundle, 1, plan.slots)
    with serving(command, plan.server_cpus) as server, lone_clients(plan, sentences, server.targets) as clients:
        return measure_lone(clients, sentences.sentences[: plan.sentences], plan.rounds)


def many_clients(plan: ServicePlan, sentences: ServedSentences) -> Mapping[str, Columns]:
    """Measures a busy server of each checkout with one engine per CPU; returns the figures of each way by checkout."""
    ways = {name: (interface, 1) for name, interface in INTERFACES.items()}
    ways[f"REST, lists of {plan.texts}"] = ("rest", plan.texts)
    with ExitStack() as stack:
        clients, limits = {}, {"max_texts": plan.texts, "queue_limit": LISTS_IN_QUEUE * plan.texts}
        # `python -m` finds the modules of the folder that it runs in.
        within = {"now": (), **{name: ("env", "-C", str(folder)) for name, folder in plan.checkouts.items()}}
        for name, prefix in within.items():
            command = command_of(plan.bundle, len(set(plan.server_cpus)), plan.slots, prefix, **limits)
            server = stack.enter_context(serving(command, plan.server_cpus))
            clients[name] = BusyClients(plan, sentences, server)

        def keep_busy(way: str, name: str) -> Figures:
            figures = clients[name].measure_busy(*ways[way])
            return {**figures, "CPU outside the engines, %": 100 - figures["CPU in engines, %"]}

        found = {way: measure_rounds(within, plan.rounds, f"service, {way}", partial(keep_busy, way)) for way in ways}
    return {name: {way: rounds[name] for way, rounds in found.items()} for name in within}
