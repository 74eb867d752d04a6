"""A real service with real connections and fake models, in its own thread, and clients for both protocols."""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import grpc
import httpx
import numpy as np
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from dragoman.protos.translation_pb2 import (
    ScoreRequest,
    ScoreResponse,
    TranslateRequest,
    TranslateResponse,
    TranslateStreamResponse,
)
from dragoman.serve.app import build_service
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.edge import reader as http_reader
from dragoman.serve.edge.load_shedding import LoadShedder
from dragoman.serve.engine.engine import Engine
from dragoman.serve.host import event_loop
from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.observability.batch import Batch
from dragoman.serve.observability.metrics import _Merged
from dragoman.serve.registry.loader import LoadModels
from dragoman.serve.registry.pipeline import Pipeline
from dragoman.serve.runtime.model import Model
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence as EngineSequence
from dragoman.serve.service import Service
from dragoman.serve.settings import ServeSettings
from dragoman.serve.source import ModelSource
from tests.support.fakes import FakeModel

TRANSLATE_METHOD = "/dragoman.v1.TranslationService/Translate"
STREAM_METHOD = "/dragoman.v1.TranslationService/TranslateStream"
WAIT_SECONDS = 60.0
# A default context reads all certificates of the machine, which takes 20 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


Answer = TypeVar("Answer", bound=Message)


