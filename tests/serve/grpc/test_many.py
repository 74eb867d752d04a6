"""`TranslateMany` over real connections: reading, responses, and requests without a response."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from dragoman.loadtest.clients import OK, Targets, open_clients
from dragoman.loadtest.scenario import LoadRequest, RequestKind
from dragoman.protos.translation_pb2 import SearchOptions, TranslateManyRequest, TranslateRequest
from dragoman.serve.edge.load_shedding import Arrivals
from dragoman.serve.grpc.many import ManyStream
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
from dragoman.serve.scheduler.sequence import DecodingSequence
from tests.support.calls import failure_of
from tests.support.conversation import Conversation, converse
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import (
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    eventually,
    keep_busy,
    run_service,
)


@pytest.fixture(autouse=True, params=["alone", "together"])
def busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the server is busy, so that requests that arrive together share jobs. The rules are the same."""
    together: bool = request.param == "together"
    keep_busy(monkeypatch, busy=together)
    return together


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> list[list[DecodingSequence]]:
    """The sequences of each submission so far; tests forget those that check a model when it is loaded."""
    submitted, submit = list[list[DecodingSequence]](), RequestScheduler.submit

    def note(self: RequestScheduler, sequences: Any, *arguments: Any, **options: Any) -> None:
        submitted.append(list(sequences))
        submit(self, sequences, *arguments, **options)

    monkeypatch.setattr(RequestScheduler, "submit", note)
    return submitted


@contextmanager
def blocked(bundle_path: Path, slots: int = 1, **settings: Any) -> Iterator[tuple[LiveService, GatedModel]]:
    model = GatedModel(slots)
    with run_service(bundle_path, [model], **settings) as live:
        model.stepping.clear()
        model.gate.clear()
        yield live, model


def send_all(many: Conversation, count: int, text: str = LONG_TEXT) -> None:
    for number in range(count):
        many.send(str(number), text)


def count_of(live: LiveService, **labels: str) -> float:
    return live.metric("requests_total", method="translate_many", **labels)


def test_a_stream_at_its_maximum_duration_responds_to_read_requests(bundle_path: Path) -> None:
    """The connection is about to close; no accepted request may be lost."""
    age_seconds = WAIT_SECONDS / 3
    limits = {"leaping": True, "grpc_max_connection_age_seconds": age_seconds}
    with blocked(bundle_path, 2, **limits) as (live, model), converse(live) as many:
        send_all(many, 2)
        eventually(lambda: live.metric("inflight_requests") == 2)
        live.leap(age_seconds)
        model.gate.set()
        assert {many.receive().id, many.receive().id} == {"0", "1"}
        assert many.failure() is grpc.StatusCode.UNAVAILABLE
        live.settle()
        assert count_of(live, outcome="ok") == 2


def test_the_load_generator_resends_unanswered_requests_on_a_new_stream(bundle_path: Path) -> None:
    async def ask(target: str) -> list[str]:
        request = LoadRequest((LONG_TEXT,), RequestKind(protocol="grpc-many", timeout_seconds=WAIT_SECONDS))
        async with open_clients(Targets(target, "", 1), {"grpc-many"}) as client:
            asking = []
            for _ in range(40):
                asking.append(asyncio.create_task(client.send(request)))
                await asyncio.sleep(0.02)
            return [answer.outcome for answer in await asyncio.gather(*asking)]

    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.3}
    with run_service(bundle_path, [GatedModel(4)], **ages) as live, capture_logs() as logs:
        assert asyncio.run(ask(live.grpc_target)) == [OK] * 40
        live.settle()
        assert count_of(live, outcome="ok") == 40
        # The server notices the end of a stream a moment after the client has left.
        eventually(lambda: len([log for log in logs if log["event"] == "stream"]) > 1)


