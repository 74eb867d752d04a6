"""A replica under Ray Serve, without Ray: the calls of proxy and controller, with fake models."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import httpx
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message as ProtoMessage
from starlette.types import Message

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos import translation_pb2 as messages
from dragoman.serve.app import open_service
from dragoman.serve.ray_serve.proxy_methods import METHODS, SERVICE, add_translation_service
from dragoman.serve.ray_serve.replica import Replica, ReplicaApp
from dragoman.serve.ray_serve.settings import RaySettings
from tests.support.fake_bundles import LONG_TEXT, direction, put_bundle
from tests.support.fakes import FakeModel, FiniteModel
from tests.support.live import WAIT_SECONDS, GatedModel

pytestmark = pytest.mark.anyio
REPLICA = "dragoman.serve.ray_serve.replica"
GOOD = messages.TranslateRequest(text=["alpha beta."]).SerializeToString()
LONG = messages.TranslateRequest(text=[LONG_TEXT]).SerializeToString()


async def eventually(condition: Callable[[], bool]) -> None:
    """Polls until the condition holds, for states of an engine's thread without an event."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Context:
    """The context of Ray Serve's proxy."""

    def __init__(self, **metadata: str) -> None:
        self.metadata = list(metadata.items())
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.trailers: dict[str, Any] = {}

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None:
        self.trailers = dict(trailing_metadata)


class Started:
    """A ready replica and its application."""

    def __init__(self, replica: Replica, app: ReplicaApp) -> None:
        self.replica = replica
        self._app = app
        self._life: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._living = asyncio.create_task(app({"type": "lifespan"}, self._life.get, self._said.put))

    async def send(self, event: str) -> None:
        self._life.put_nowait({"type": f"lifespan.{event}"})
        async with asyncio.timeout(WAIT_SECONDS):
            assert await self._said.get() == {"type": f"lifespan.{event}.complete"}

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://replica")

    async def loaded(self, rows: int) -> None:
        """Waits until this number of rows runs."""
        scheduler = self.replica._service.models.pipelines[0].scheduler
        await eventually(lambda: scheduler.running_rows == rows)


@pytest.fixture(autouse=True)
def own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the logs of the tests."""
    monkeypatch.setattr(f"{REPLICA}.configure_logs_and_traces", lambda _: None)


@pytest.fixture
def run(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a replica with a fake model through its whole lifecycle, as Ray Serve does."""

    @asynccontextmanager
    async def running(model: FakeModel | None = None, **settings: Any) -> AsyncIterator[Started]:
        served = model or FakeModel(4)
        monkeypatch.setattr(f"{REPLICA}.open_service", partial(open_service, load=lambda *_: [served]))
        chosen = {"bundle": bundle_path, "slots": served.slots, "drain_seconds": 10, **settings}
        replica = Replica(RaySettings(**chosen))
        started = Started(replica, await replica.__serve_build_asgi_app__())
        await started.send("startup")
        try:
            yield started
        finally:
            await started.send("shutdown")

    return running


async def test_every_method_of_the_proxy_gets_a_response(run: Any, tmp_path: Path, letters: Tokenizer) -> None:
    """The model has only letters, so that any translation can be scored."""
    correction = {"source": "a", "target": "b", "source_language": "en", "target_language": "de"}
    pair = messages.TextPair(text="ab ba", translation="ba")
    requested: dict[str, tuple[ProtoMessage, type]] = {
        "Translate": (messages.TranslateRequest(text=["ab"]), messages.TranslateResponse),
        "Score": (messages.ScoreRequest(pairs=[pair]), messages.ScoreResponse),
        "Detect": (messages.DetectRequest(text=["ab"]), messages.DetectResponse),
        "ListModels": (messages.ListModelsRequest(), messages.ListModelsResponse),
        "GetModel": (messages.GetModelRequest(name="letters"), messages.Model),
        "Correct": (messages.CorrectRequest(**correction), messages.CorrectResponse),
    }
    bundle = put_bundle(tmp_path / "letters", letters, direction("en-de", 7))
    async with run(FiniteModel(4), bundle=bundle.parent, state_dir=tmp_path / "state", corrections=True) as started:
        for method, (request, answer) in requested.items():
            given = await getattr(started.replica, method)(request.SerializeToString(), Context())
            assert isinstance(given, answer)
        streamed = [item async for item in started.replica.TranslateStream(GOOD, Context())]
    assert streamed[-1].HasField("result")
    assert requested.keys() | {"TranslateStream"} == METHODS.keys()


