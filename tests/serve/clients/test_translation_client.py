"""Both translation clients against real servers: values, errors, deadlines, retries, replicas, TLS and keys."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.translation_pb2 import TranslateRequest, TranslateResponse
from serve.clients.aio import AsyncTranslationClient
from serve.clients.channel import ClientSettings, service_config
from serve.clients.client import TranslationClient
from serve.clients.errors import (
    BadRequestError,
    CallError,
    FieldViolation,
    KeyRefusedError,
    NoSuchModelError,
    OverloadedError,
    ServerFailedError,
    TooLateError,
    UnavailableError,
)
from serve.translation.fields import SearchFields
from serve.translation.response import TranslationDelta
from tests.support.certificates import Authority
from tests.support.live import (
    LONG_TEXT,
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    eventually,
    run_service,
)

PATIENT = ClientSettings(timeout_seconds=WAIT_SECONDS)
IMPATIENT = replace(PATIENT, retries=False)

# Calls a method of either client and returns its result; for a stream, a list.
Ask = Callable[..., Any]


def ask_blocking(target: str, settings: ClientSettings, method: str, *arguments: Any, **asking: Any) -> Any:
    with TranslationClient.open(target, settings) as client:
        answer = getattr(client, method)(*arguments, **asking)
        return list(answer) if method in ("stream", "translate_many") else answer


def ask_async(target: str, settings: ClientSettings, method: str, *arguments: Any, **asking: Any) -> Any:
    async def ask() -> Any:
        async with AsyncTranslationClient.open(target, settings) as client:
            answer = getattr(client, method)(*arguments, **asking)
            if method not in ("stream", "translate_many"):
                return await answer
            async with aclosing(answer):
                return [each async for each in answer]

    return asyncio.run(ask())


@pytest.fixture(params=[ask_blocking, ask_async], ids=["blocking", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """A client of either kind."""
    client: Ask = request.param
    return client


def written(values: Any) -> Any:
    """Returns a response as REST writes it, without times."""
    content = json.loads(json.dumps(asdict(values)))
    return comparable(content)


def comparable(content: Any) -> Any:
    """Drops times and empty values: a message does not distinguish an absent list from an empty one."""
    if isinstance(content, dict):
        named = {name: comparable(value) for name, value in content.items() if name != "timings"}
        return {name: value for name, value in named.items() if value not in (None, [])}
    return [comparable(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 3, "hypotheses": 3, "token_scores": True, "alignments": True, "length_penalty": 0.5},
        {"temperature": 0.7, "seed": 3, "hypotheses": 2},
    ],
)
def test_every_value_of_an_answer_arrives(letters_live: LiveService, ask: Ask, options: dict[str, Any]) -> None:
    """Equal to the REST response, bit for bit."""
    expected = letters_live.post({"text": ["ab ba", "abba"], "options": options}).json()
    answer = ask(
        letters_live.grpc_target, PATIENT, "translate", ["ab ba", "abba"], options=SearchFields.model_validate(options)
    )
    assert answer.timings.total_seconds > 0
    assert written(answer) == comparable(expected)


def test_everything_that_is_asked_is_sent(letters_live: LiveService, ask: Ask) -> None:
    body = {
        "text": ["ab. ba."],
        "source_language": "en",
        "target_language": "de",
        "split_sentences": False,
        "target_prefix": ["ab"],
        "model": "fake",
    }
    expected = letters_live.post(body).json()
    asking = {name: value for name, value in body.items() if name != "text"}
    assert written(ask(letters_live.grpc_target, PATIENT, "translate", "ab. ba.", **asking)) == comparable(expected)
    with pytest.raises(BadRequestError, match="source_language"):
        ask(letters_live.grpc_target, PATIENT, "translate", "ab", source_language="fr")


def test_scores_arrive(letters_live: LiveService, ask: Ask) -> None:
    expected = letters_live.post({"pairs": [{"text": "ab ba", "translation": "ba"}]}, path="/v1/score").json()
    assert written(ask(letters_live.grpc_target, PATIENT, "score", [("ab ba", "ba")], model="fake")) == comparable(
        expected
    )


def test_a_stream_gives_deltas_and_at_last_the_answer(letters_live: LiveService, ask: Ask) -> None:
    *deltas, last = ask(letters_live.grpc_target, PATIENT, "stream", "ab ba")
    assert all(isinstance(delta, TranslationDelta) for delta in deltas)
    assert "".join(delta.text for delta in deltas) == last.translations[0].text
    assert deltas[-1].finish_reason == last.translations[0].finish_reason
    assert written(last) == written(ask(letters_live.grpc_target, PATIENT, "translate", "ab ba"))


def test_a_request_that_is_wrong_names_the_fields(letters_live: LiveService, ask: Ask) -> None:
    with pytest.raises(BadRequestError) as raised:
        ask(letters_live.grpc_target, PATIENT, "translate", ["fine", " "])
    error = raised.value
    assert error.violations == (FieldViolation("text[1]", "blank, expected a sentence"),)
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
    assert str(error) == "INVALID_ARGUMENT: text[1]: blank, expected a sentence"
    assert len(error.request_id) == 32
    assert error.retry_after_seconds is None


@pytest.mark.parametrize("method", ["translate", "stream"])
def test_a_model_that_is_not_there_is_an_error_of_its_own(letters_live: LiveService, ask: Ask, method: str) -> None:
    with pytest.raises(NoSuchModelError) as raised:
        ask(letters_live.grpc_target, PATIENT, method, "ab", model="none")
    assert raised.value.reason == "MODEL_NOT_FOUND"


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("method", ["translate", "stream", "score"])
def test_a_server_that_is_not_there_is_unavailable(ask: Ask, method: str) -> None:
    with pytest.raises(UnavailableError):
        ask(closed_port(), IMPATIENT, method, [("a", "b")] if method == "score" else "a")


def test_a_client_may_wait_for_a_server_instead(ask: Ask) -> None:
    with pytest.raises(TooLateError):
        ask(closed_port(), replace(IMPATIENT, wait_for_ready=True, timeout_seconds=0.2), "translate", "a")


def test_a_full_queue_is_told_with_the_time_to_come_back(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(gated.call, TranslateRequest(text=[LONG_TEXT, LONG_TEXT]))
        assert model.stepping.wait(WAIT_SECONDS)
        with pytest.raises(OverloadedError) as raised:
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


def test_a_retry_comes_when_the_server_says(ask: Ask) -> None:
    """Catalog item R13: never earlier than the pushback, and at most a tenth later."""
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
    assert 0.9 * PUSHBACK_SECONDS <= min(waits) <= 1.1 * PUSHBACK_SECONDS


def test_no_retry_comes_if_the_server_wants_none(ask: Ask) -> None:
    tries: list[float] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        tries.append(time.monotonic())
        return refuse(context, -1)

    with server_that(handle) as target, pytest.raises(OverloadedError):
        ask(target, PATIENT, "translate", "a")
    assert len(tries) == 1


def test_a_fault_that_no_retry_mends_is_not_tried_again(ask: Ask) -> None:
    tries: list[float] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        tries.append(time.monotonic())
        context.abort(grpc.StatusCode.INTERNAL, "broken")

    with server_that(handle) as target, pytest.raises(ServerFailedError):
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
        ({"context": FakeContext(None)}, 30),
        ({"timeout_seconds": 7}, 7),
        ({"timeout_seconds": 7, "context": FakeContext(9)}, 7),
        ({"timeout_seconds": 7, "context": FakeContext(5.5)}, 5.5),
        ({"context": FakeContext(100)}, 100),
    ],
)
def test_a_call_has_no_more_time_than_its_caller(ask: Ask, asking: dict[str, Any], seconds: float) -> None:
    """The sent timeout is rounded up by at most a hundredth."""
    seen: list[float] = []

    def handle(context: grpc.ServicerContext) -> bytes:
        seen.append(context.time_remaining())
        return b""

    with server_that(handle) as target:
        ask(target, ClientSettings(), "translate", "a", **asking)
        ask(target, ClientSettings(), "translate", "a", deadline_seconds=time.monotonic() + seconds)
    for remaining_seconds in seen:
        assert 0.5 * seconds < remaining_seconds <= 1.01 * seconds


@pytest.mark.promise("R21")
@pytest.mark.parametrize(
    "asking", [{"timeout_seconds": 0}, {"context": FakeContext(-1)}, {"deadline_seconds": time.monotonic()}]
)
@pytest.mark.parametrize("method", ["translate", "stream", "translate_many"])
def test_a_call_without_time_is_not_made(ask: Ask, method: str, asking: dict[str, Any]) -> None:
    with pytest.raises(TooLateError, match=r"^DEADLINE_EXCEEDED: "):
        ask(closed_port(), PATIENT, method, ["a"], **asking)


@pytest.mark.promise("R21")
def test_a_nested_call_ends_with_its_caller(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    """The remaining time is passed on, and its end is reported.

    One success in three tries is enough; the limit is far above the usual 5 ms, because other processes may delay the
    client.
    """
    model.gate.clear()
    tries, seconds, late_seconds = 3, 0.5, 0.1
    handled: list[None] = []
    late: list[float] = []
    passed_on: list[float] = []
    translate = gated.service._grpc._dispatcher.translate

    async def watch(request: Any, record: Any) -> Any:
        passed_on.append(request.deadline_seconds)
        return await translate(request, record)

    gated.service._grpc._dispatcher.translate = watch  # type: ignore[method-assign]

    def handle(context: grpc.ServicerContext) -> bytes:
        deadline_seconds = time.monotonic() + context.time_remaining()
        try:
            ask(gated.grpc_target, PATIENT, "translate", LONG_TEXT, context=context)
        except TooLateError:
            late.append(time.monotonic() - deadline_seconds)
            passed_on[-1] -= deadline_seconds
        finally:
            handled.append(None)
        return b""

    with server_that(handle) as target, grpc.insecure_channel(target) as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        for number in range(tries):
            # An answer just before the deadline may still arrive in time.
            with suppress(grpc.RpcError):
                method(b"", timeout=seconds)
            eventually(lambda number=number: len(handled) == number + 1)  # type: ignore[misc]
    assert min(map(abs, passed_on)) < late_seconds
    assert min(map(abs, late)) < late_seconds


def test_tls_and_a_key_are_given_to_the_client(bundle_path: Path, tmp_path: Path, ask: Ask) -> None:
    authority = Authority(tmp_path)
    secure = authority.settings()
    with run_service(bundle_path, **secure, tls_client_ca_file=authority.file, api_keys="secret") as live:
        mine = authority.issue("client", "somebody")
        settings = replace(
            PATIENT,
            ca_file=authority.file,
            certificate_file=mine["certificate"],
            key_file=mine["key"],
            api_key="secret",
            server_name="localhost",
        )
        assert ask(live.grpc_target, settings, "translate", "alpha").translations
        assert [each.get().model for each in ask(live.grpc_target, settings, "translate_many", ["alpha"])] == ["fake"]
        for wrong in (None, "other"):
            for method in ("translate", "stream", "translate_many"):
                with pytest.raises(KeyRefusedError):
                    ask(live.grpc_target, replace(settings, api_key=wrong), method, ["alpha"])
        with pytest.raises(UnavailableError):
            ask(live.grpc_target, replace(IMPATIENT, ca_file=authority.file), "translate", "alpha")
        assert "secret" not in repr(settings)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path, ask: Ask) -> None:
    with pytest.raises(FileNotFoundError):
        ask(closed_port(), replace(PATIENT, ca_file=tmp_path / "none"), "translate", "alpha")


def test_calls_take_turns_among_replicas_and_leave_out_one_that_goes(bundle_path: Path) -> None:
    """No call fails without retries, because the replica announces its shutdown in time."""
    with run_service(bundle_path, lame_duck_seconds=WAIT_SECONDS) as going, run_service(bundle_path) as staying:
        target = f"ipv4:{going.grpc_target},{staying.grpc_target}"
        with TranslationClient.open(target, replace(IMPATIENT, balanced=True, wait_for_ready=True)) as client:

            def answered_by_both() -> bool:
                client.translate("alpha")
                return min(live.metric("requests_total") for live in (going, staying)) > 3

            eventually(answered_by_both)
            going.stop()

            def left_alone() -> bool:
                before = going.metric("requests_total")
                for _ in range(6):
                    client.translate("alpha")
                return going.metric("requests_total") == before

            eventually(left_alone)
        going.settle()
        staying.settle()
        assert {
            live.metric("requests_total", outcome="ok") / live.metric("requests_total") for live in (going, staying)
        } == {1.0}
        going.abandon()


def test_the_service_config_is_the_one_that_gRPC_takes() -> None:  # noqa: N802
    """An invalid service config fails the first call."""
    for balanced in (False, True):
        for retries in (False, True):
            config = json.dumps(service_config(retries=retries, balanced=balanced, wait_for_ready=True))
            with grpc.insecure_channel(closed_port(), [("grpc.service_config", config)]) as channel:
                method: Any = channel.unary_unary(TRANSLATE_METHOD)
                with pytest.raises(grpc.RpcError) as raised:
                    method(b"", timeout=0.05)
            error: Any = raised.value
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, error


def test_an_error_without_details_is_typed_all_the_same(ask: Ask) -> None:
    """A proxy answers with a bare status, or with details of another status."""

    def handle(context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x05"),))
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "why")

    with server_that(handle) as target, pytest.raises(BadRequestError) as raised:
        ask(target, PATIENT, "translate", "a")
    error: CallError = raised.value
    assert (error.message, error.reason, error.violations, error.request_id) == ("why", "", (), "")
