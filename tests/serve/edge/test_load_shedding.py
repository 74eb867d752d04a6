"""Load shedding before requests are read: with a fake clock, and over real connections."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest
from structlog.testing import capture_logs

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.edge import load_shedding
from dragoman.serve.errors import DeadlineExceededError, InvalidRequestError, QueueFullError
from dragoman.serve.observability.logs import RequestRecord
from tests.support.fake_bundles import LONG_TEXT
from tests.support.fakes import FakeClock
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

SLOTS, QUEUE_LIMIT = 12, 24
FEW = 1  # one eighth of the slots, rounded down


class ShedderUnderTest:
    """A load shedder with the CPU utilization of the test; None: not measured."""

    def __init__(self, models: int = 1, busy_share: float | None = 1.0) -> None:
        self.clock = FakeClock()
        self.models = models
        self.load_shedder = load_shedding.LoadShedder(self.rows, lambda: busy_share or 0.0, self.clock)
        if busy_share is not None:
            self.load_shedder.watch()

    def rows(self) -> tuple[int, int]:
        return self.models * SLOTS, self.models * (SLOTS + QUEUE_LIMIT)

    def room(self, caller: str = "") -> int:
        """Returns how many requests are accepted before one is rejected; all have left again."""
        with ExitStack() as inside:
            return self.fill(inside, caller)

    def fill(self, inside: ExitStack, caller: str) -> int:
        """Returns how many requests of a caller are accepted before one is rejected; they leave with `inside`."""
        for count in range(1000):
            try:
                inside.enter_context(self.load_shedder.enter(RequestRecord("id", network=caller), "translate"))
            except QueueFullError:
                return count
        raise AssertionError("no request was rejected")

    def end(self, error: BaseException | None = None, outcome: str = "ok") -> None:
        """Takes one request, which ends with an error or without."""
        try:
            with self.load_shedder.enter(RequestRecord("id", outcome), "translate"):
                if error is not None:
                    raise error
        except (InvalidRequestError, DeadlineExceededError, asyncio.CancelledError):
            pass

    def take(self, *seconds: float) -> None:
        """Takes requests that end after these times."""
        for duration in seconds:
            with self.load_shedder.enter(RequestRecord("id"), "translate"):
                self.clock.seconds += duration

    def be_late(self, times: int = 1) -> None:
        """Takes requests that miss their deadlines."""
        for _ in range(times):
            self.end(DeadlineExceededError("too late"))


def test_the_limit_is_running_and_waiting_rows_plus_a_few() -> None:
    assert ShedderUnderTest().room() == SLOTS + QUEUE_LIMIT + FEW
    assert ShedderUnderTest(models=2).room() == 2 * (SLOTS + QUEUE_LIMIT) + 3


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(DeadlineExceededError("too late"), "ok", id="by an error"),
        pytest.param(asyncio.CancelledError(), "deadline_exceeded", id="by gRPC"),
        pytest.param(None, "deadline_exceeded", id="by an event of the stream"),
    ],
)
def test_several_late_requests_shorten_the_queue(error: BaseException | None, outcome: str) -> None:
    shedder = ShedderUnderTest()
    for _ in range(load_shedding.SEVERAL_LATE):
        shedder.end(error, outcome)
    assert shedder.room() == SLOTS + FEW
    shedder.clock.seconds += load_shedding.STRAINED_SECONDS
    assert shedder.room() == SLOTS + QUEUE_LIMIT + FEW


def test_under_load_a_request_needs_the_time_that_the_fastest_quarter_took() -> None:
    shedder = ShedderUnderTest()
    assert shedder.load_shedder.has_room("", 0.001)
    shedder.take(0.4, 0.1, 0.2, 0.3)
    assert not shedder.load_shedder.has_room("", 0.19)
    assert shedder.load_shedder.has_room("", 0.21)
    assert shedder.load_shedder.has_room("", None)
    shedder.take(*[0.05] * load_shedding.ENDINGS)
    assert shedder.load_shedder.has_room("", 0.06)


def test_without_load_a_request_needs_no_time() -> None:
    shedder = ShedderUnderTest(busy_share=load_shedding.BUSY_SHARE / 2)
    shedder.take(0.1)
    assert shedder.load_shedder.has_room("", 0.0)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(None, "ok", id="answered"),
        pytest.param(InvalidRequestError("text", "empty"), "ok", id="invalid"),
        pytest.param(asyncio.CancelledError(), "cancelled", id="canceled"),
    ],
)
def test_requests_that_are_not_late_change_nothing(error: BaseException | None, outcome: str) -> None:
    shedder = ShedderUnderTest()
    for _ in range(2 * load_shedding.ENDINGS):
        shedder.end(error, outcome)
    assert shedder.room() == SLOTS + QUEUE_LIMIT + FEW


@pytest.mark.parametrize("busy_share", [None, load_shedding.BUSY_SHARE - 0.01, load_shedding.BUSY_SHARE])
def test_late_requests_change_nothing_unless_the_server_is_busy(busy_share: float | None) -> None:
    """Before the first measurement it is not."""
    shedder = ShedderUnderTest(busy_share=busy_share)
    shedder.be_late(load_shedding.SEVERAL_LATE)
    assert shedder.room() == SLOTS + FEW + (0 if busy_share == load_shedding.BUSY_SHARE else QUEUE_LIMIT)


def test_an_occasional_late_request_changes_nothing() -> None:
    shedder = ShedderUnderTest()
    for _ in range(10):
        shedder.be_late(load_shedding.SEVERAL_LATE - 1)
        for _ in range(load_shedding.ENDINGS):
            shedder.end()
    assert shedder.room() == SLOTS + QUEUE_LIMIT + FEW


def test_late_requests_never_stop_all_others() -> None:
    shedder = ShedderUnderTest()
    shedder.be_late(10 * load_shedding.ENDINGS)
    assert shedder.room() == SLOTS + FEW


def test_while_others_come_a_caller_has_half_of_the_places() -> None:
    shedder = ShedderUnderTest()
    places = SLOTS + QUEUE_LIMIT + FEW
    assert [shedder.room(caller) for caller in ("first", "second")] == [places, places // 2]
    with ExitStack() as inside:
        assert shedder.fill(inside, "first") == places // 2
        assert shedder.fill(inside, "second") == places // 2
        assert shedder.fill(inside, "third") == 1
    assert shedder.room("first") == places // 2


def test_a_caller_has_all_places_again_after_the_others_have_stopped() -> None:
    shedder = ShedderUnderTest()
    shedder.room("first")
    shedder.clock.seconds += load_shedding.COMING_SECONDS
    assert shedder.room("second") == SLOTS + QUEUE_LIMIT + FEW


def test_no_share_leaves_a_slot_idle() -> None:
    shedder = ShedderUnderTest()
    shedder.be_late(load_shedding.SEVERAL_LATE)
    shedder.room("other")
    assert shedder.room() == SLOTS + FEW


def test_the_utilization_is_that_of_the_process_per_cpu_or_of_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 2 s of time, 3 s of two CPUs and then 1.8 s of the thread; after no time nothing."""
    monkeypatch.setattr("dragoman.serve.edge.load_shedding.available_cpus", lambda: 2)
    clocks = {
        "monotonic": (5.0, 7.0, 9.0, 9.0),
        "process_time": (1.0, 4.0, 5.0, 5.0),
        "thread_time": (1.0, 1.5, 3.3, 3.3),
    }
    fakes = {name: iter(readings).__next__ for name, readings in clocks.items()}
    monkeypatch.setattr("dragoman.serve.edge.load_shedding.time", SimpleNamespace(**fakes))
    processor = load_shedding.Processor()
    assert [processor.busy_share() for _ in range(3)] == pytest.approx([0.75, 0.9, 0.0])