@dataclass
class GatedModel(FakeModel):
    """A fake model whose steps wait while its gate is closed; its rows keep their slots."""

    gate: threading.Event = field(default_factory=threading.Event)
    stepping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gate.set()

    def decode_step(self, *arguments: Any, **options: Any) -> NDArray[np.float32]:
        self.stepping.set()
        assert self.gate.wait(WAIT_SECONDS)
        return super().decode_step(*arguments, **options)


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced, so that a test waits for no limit of time."""

    _ahead_seconds = 0.0

    def time(self) -> float:
        """The clock of all timers of the loop. Deadlines of later gRPC calls are on `time.monotonic`."""
        return super().time() + self._ahead_seconds

    def leap(self, seconds: float) -> None:
        """Advances the clock: timers up to then are due."""
        self._ahead_seconds += seconds

    def timers(self) -> list[Callable[..., object]]:
        """Returns what is called later, unless it was canceled."""
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
        return [timer._callback for timer in scheduled if not timer.cancelled()]


def _run_leaping(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(main)


@dataclass
class LiveService:
    """A service in a thread, as clients see it."""

    service: Service
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    stop_event: asyncio.Event
    running: asyncio.Task[None]
    failure: list[BaseException] = field(default_factory=list)

    @property
    def engines(self) -> list[Engine]:
        """The engines in Python of the first model."""
        return [engine for engine in self.pipeline.engines.running if isinstance(engine, Engine)]

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler in Python of the first model."""
        scheduler = self.pipeline.scheduler
        assert isinstance(scheduler, Scheduler)
        return scheduler

    @property
    def pipeline(self) -> Pipeline:
        pipeline = next(iter(self.service.models)).pipeline
        assert pipeline is not None
        return pipeline

    @property
    def grpc_target(self) -> str:
        return f"127.0.0.1:{self.service.grpc_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.service.http_port}"

    def stop(self) -> None:
        """Stops the service as a signal does, unless it has ended."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.stop_event.set)

    def leap(self, seconds: float, when: Callable[[], bool] = lambda: True) -> None:
        """Advances the clock of a leaping loop, of the bodies of requests, and of schedulers and engines in Python.

        Does nothing unless `when` holds, in the thread of the loop.
        """
        loop = self.loop
        assert isinstance(loop, LeapingLoop)
        _use_clock(self.loop.time)
        for pipeline in self.service.models.pipelines:
            clocked: list[Any] = [pipeline.scheduler, *pipeline.engines.running]
            for item in clocked:
                item._clock = self.loop.time
        over = threading.Event()

        def leap() -> None:
            if when():
                loop.leap(seconds)
            over.set()

        # The leap is in the loop's thread, so that a wait that has begun there has its end.
        self.loop.call_soon_threadsafe(leap)
        assert over.wait(WAIT_SECONDS)

    def leap_until(self, condition: Callable[[], bool], seconds: float, when: Callable[[], bool]) -> None:
        """Advances the clock `when` the server is in the wait that must end, until the condition holds.

        While it works, a leap would exceed the limits of its work too, such as that of a write.
        """

        def holds() -> bool:
            self.leap(seconds, when)
            return condition()

        eventually(holds)

    def abandon(self) -> None:
        """Ends the service during its lame duck stage."""
        self.loop.call_soon_threadsafe(self.running.cancel)

    def join(self) -> None:
        """Waits for the end of the service and raises its error."""
        self.thread.join(WAIT_SECONDS)
        assert not self.thread.is_alive()
        if self.failure:
            raise self.failure[0]

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.http_url, timeout=WAIT_SECONDS, trust_env=False, verify=NO_TLS)

    def post(self, body: Any = None, *, path: str = "/v1/translate", **options: Any) -> httpx.Response:
        """Sends one REST request; `body` is sent as JSON unless `content` is given."""
        with self.http() as client:
            return client.post(path, **({"json": body} if body is not None else {}), **options)

    def get(self, path: str) -> httpx.Response:
        with self.http() as client:
            return client.get(path)

    def grpc_channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.grpc_target)

    def stub(
        self, name: str, message: Message | bytes, answer: type[Answer], timeout: float | None = WAIT_SECONDS
    ) -> Answer:
        data = message if isinstance(message, bytes) else message.SerializeToString()
        with self.grpc_channel() as channel:
            path = f"/dragoman.v1.TranslationService/{name}"
            method: Any = channel.unary_unary(path, response_deserializer=answer.FromString)
            found: Answer = method(data, timeout=timeout)
            return found

    def call(self, message: TranslateRequest | bytes, timeout: float | None = WAIT_SECONDS) -> TranslateResponse:
        """Sends one gRPC request, or bytes instead."""
        return self.stub("Translate", message, TranslateResponse, timeout)

    @contextmanager
    def call_stream(self, message: TranslateRequest | bytes, timeout: float | None = WAIT_SECONDS) -> Iterator[Any]:
        """Opens a gRPC stream; its connection is closed when the block ends."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        with self.grpc_channel() as channel:
            method: Any = channel.unary_stream(STREAM_METHOD, response_deserializer=TranslateStreamResponse.FromString)
            yield method(data, timeout=timeout)

    def call_score(self, message: ScoreRequest | bytes) -> ScoreResponse:
        """Sends one gRPC request for scores, or bytes instead."""
        return self.stub("Score", message, ScoreResponse)

    def call_error(
        self, message: TranslateRequest | ScoreRequest | bytes, timeout: float | None = WAIT_SECONDS
    ) -> grpc.RpcError:
        """Sends one gRPC request that fails, and returns the error; bytes go to Translate."""
        try:
            if isinstance(message, ScoreRequest):
                self.call_score(message)
            else:
                self.call(message, timeout)
        except grpc.RpcError as error:
            return error
        raise AssertionError("the call did not fail")

    def health(self, service: str = "") -> str:
        """Returns the health of a gRPC service, or of all for the empty name."""
        with self.grpc_channel() as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_SECONDS)
            return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of the series of a name with at least these labels."""
        # Reads one collector: a full collection takes milliseconds, and many tests poll.
        series = f"dragoman_{name}"
        families = [family for registry in self._registries() for family in _family(registry, series)]
        samples = [sample for family in families for sample in family.samples if sample.name == series]
        assert samples, f"no series {series}"
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def _registries(self) -> list[CollectorRegistry]:
        registry = self.service.metrics.registry
        (merged,) = (name for name in registry._collector_to_names if isinstance(name, _Merged))
        return [registry, merged._unrouted, *(metrics.registry for metrics in list(merged._models.values()))]

    def count_submitted(self) -> list[EngineSequence]:
        submitted: list[EngineSequence] = []
        for pipeline in self.service.models.pipelines:
            submit = pipeline.scheduler.submit

            def note(sequences: Any, *rest: Any, submit: Any = submit, **how: Any) -> None:
                submit(sequences, *rest, **how)
                submitted.extend(sequences)

            pipeline.scheduler.submit = note  # type: ignore[method-assign]
        return submitted

    def settle(self) -> None:
        """Waits until every request is counted; a client may see its response earlier."""
        eventually(lambda: self.metric("inflight_requests") == 0)


def _use_clock(clock: Callable[[], float]) -> None:
    """Sets the clock by which the server reads bodies and counts deadlines over REST."""
    vars(http_reader)["time"] = SimpleNamespace(monotonic=clock)


def _family(registry: CollectorRegistry, series: str) -> Iterable[Metric]:
    for batch in registry._collector_to_names:
        if isinstance(batch, Batch):
            batch.flush()
    collector = registry._names_to_collectors.get(series)
    return () if collector is None else collector.collect()


def keep_busy(monkeypatch: pytest.MonkeyPatch, *, busy: bool) -> None:
    """Makes each look at the CPUs find them busy, or not."""
    monkeypatch.setattr(LoadShedder, "watch", lambda load_shedder: setattr(load_shedder, "busy", busy))


def eventually(condition: Callable[[], bool]) -> None:
    """Polls until the condition holds, for states of other threads without an event."""
    deadline_seconds = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline_seconds, "it did not happen"
        time.sleep(0.005)


class _Settings(ServeSettings):
    """Settings with a source of models."""

    _source: ModelSource | None = None

    def model_source(self) -> ModelSource | None:
        return self._source


def _settings(bundle: Path, models: Sequence[Model], settings: dict[str, Any]) -> _Settings:
    """Returns settings over defaults for tests, with an engine for each model."""
    defaults = {"host": "127.0.0.1", "http_port": 0, "grpc_port": 0, "lame_duck_seconds": 0, "drain_seconds": 30}
    engines = {"slots": models[0].slots, "engines": len(models)} if models else {}
    return _Settings(bundle=bundle, **{**defaults, **engines, **settings})


def _given(models: Sequence[Model], _settings: ServeSettings, _bundle: Bundle) -> Sequence[Model]:
    return models


@contextmanager
def run_service(
    bundle_path: Path,
    models: Sequence[Model] | None = None,
    *,
    wait_ready: bool = True,
    load: LoadModels | None = None,
    leaping: bool = False,
    own_settings: dict[str, dict[str, Any]] | None = None,
    http_limits: HttpLimits | None = None,
    source: ModelSource | None = None,
    **settings: Any,
) -> Iterator[LiveService]:
    """Runs a service until the block ends.

    Args:
        bundle_path: see `write_bundle`.
        models: one per engine; two fake ones with 4 slots if None; none: those of the bundles.
        load: loads the models of each bundle; None: `models`, or the engines that fit the bundles.
        leaping: whether the loop is a `LeapingLoop`; else it is that of a server.
        own_settings: overrides per model.
        http_limits: of HTTP connections, for tests of short ones.
        source: of models that are fetched on demand.
        wait_ready: whether the block begins when the service is ready; else when its ports are open.
        settings: of `ServeSettings`, over defaults for tests.
    """
    models = [FakeModel(4), FakeModel(4)] if models is None else models
    if load is None and models:
        load = partial(_given, models)
    command = _settings(bundle_path, models, {"models": own_settings or {}, **settings})
    command._source = source
    live: list[LiveService] = []
    begun = threading.Event()
    failure: list[BaseException] = []

    async def main() -> None:
        stop = asyncio.Event()
        service = await build_service(command, load, http_limits=http_limits)
        await service.listen()
        running = asyncio.create_task(service.run(stop))
        loop = asyncio.get_running_loop()
        live.append(LiveService(service, loop, threading.current_thread(), stop, running, failure))
        if wait_ready:
            ready = asyncio.create_task(service.ready.wait())
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
        begun.set()
        with suppress(asyncio.CancelledError):
            await running

    def run() -> None:
        try:
            (_run_leaping if leaping else event_loop.run)(main())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            failure.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=run, name="service", daemon=True)
    thread.start()
    assert begun.wait(WAIT_SECONDS)
    if failure:
        thread.join()
        raise failure[0]
    try:
        yield live[0]
    finally:
        for model in models:
            if isinstance(model, GatedModel):
                model.gate.set()
        if thread.is_alive():
            live[0].stop()
        live[0].join()
        _use_clock(time.monotonic)
    audit(live[0])


def audit(live: LiveService) -> None:
    """Checks the metrics of an ended service: every request is counted once, and gauges are 0."""
    for gauge in ("inflight_requests", "sequences_waiting", "sequences_running", "rows_running"):
        assert live.metric(gauge) == 0, f"{gauge} is {live.metric(gauge)} after the end"
    assert live.metric("requests_total") == live.metric("request_duration_seconds_count")
    assert live.metric("request_queue_seconds_count") <= live.metric("sequences_finished_total")
