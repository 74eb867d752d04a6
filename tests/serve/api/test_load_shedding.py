"""Who is let in before anything is read: by itself with a clock of its own, and over real connections."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from serve.api.grpc_call import abort
from serve.api.load_shedding import (
    ENDINGS,
    MOST_LATE,
    SEVERAL_LATE,
    SHUT_SECONDS,
    STRAINED_SECONDS,
    LoadShedder,
    Processor,
)
from serve.errors import DeadlineExceededError, InvalidRequestError, QueueFullError
from serve.observability.logs import RequestRecord
from serve.scheduler.scheduler import Scheduler
from tests.serve.scheduler.test_scheduler import make_scheduler
from tests.support.fakes import FakeClock
from tests.support.live import (
    LONG_TEXT,
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    eventually,
    run_service,
)

SLOTS, QUEUE_LIMIT = 8, 24
FEW = 1  # an eighth of the slots


class Door:
    """A turnstile whose CPUs are as busy as the test says."""

    def __init__(self, schedulers: int = 1) -> None:
        self.clock = FakeClock()
        self.busy_share = 1.0
        self.schedulers: list[Scheduler] = [make_scheduler(SLOTS, QUEUE_LIMIT) for _ in range(schedulers)]
        self.load_shedder = LoadShedder(lambda: self.schedulers, lambda: self.busy_share, self.clock)
        self.load_shedder.watch()

    def room(self) -> int:
        """Returns how many come in before one is refused; all have left again."""
        with ExitStack() as inside:
            for count in range(1000):
                try:
                    inside.enter_context(self.load_shedder.enter(RequestRecord("id"), "translate"))
                except QueueFullError:
                    return count
        raise AssertionError("nobody was refused")

    def end(self, error: BaseException | None = None, outcome: str = "ok") -> None:
        """Lets one in that ends with an error, or well."""
        try:
            with self.load_shedder.enter(RequestRecord("id", outcome), "translate"):
                if error is not None:
                    raise error
        except (InvalidRequestError, DeadlineExceededError, asyncio.CancelledError):
            pass

    def be_late(self, times: int = 1) -> None:
        """Lets some in that come too late."""
        for _ in range(times):
            self.end(DeadlineExceededError("too late"))


def test_as_many_come_in_as_rows_run_and_wait_and_a_few_more_that_are_read_or_answered() -> None:
    assert Door().room() == SLOTS + QUEUE_LIMIT + FEW
    assert Door(schedulers=2).room() == 2 * (SLOTS + QUEUE_LIMIT + FEW)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(DeadlineExceededError("too late"), "ok", id="an error says so"),
        pytest.param(asyncio.CancelledError(), "deadline_exceeded", id="gRPC ends the call"),
        pytest.param(None, "deadline_exceeded", id="an event of the stream says so"),
    ],
)
def test_while_several_come_too_late_hardly_anything_may_wait(error: BaseException | None, outcome: str) -> None:
    authenticator = Door()
    for _ in range(SEVERAL_LATE):
        authenticator.end(error, outcome)
    assert authenticator.room() == SLOTS + FEW
    authenticator.clock.seconds += STRAINED_SECONDS
    assert authenticator.room() == SLOTS + QUEUE_LIMIT + FEW


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(None, "ok", id="answered"),
        pytest.param(InvalidRequestError("text", "empty"), "ok", id="invalid"),
        pytest.param(asyncio.CancelledError(), "cancelled", id="its client went away"),
    ],
)
def test_other_ends_change_nothing(error: BaseException | None, outcome: str) -> None:
    authenticator = Door()
    for _ in range(2 * ENDINGS):
        authenticator.end(error, outcome)
    assert authenticator.room() == SLOTS + QUEUE_LIMIT + FEW


def test_deadlines_that_are_too_short_for_an_idle_server_change_nothing_for_others() -> None:
    authenticator = Door()
    authenticator.busy_share = 0.5
    authenticator.load_shedder.watch()
    authenticator.be_late(2 * ENDINGS)
    assert authenticator.room() == SLOTS + QUEUE_LIMIT + FEW


def test_one_that_comes_too_late_now_and_then_changes_nothing() -> None:
    authenticator = Door()
    for _ in range(10):
        authenticator.be_late(SEVERAL_LATE - 1)
        for _ in range(ENDINGS):
            authenticator.end()
    assert authenticator.room() == SLOTS + QUEUE_LIMIT + FEW


def test_when_most_come_too_late_nobody_comes_in_for_a_moment() -> None:
    authenticator = Door()
    authenticator.be_late(MOST_LATE - 1)
    assert authenticator.load_shedder.open
    authenticator.be_late()
    assert authenticator.room() == 0
    authenticator.clock.seconds += SHUT_SECONDS
    assert authenticator.room() == SLOTS + FEW


def test_as_long_as_as_many_are_answered_the_door_stays_open() -> None:
    authenticator = Door()
    for _ in range(10 * ENDINGS):
        authenticator.be_late()
        authenticator.end()
        assert authenticator.load_shedder.open


def test_a_processor_tells_a_thread_that_computes_from_one_that_waits() -> None:
    """At most a CPU's worth, and nothing of it while asleep: shares, not times."""
    processor = Processor()
    time.sleep(0.2)
    asleep = processor.busy_share()
    until_seconds = time.thread_time() + 0.2
    while time.thread_time() < until_seconds:
        pass
    assert asleep < processor.busy_share()


class GoneContext:
    """A call whose client has gone: gRPC takes no status any more."""

    async def abort(self, *_: object) -> None:
        raise grpc.aio.InternalError("Failed execute_batch")


def test_a_client_that_has_gone_is_told_nothing() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(abort(GoneContext(), QueueFullError("full"), ()))  # type: ignore[arg-type]


@pytest.fixture
def model() -> GatedModel:
    return GatedModel(slots=2)


@pytest.fixture
def live(bundle_path: Path, model: GatedModel) -> Iterator[LiveService]:
    """A service with room for five requests, and for one more that is being read or answered."""
    with run_service(bundle_path, [model], queue_limit=3) as live:
        yield live


@pytest.fixture
def full(live: LiveService, model: GatedModel) -> Iterator[LiveService]:
    """The service while five translations stand still and a sixth request is being read."""
    load_shedder = live.service._load_shedder
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(live.post, {"text": LONG_TEXT}) for _ in range(5)]
        eventually(lambda: load_shedder._inside == 5)
        with load_shedder.enter(RequestRecord("being read"), "translate"):
            yield live
        model.gate.set()
        assert [answer.result().status_code for answer in answers] == [200] * 5


def test_over_grpc_what_does_not_fit_is_refused_before_its_message_comes(full: LiveService) -> None:
    """It is counted, keeps its id and is told when to come back."""
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


def test_over_rest_what_does_not_fit_is_refused_unread(full: LiveService) -> None:
    answer = full.post({"text": ""})
    assert answer.status_code == 429
    assert answer.json()["reason"] == "queue_full"
    assert answer.headers["retry-after"] == "1"


def test_who_asks_for_anything_but_a_translation_is_answered_all_the_same(full: LiveService) -> None:
    assert full.get("/healthz").status_code == 200
    assert full.get("/v1/models").status_code == 200