def test_rejected_requests_are_logged_once_with_their_number() -> None:
    load_shedder = ShedderUnderTest(busy_share=None).load_shedder
    with capture_logs() as logs, load_shedder.enter(RequestRecord("id"), "translate"):
        for _ in range(3):
            load_shedder.watch()
            load_shedder.refuse()
            load_shedder.refuse()
        load_shedder.watch()
        load_shedder.watch()
    assert [(entry["event"], entry["requests"], entry["inside"]) for entry in logs] == [("requests_shed", 2, 1)] * 3


@pytest.fixture
def model() -> GatedModel:
    return GatedModel(slots=2)


@pytest.fixture
def live(bundle_path: Path, model: GatedModel) -> Iterator[LiveService]:
    """A service for five requests in flight, and one that is being read or written."""
    with run_service(bundle_path, [model], queue_limit=3) as live:
        yield live


@pytest.fixture
def full(live: LiveService, model: GatedModel) -> Iterator[LiveService]:
    """The service with five blocked translations and a sixth request that is being read."""
    load_shedder = live.service.core.load_shedder
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(live.post, {"text": LONG_TEXT}) for _ in range(5)]
        eventually(lambda: load_shedder._inside == 5)
        with load_shedder.enter(RequestRecord("being read"), "translate"):
            yield live
        model.gate.set()
        assert [answer.result().status_code for answer in answers] == [200] * 5