def test_responses_equal_those_of_single_requests(live: LiveService) -> None:
    options = SearchOptions(beam_size=3, hypotheses=2)
    requests = {
        "one": TranslateRequest(text=["alpha beta."]),
        "two": TranslateRequest(text=[LONG_TEXT, "one two three."], options=SearchOptions(max_target_tokens=2)),
        "three": TranslateRequest(text=["house garden."], options=options, source_language="en"),
    }
    expected = {name: list(live.call(request).translations) for name, request in requests.items()}
    with converse(live) as many:
        for name, request in requests.items():
            many.send_bytes(TranslateManyRequest(id=name, request=request).SerializeToString())
        answers = many.rest()
    assert {name: list(answer.response.translations) for name, answer in answers.items()} == expected
    assert {answer.response.model for answer in answers.values()} == {"fake"}


@pytest.fixture
def two_slots(bundle_path: Path) -> Iterator[tuple[LiveService, list[GatedModel]]]:
    """Two blocked engines of one slot and a queue of one; a stream may have three unanswered texts."""
    models = [GatedModel(1), GatedModel(1)]
    with run_service(bundle_path, models, queue_limit=1, stream_unanswered_texts=3) as service:
        for model in models:
            model.stepping.clear()
            model.gate.clear()
        yield service, models


def test_a_short_text_overtakes_a_long_one(two_slots: tuple[LiveService, list[GatedModel]]) -> None:
    live, models = two_slots
    with converse(live) as many:
        many.send("held", LONG_TEXT)
        eventually(lambda: any(model.stepping.is_set() for model in models))
        holding, free = models if models[0].stepping.is_set() else models[::-1]
        free.gate.set()
        many.send("free", "alpha beta.")
        assert many.receive().id == "free"
        holding.gate.set()
        assert many.rest().keys() == {"held"}


