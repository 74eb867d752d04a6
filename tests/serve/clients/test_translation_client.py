"""Both translation clients against real servers: values, errors, deadlines, retries, replicas, TLS and keys."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.clients import errors
from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.channel import ClientSettings
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.response import TranslationDelta
from tests.support.cases import cases
from tests.support.certificates import Authority
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

CASES = cases(__file__)

PATIENT = ClientSettings(timeout_seconds=WAIT_SECONDS)
IMPATIENT = replace(PATIENT, retries=False)

# Calls a method of either client and returns its result; for a stream, a list.
Ask = Callable[..., Any]


STREAMS = ("stream", "translate_many")


def ask_blocking(target: str, settings: ClientSettings, method: str, *arguments: Any, **asking: Any) -> Any:
    with TranslationClient.open(target, settings) as client:
        answer = getattr(client, method)(*arguments, **asking)
        return list(answer) if method in STREAMS else answer


def ask_async(target: str, settings: ClientSettings, method: str, *arguments: Any, **asking: Any) -> Any:
    async def ask() -> Any:
        async with AsyncTranslationClient.open(target, settings) as client:
            answer = getattr(client, method)(*arguments, **asking)
            return [item async for item in answer] if method in STREAMS else await answer

    return asyncio.run(ask())


@pytest.fixture(params=[ask_blocking, ask_async], ids=["blocking", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """A client of either kind."""
    client: Ask = request.param
    return client


def comparable(content: Any) -> Any:
    """Drops times and empty values: a message does not distinguish an absent list from an empty one."""
    if is_dataclass(content) and not isinstance(content, type):
        return comparable(asdict(content))
    if isinstance(content, dict):
        named = {name: comparable(value) for name, value in content.items() if name != "timings"}
        return {name: value for name, value in named.items() if value not in (None, [])}
    return [comparable(item) for item in content] if isinstance(content, list | tuple) else content


@pytest.mark.parametrize("options", CASES["a response has every value"])
def test_a_response_has_every_value(letters_live: LiveService, ask: Ask, options: dict[str, Any]) -> None:
    """Equal to the REST response, bit for bit."""
    texts = ["ab ba", "abba"]
    expected = letters_live.post({"text": texts, "options": options}).json()
    answer = ask(letters_live.grpc_target, PATIENT, "translate", texts, options=SearchFields.model_validate(options))
    assert answer.timings.total_seconds > 0
    assert comparable(answer) == comparable(expected)


def test_every_argument_is_sent(letters_live: LiveService, ask: Ask) -> None:
    languages = {"source_language": "en", "target_language": "de"}
    asking = {**languages, "split_sentences": False, "target_prefix": ["ab"], "model": "fake"}
    expected = letters_live.post({"text": ["ab. ba."], **asking}).json()
    assert comparable(ask(letters_live.grpc_target, PATIENT, "translate", "ab. ba.", **asking)) == comparable(expected)
    with pytest.raises(errors.BadRequestError, match="source_language"):
        ask(letters_live.grpc_target, PATIENT, "translate", "ab", source_language="fr")


def test_pairs_get_scores(letters_live: LiveService, ask: Ask) -> None:
    expected = letters_live.post({"pairs": [{"text": "ab ba", "translation": "ba"}]}, path="/v1/score").json()
    answer = ask(letters_live.grpc_target, PATIENT, "score", [("ab ba", "ba")], model="fake")
    assert comparable(answer) == comparable(expected)


def test_a_stream_ends_with_the_response(letters_live: LiveService, ask: Ask) -> None:
    *deltas, last = ask(letters_live.grpc_target, PATIENT, "stream", "ab ba")
    assert all(isinstance(delta, TranslationDelta) for delta in deltas)
    assert "".join(delta.text for delta in deltas) == last.translations[0].text
    assert deltas[-1].finish_reason == last.translations[0].finish_reason
    assert comparable(last) == comparable(ask(letters_live.grpc_target, PATIENT, "translate", "ab ba"))


def test_an_invalid_request_names_its_fields(letters_live: LiveService, ask: Ask) -> None:
    with pytest.raises(errors.BadRequestError) as raised:
        ask(letters_live.grpc_target, PATIENT, "translate", ["fine", " "])
    error = raised.value
    assert [violation.field for violation in error.violations] == ["text[1]"]
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
    assert error.violations[0].description in str(error)
    assert len(error.request_id) == 32
    assert error.retry_after_seconds is None


@pytest.mark.parametrize("method", ["translate", "stream"])
def test_an_unknown_model_has_its_own_error(letters_live: LiveService, ask: Ask, method: str) -> None:
    with pytest.raises(errors.NoSuchModelError) as raised:
        ask(letters_live.grpc_target, PATIENT, method, "ab", model="none")
    assert raised.value.reason == "MODEL_NOT_FOUND"


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("method", "requested"), [("translate", "a"), ("stream", "a"), ("score", [("a", "b")]), ("translate_many", ["a"])]
)
def test_an_unreachable_server_is_unavailable(ask: Ask, method: str, requested: Any) -> None:
    with pytest.raises(errors.UnavailableError):
        ask(closed_port(), IMPATIENT, method, requested)


def test_a_client_can_wait_for_a_server(ask: Ask) -> None:
    with pytest.raises(errors.TooLateError):
        ask(closed_port(), replace(IMPATIENT, wait_for_ready=True, timeout_seconds=0.2), "translate", "a")


def test_a_full_queue_sends_its_retry_delay(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(gated.call, TranslateRequest(text=[LONG_TEXT, LONG_TEXT]))
        assert model.stepping.wait(WAIT_SECONDS)
        with pytest.raises(errors.OverloadedError) as raised:
            ask(gated.grpc_target, IMPATIENT, "translate", "alpha")
        model.gate.set()
        accepted.result(WAIT_SECONDS)
    assert (raised.value.reason, raised.value.retry_after_seconds) == ("QUEUE_FULL", 1.0)


@contextmanager
def server_that(handle: Callable[[grpc.ServicerContext], bytes]) -> Iterator[str]:
    """Runs a gRPC server with the given Translate method; yields its target."""
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        method: Any = grpc.unary_unary_rpc_method_handler(lambda _, context: handle(context))
        name = TRANSLATE_METHOD.split("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name[1], {name[2]: method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


PUSHBACK_SECONDS = 0.2


def refuse(context: grpc.ServicerContext, pushback_ms: int) -> bytes:
    context.set_trailing_metadata((("grpc-retry-pushback-ms", str(pushback_ms)),))
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")


def test_a_retry_follows_the_pushback(ask: Ask) -> None:
    """Catalog item R13: never earlier than the pushback."""
    tries: list[float] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        tries.append(time.monotonic())
        if len(tries) < 5:
            return refuse(context, int(PUSHBACK_SECONDS * 1000))
        return TranslateResponse(model="at last").SerializeToString()

    with server_that(handle) as target:
        assert ask(target, PATIENT, "translate", "a").model == "at last"
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert len(waits) == 4
    assert min(waits) >= 0.9 * PUSHBACK_SECONDS


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        (lambda context: refuse(context, -1), errors.OverloadedError),
        (lambda context: context.abort(grpc.StatusCode.INTERNAL, "broken"), errors.ServerFailedError),
    ],
    ids=["negative pushback", "permanent error"],
)
def test_some_errors_are_not_retried(ask: Ask, fail: Callable[[Any], bytes], kind: type[errors.CallError]) -> None:
    tries: list[None] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        tries.append(None)
        return fail(context)

    with server_that(handle) as target, pytest.raises(kind):
        ask(target, PATIENT, "translate", "a")
    assert len(tries) == 1


@dataclass(frozen=True)
class FakeContext:
    """A call being served with the given remaining time."""

    seconds: float | None

    def time_remaining(self) -> float | None:
        return self.seconds


@pytest.mark.promise("R21")
@pytest.mark.parametrize(
    ("asking", "seconds"),
    [
        ({}, 30),
        ({"call": FakeContext(None)}, 30),
        ({"timeout_seconds": 7}, 7),
        ({"timeout_seconds": 7, "call": FakeContext(9)}, 7),
        ({"timeout_seconds": 7, "call": FakeContext(5.5)}, 5.5),
        ({"call": FakeContext(100)}, 100),
    ],
)
def test_the_shortest_time_limit_holds(ask: Ask, asking: dict[str, Any], seconds: float) -> None:
    """The sent timeout is rounded up by at most a hundredth."""
    seen: list[float] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        seen.append(context.time_remaining())
        return b""

    with server_that(handle) as target:
        ask(target, ClientSettings(), "translate", "a", **asking)
        ask(target, ClientSettings(), "translate", "a", deadline_seconds=time.monotonic() + seconds)
    for remaining_seconds in seen:
        assert 0.31 * seconds < remaining_seconds <= 1.01 * seconds


@pytest.mark.promise("R21")
@pytest.mark.parametrize(
    "asking", [{"timeout_seconds": 0}, {"call": FakeContext(-1)}, {"deadline_seconds": time.monotonic()}]
)
@pytest.mark.parametrize("method", ["translate", "stream", "translate_many"])
def test_a_call_without_time_left_is_not_sent(ask: Ask, method: str, asking: dict[str, Any]) -> None:
    with pytest.raises(errors.TooLateError):
        ask(closed_port(), PATIENT, method, ["a"], **asking)


@pytest.mark.promise("R21")
def test_a_nested_call_ends_with_its_caller(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    """Its own time limit is much longer."""
    model.gate.clear()
    left_seconds: list[float] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        begun_seconds = time.monotonic()
        with pytest.raises(errors.TooLateError):
            ask(gated.grpc_target, PATIENT, "translate", LONG_TEXT, call=context)
        left_seconds.append(WAIT_SECONDS - (time.monotonic() - begun_seconds))
        return b""

    with server_that(handle) as target, grpc.insecure_channel(target) as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        with suppress(grpc.RpcError):  # an answer just before the deadline may still arrive
            method(b"", timeout=1.0)
        eventually(lambda: left_seconds != [])
    assert left_seconds[0] > WAIT_SECONDS / 2


def test_a_client_uses_tls_and_a_key(bundle_path: Path, tmp_path: Path, ask: Ask) -> None:
    authority = Authority(tmp_path)
    secure = authority.settings()
    with run_service(bundle_path, **secure, tls_client_ca_file=authority.file, api_keys="secret") as live:
        mine = authority.issue("client", "somebody")
        files: Any = {"ca_file": authority.file, "certificate_file": mine["certificate"], "key_file": mine["key"]}
        settings = replace(PATIENT, **files, api_key="secret", server_name="localhost")
        assert ask(live.grpc_target, settings, "translate", "alpha").translations
        assert [item.get().model for item in ask(live.grpc_target, settings, "translate_many", ["alpha"])] == ["fake"]
        for wrong in (None, "other"):
            for method in ("translate", "stream", "translate_many"):
                with pytest.raises(errors.KeyRefusedError):
                    ask(live.grpc_target, replace(settings, api_key=wrong), method, ["alpha"])
        with pytest.raises(errors.UnavailableError):
            ask(live.grpc_target, replace(IMPATIENT, ca_file=authority.file), "translate", "alpha")
        assert "secret" not in repr(settings)


def test_a_missing_file_is_an_os_error(tmp_path: Path, ask: Ask) -> None:
    with pytest.raises(FileNotFoundError):
        ask(closed_port(), replace(PATIENT, ca_file=tmp_path / "none"), "translate", "alpha")


def test_calls_alternate_between_replicas_and_avoid_one_that_shuts_down(bundle_path: Path) -> None:
    """No call fails without retries, because the replica announces its shutdown in time."""
    settings = replace(IMPATIENT, balanced=True, wait_for_ready=True)
    with run_service(bundle_path, lame_duck_seconds=WAIT_SECONDS) as going, run_service(bundle_path) as staying:
        with TranslationClient.open(f"ipv4:{going.grpc_target},{staying.grpc_target}", settings) as client:

            def new_requests(live: LiveService) -> float:
                before = live.metric("requests_total")
                for _ in range(6):
                    client.translate("alpha")
                return live.metric("requests_total") - before

            eventually(lambda: 0 < new_requests(going) < 6)
            going.stop()
            eventually(lambda: new_requests(going) == 0)
        for live in (going, staying):
            live.settle()
            assert live.metric("requests_total", outcome="ok") == live.metric("requests_total")
        going.abandon()


@pytest.mark.parametrize(("balanced", "retries"), list(product([False, True], repeat=2)))
def test_grpc_accepts_the_service_config(*, balanced: bool, retries: bool) -> None:
    """An invalid service config fails the first call."""
    settings = replace(PATIENT, balanced=balanced, retries=retries, wait_for_ready=True, timeout_seconds=0.05)
    with pytest.raises(errors.TooLateError):
        ask_blocking(closed_port(), settings, "translate", "a")


def test_an_error_without_details_is_typed(ask: Ask) -> None:
    """A proxy answers with a bare status, or with details of another status."""

    def handle(context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x05"),))
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "why")

    with server_that(handle) as target, pytest.raises(errors.BadRequestError) as raised:
        ask(target, PATIENT, "translate", "a")
    error: errors.CallError = raised.value
    assert (error.message, error.reason, error.violations, error.request_id) == ("why", "", (), "")