def test_grpc_sheds_a_call_before_its_message_arrives(full: LiveService) -> None:
    """The rejected call is counted, keeps its id and gets a retry delay."""
    answered = threading.Event()

    def send_nothing() -> Iterator[bytes]:
        answered.wait(WAIT_SECONDS)
        yield b""

    with full.grpc_channel() as channel:
        call: Any = channel.stream_unary(TRANSLATE_METHOD)
        with pytest.raises(grpc.RpcError) as raised:
            call(send_nothing(), timeout=WAIT_SECONDS, metadata=(("x-request-id", "mine"),))
        answered.set()
    error: Any = raised.value
    trailers = dict(error.trailing_metadata())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailers["x-request-id"] == "mine"
    assert trailers["grpc-retry-pushback-ms"] == "1000"
    assert full.metric("requests_total", outcome="queue_full", protocol="grpc") == 1


def test_rest_sheds_a_request_before_its_body_is_read(full: LiveService) -> None:
    answer = full.post({"text": ""})
    assert answer.status_code == 429
    assert answer.json()["reason"] == "queue_full"
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_caller_that_fills_the_queue_leaves_places_to_another_address(
    live: LiveService, model: GatedModel, protocol: str
) -> None:
    """Of six places, three are the slots and one that is being read or written."""
    other = httpx.HTTPTransport(local_address="127.0.0.2")
    send: Callable[[], bool] = partial(_answers_rest if protocol == "rest" else _answers_grpc, live)
    with (
        httpx.Client(base_url=live.http_url, transport=other, timeout=WAIT_SECONDS) as client,
        ThreadPoolExecutor() as pool,
    ):

        def send_from_there() -> int:
            return client.post("/v1/translate", json={"text": LONG_TEXT}).status_code

        assert send_from_there() == 200
        model.gate.clear()
        first = [pool.submit(send) for _ in range(3)]
        eventually(lambda: live.service.core.load_shedder._inside == 3)
        assert not send()
        there = pool.submit(send_from_there)
        eventually(lambda: live.service.core.load_shedder._inside == 4)
        model.gate.set()
        assert [item.result() for item in first] == [True] * 3
        assert there.result() == 200


def _answers_rest(live: LiveService) -> bool:
    status = live.post({"text": LONG_TEXT}).status_code
    assert status in (200, 429)
    return status == 200


def _answers_grpc(live: LiveService) -> bool:
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        call = method.future(TranslateRequest(text=[LONG_TEXT]).SerializeToString(), timeout=WAIT_SECONDS)
        code = call.code()
    assert code in (grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return code is grpc.StatusCode.OK


def test_requests_without_translation_are_not_shed(full: LiveService) -> None:
    assert full.get("/healthz").status_code == 200
    assert full.get("/v1/models").status_code == 200