def test_requests_that_arrive_together_share_a_job(
    live: LiveService, submissions: list[list[DecodingSequence]], busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike ones and those that ask for more than words have their own. A server that is not busy waits for none."""

    async def wait_for_all(_: Arrivals) -> None:
        await asyncio.sleep(0.5 * busy)

    monkeypatch.setattr(Arrivals, "come_first", wait_for_all)
    submissions.clear()
    with converse(live) as many:
        for number in range(6):
            many.send(f"alike {number}", "alpha beta.", "one two. three.")
            many.send(f"other {number}", "house.", options=SearchOptions(beam_size=2))
            many.send(f"apart {number}", "house.", options=SearchOptions(beam_size=2, hypotheses=2))
        answers = many.rest()
    assert len(answers) == 18
    assert sum(map(len, submissions)) == 30
    assert not busy or max(map(len, submissions)) > 3
    assert all(answer.response.timings.total_seconds > 0 for answer in answers.values())


def test_a_short_text_of_a_shared_job_does_not_wait_for_a_long_one(
    bundle_path: Path, submissions: list[list[DecodingSequence]]
) -> None:
    with blocked(bundle_path, 2) as (live, model), converse(live) as many:
        submissions.clear()
        steps = threading.Semaphore(0)
        model.gate.wait = lambda timeout=None: steps.acquire(timeout=timeout)  # type: ignore[method-assign]
        many.send("long", LONG_TEXT)
        many.send("short", "alpha.")
        eventually(lambda: sum(map(len, submissions)) == 2)
        steps.release(8)
        assert many.receive().id == "short"
        steps.release(1000)
        assert many.rest().keys() == {"long"}


def test_a_failure_of_one_text_of_a_shared_job_affects_only_its_request(
    bundle_path: Path, submissions: list[list[DecodingSequence]]
) -> None:
    with blocked(bundle_path, 2) as (live, model), converse(live) as many:
        submissions.clear()
        many.send("failing", "house.")
        many.send("good", "one two three.", "alpha beta.")
        eventually(lambda: sum(map(len, submissions)) == 3)
        submissions[0][0].cancelled = True
        model.gate.set()
        answers = many.rest()
    assert failure_of(answers["failing"].error).reason == "cancelled"
    assert len(answers["good"].response.translations) == 2


def test_an_error_of_one_request_does_not_affect_others(live: LiveService) -> None:
    """The last ones are no messages; the errors are those of Translate."""
    with converse(live) as many:
        many.send("good", "alpha beta.")
        many.send("blank", "fine", " ")
        many.send("nothing")
        many.send("model", "alpha", model="none")
        many.send("late", "alpha", timeout_seconds=-1.0)
        many.send("later", "alpha", timeout_seconds=float("nan"))
        many.send_bytes(b"\x0a\x03id1" + b"\x12\x07\x0a\x02ok\x0a\x01\xff")
        many.send_bytes(b"\xff")
        many.send("too", "house garden.")
        answers = many.rest()
    assert {name for name, answer in answers.items() if answer.HasField("response")} == {"good", "too"}
    failures = {name: failure_of(answer.error) for name, answer in answers.items() if answer.HasField("error")}
    assert {name: (failure.reason, failure.field) for name, failure in failures.items()} == {
        "blank": ("invalid", "text[1]"),
        "nothing": ("invalid", "text"),
        "model": ("model_not_found", "model"),
        "late": ("invalid", "timeout_seconds"),
        "later": ("invalid", "timeout_seconds"),
        "id1": ("invalid", "text[1]"),
        "": ("invalid", "request"),
    }


def test_a_stream_is_read_up_to_the_limit_of_unanswered_texts(two_slots: tuple[LiveService, list[GatedModel]]) -> None:
    live, models = two_slots
    with converse(live) as many:
        send_all(many, 9)
        eventually(lambda: live.metric("inflight_requests") == 3)
        # Other requests are served meanwhile, so the event loop has had time to read on.
        assert live.get("/healthz").status_code == 200
        assert live.metric("inflight_requests") == 3
        for model in models:
            model.gate.set()
        assert len(many.rest()) == 9
    live.settle()
    assert count_of(live, outcome="ok") == 9


def test_a_stream_is_never_rejected_for_a_full_queue(gated: LiveService) -> None:
    """One slot and one place in the queue."""
    with converse(gated) as many:
        send_all(many, 30, "alpha beta.")
        answers = many.rest()
    assert len(answers) == 30
    assert all(answer.HasField("response") for answer in answers.values())
    gated.settle()
    assert count_of(gated) == count_of(gated, outcome="ok") == 30


def test_a_stream_leaves_half_of_the_queue_free(bundle_path: Path) -> None:
    """Half of the queue stays free, whatever the stream holds."""
    with blocked(bundle_path, queue_limit=4, stream_unanswered_texts=50) as (live, model), converse(live) as many:
        send_all(many, 50)
        eventually(lambda: live.metric("inflight_requests") == 50)
        eventually(lambda: live.metric("sequences_waiting") == 2)
        with live.call_stream(TranslateRequest(text=["one two."])) as other:
            eventually(lambda: live.metric("sequences_waiting") == 3)
            model.gate.set()
            list(other)
        assert len(many.rest()) == 50


def test_a_waiting_stream_does_not_block_another(bundle_path: Path) -> None:
    """The free half admits the first request of another stream, but no more of that stream."""
    with (
        blocked(bundle_path, queue_limit=4, stream_unanswered_texts=50) as (live, model),
        converse(live) as first,
        converse(live) as second,
    ):
        for stream, inflight, waiting in ((first, 9, 2), (second, 18, 3)):
            send_all(stream, 9)
            eventually(lambda inflight=inflight: live.metric("inflight_requests") == inflight)  # type: ignore[misc]
            eventually(lambda waiting=waiting: live.metric("sequences_waiting") == waiting)  # type: ignore[misc]
        model.gate.set()
        assert len(first.rest()) == len(second.rest()) == 9


def test_a_stream_has_the_fair_share_of_one_client(
    bundle_path: Path, submissions: list[list[DecodingSequence]]
) -> None:
    """A single request that arrives last starts before all but one of the stream's queued requests."""
    with (
        blocked(bundle_path, queue_limit=20, stream_unanswered_texts=9) as (live, model),
        live.grpc_channel() as channel,
        converse(live) as many,
    ):
        submissions.clear()
        send_all(many, 5, "alpha beta.")
        eventually(lambda: live.metric("sequences_waiting") == 4)
        method: Any = channel.unary_unary(TRANSLATE_METHOD, request_serializer=TranslateRequest.SerializeToString)
        alone = method.future(TranslateRequest(text=["house."]))
        eventually(lambda: live.metric("sequences_waiting") == 5)
        model.gate.set()
        assert alone.result(WAIT_SECONDS)
        assert len(many.rest()) == 5
    started = sorted(chain.from_iterable(submissions), key=lambda sequence: sequence.started_seconds)
    assert started.index(submissions[-1][0]) <= 2


def test_the_deadline_of_the_call_applies_to_its_requests(gated: LiveService, model: GatedModel) -> None:
    """The rule also holds for a request that waits for room."""
    model.gate.clear()
    with converse(gated, timeout=1.0) as many:
        send_all(many, 3)
        assert many.failure() is grpc.StatusCode.DEADLINE_EXCEEDED
    gated.settle()
    # The end of one request may let the server read another.
    eventually(lambda: count_of(gated) == count_of(gated, outcome="deadline_exceeded") > 0)


@pytest.mark.parametrize("queue_limit", [0, 1])
def test_a_late_request_gets_an_error_and_the_stream_continues(bundle_path: Path, queue_limit: int) -> None:
    """Whether it waits in the queue, or for room in the queue."""
    with blocked(bundle_path, queue_limit=queue_limit) as (live, model), converse(live) as many:
        many.send("held", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        many.send("late", LONG_TEXT, timeout_seconds=0.05)
        late = many.receive()
        assert (late.id, failure_of(late.error).reason) == ("late", "deadline_exceeded")
        model.gate.set()
        assert many.rest().keys() == {"held"}


def test_a_draining_server_responds_to_read_requests_and_ends_with_unavailable(
    gated: LiveService, model: GatedModel
) -> None:
    """An idle stream does not delay the shutdown."""
    with converse(gated) as idle, converse(gated) as many:
        idle.send("one", "alpha")
        assert idle.receive().id == "one"
        model.stepping.clear()
        model.gate.clear()
        many.send("read", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        gated.stop()
        eventually(gated.service._grpc._draining.done)
        assert idle.failure() is grpc.StatusCode.UNAVAILABLE
        model.gate.set()
        assert many.receive().HasField("response")
        assert many.failure() is grpc.StatusCode.UNAVAILABLE
        assert dict(many.call.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
    gated.join()
    assert count_of(gated) == 2


def test_a_stream_that_begins_while_the_server_starts_to_drain_ends_with_unavailable(
    gated: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain begins between the admission of the stream and its first read."""
    run = ManyStream.run

    async def drain_and_run(self: ManyStream) -> None:
        gated.service._grpc.drain()
        await run(self)

    monkeypatch.setattr(ManyStream, "run", drain_and_run)
    with converse(gated) as many:
        assert many.failure() is grpc.StatusCode.UNAVAILABLE


def test_requests_unfinished_at_the_drain_timeout_get_no_response(bundle_path: Path) -> None:
    with blocked(bundle_path, drain_seconds=0.05) as (live, model), converse(live) as many, capture_logs() as logs:
        many.send("held", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        live.stop()
        eventually(lambda: "drain_timed_out" in [log["event"] for log in logs])
        # An engine that is not stopping yet would finish the translation.
        eventually(lambda: all(engine._stopping for engine in live.engines))
        model.gate.set()
        assert many.failure() is grpc.StatusCode.UNAVAILABLE
    assert count_of(live, outcome="draining") == 1


def test_a_server_that_is_not_ready_rejects_streams(bundle_path: Path) -> None:
    model = GatedModel(1)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as live:
        with converse(live) as many:
            assert many.failure() is grpc.StatusCode.UNAVAILABLE
        live.settle()
        assert count_of(live, outcome="not_ready") == 1
        model.gate.set()


def test_requests_of_a_stream_have_separate_ids_in_the_log(live: LiveService) -> None:
    with capture_logs() as logs, converse(live, metadata=(("x-request-id", "mine"),)) as many:
        send_all(many, 2, "alpha")
        assert len(many.rest()) == 2
        assert dict(many.call.trailing_metadata())["x-request-id"] == "mine"
    assert {log["request_id"] for log in logs if log["event"] == "request"} == {"mine-1", "mine-2"}
    (stream,) = [log for log in logs if log["event"] == "stream"]
    assert (stream["request_id"], stream["requests"]) == ("mine", 2)