def test_the_proxy_gets_the_methods_of_the_service_as_bytes() -> None:
    server = Mock()
    add_translation_service(Mock(), server)
    ((handlers,),) = server.add_generic_rpc_handlers.call_args.args
    registered = handlers._method_handlers
    assert registered.keys() == {f"/{SERVICE.full_name}/{name}" for name in METHODS}
    assert {value.request_deserializer for value in registered.values()} == {None}
    streams = {path for path, item in registered.items() if item.response_streaming}
    assert streams == {f"/{SERVICE.full_name}/TranslateStream"}


async def test_a_request_without_a_key_is_rejected_over_both_protocols(run: Any) -> None:
    stranger, friend = Context(), Context(authorization="Bearer secret")
    async with run(api_keys="secret") as started, started.http() as client:
        assert (await client.post("/v1/translate", json={"text": "alpha."})).status_code == 401
        assert await started.replica.Translate(GOOD, stranger) == Empty()
        assert (await started.replica.Translate(GOOD, friend)).translations
    assert (stranger.code, friend.code) == (grpc.StatusCode.UNAUTHENTICATED, None)


async def test_a_call_that_the_proxy_cancels_frees_its_slot(run: Any) -> None:
    model = GatedModel(1)
    async with run(model) as started:
        model.gate.clear()
        call = asyncio.create_task(started.replica.Translate(LONG, Context()))
        await started.loaded(1)
        call.cancel()
        model.gate.set()
        await started.loaded(0)
        assert call.cancelled()


async def test_it_reports_running_rows_and_waiting_sequences(run: Any) -> None:
    model = GatedModel(1)
    async with run(model) as started:
        model.gate.clear()
        calls = [asyncio.create_task(started.replica.Translate(LONG, Context())) for _ in range(3)]
        await started.loaded(1)
        reported = await started.replica.record_autoscaling_stats()
        assert reported == {"rows_running": 1, "sequences_waiting": 2, "slots": 1}
        model.gate.set()
        await asyncio.gather(*calls)


async def test_at_its_end_it_finishes_accepted_requests_and_rejects_new_ones(run: Any) -> None:
    model = GatedModel(1)
    async with run(model) as started:
        model.gate.clear()
        accepted = asyncio.create_task(started.replica.Translate(LONG, Context()))
        await started.loaded(1)
        started._life.put_nowait({"type": "lifespan.shutdown"})
        late = Context()
        async with asyncio.timeout(WAIT_SECONDS):
            while late.code is None:
                late_call = asyncio.create_task(started.replica.Translate(GOOD, late))
                await asyncio.wait([late_call], timeout=0.01)
                late_call.cancel()
        assert late.code is grpc.StatusCode.UNAVAILABLE
        assert started._said.empty()
        model.gate.set()
        assert (await accepted).translations


async def test_a_replica_with_a_hanging_model_is_unhealthy(run: Any) -> None:
    model = GatedModel(1)
    async with run(model, step_timeout_seconds=0.05) as started:
        await started.replica.check_health()
        model.gate.clear()
        call = asyncio.create_task(started.replica.Translate(LONG, Context()))
        await eventually(lambda: not started.replica._service.lifecycle.live)
        with pytest.raises(RuntimeError, match="model"):
            await started.replica.check_health()
        model.gate.set()
        await call


async def test_a_replica_with_a_failed_model_is_unhealthy(run: Any) -> None:
    model = FakeModel(1)
    async with run(model) as started:
        model.encode_error = RuntimeError("broken")
        for _ in range(3):
            assert await started.replica.Translate(GOOD, Context()) == Empty()
        with pytest.raises(RuntimeError, match="model"):
            await started.replica.check_health()


async def test_a_system_exit_becomes_an_error_that_ray_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise SystemExit("dragoman serve: --trace-endpoint: missing library")

    monkeypatch.setattr(f"{REPLICA}.configure_logs_and_traces", refuse)
    with pytest.raises(RuntimeError, match="--trace-endpoint"):
        await Replica(RaySettings()).__serve_build_asgi_app__()
