"""Admission over real connections: bounded by the available room, before texts are tokenized."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.errors import DeadlineUnmeetableError, QueueTimeoutError
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.promises import Measured

SLOTS, QUEUE_LIMIT = 2, 3
ROOM = SLOTS + QUEUE_LIMIT
OK = "ok"


class CountingTokenizer:
    """A tokenizer that counts its texts."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.texts: list[str] = []

    def encode_all(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        return self._tokenizer.encode_all(texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.fixture
def model() -> GatedModel:
    return GatedModel(SLOTS)


@pytest.fixture
def live(bundle_path: Path, model: GatedModel) -> Iterator[LiveService]:
    with run_service(bundle_path, [model], queue_limit=QUEUE_LIMIT) as live:
        yield live


def grpc_outcome(live: LiveService, *texts: str, timeout: float = WAIT_SECONDS) -> str:
    try:
        live.call(TranslateRequest(text=texts), timeout)
    except grpc.RpcError as error:
        trailers: Any = error.trailing_metadata()
        pushback = dict(trailers).get("grpc-retry-pushback-ms")
        return f"{error.code().name}, again after {pushback} ms"
    return OK


def rest_outcome(live: LiveService, *texts: str) -> str:
    answer = live.post({"text": list(texts)})
    if answer.status_code == 200:
        return OK
    return f"{answer.status_code} {answer.json()['reason']}, again after {answer.headers.get('retry-after')} s"


REFUSED = {grpc_outcome: "RESOURCE_EXHAUSTED, again after 1000 ms", rest_outcome: "429 queue_full, again after 1 s"}


@pytest.mark.promise("R8")
@pytest.mark.promise("R9")
@pytest.mark.promise("R13")
@pytest.mark.parametrize("send", REFUSED)
def test_a_burst_is_let_in_up_to_the_bound_and_only_that_is_tokenized(
    live: LiveService, model: GatedModel, send: Callable[..., str], measured: Measured
) -> None:
    """Of ten times as many requests as fit, all surplus ones are refused while the others still run."""
    translator = live.pipeline.translator
    tokenizer = CountingTokenizer(translator._model.tokenizer)
    translator._model = replace(translator._model, tokenizer=tokenizer)
    model.gate.clear()
    burst = 10 * ROOM
    with ThreadPoolExecutor(burst) as pool:
        answers = [pool.submit(send, live, LONG_TEXT) for _ in range(burst)]
        eventually(lambda: sum(map(Future.done, answers)) == burst - ROOM)
        assert {answer.result() for answer in answers if answer.done()} == {REFUSED[send]}
        model.gate.set()
    assert sorted(answer.result() for answer in answers) == sorted([OK] * ROOM + [REFUSED[send]] * (burst - ROOM))
    live.settle()
    assert len(tokenizer.texts) == ROOM
    assert live.metric("requests_total", outcome="queue_full") == burst - ROOM
    name, refused = send.__name__.partition("_")[0], burst - ROOM
    measured("R8", f"{name}: {refused} of {burst} refused while the other {ROOM} were still held")
    measured("R9", f"{name}: {len(tokenizer.texts)} of {burst} texts tokenized, {ROOM} let in")
    measured("R13", f"{name}: {refused} of {refused} refusals say when to come back")


def test_a_page_is_let_in_text_by_text_and_needs_room_for_its_sentences(live: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        accepted = [pool.submit(rest_outcome, live, LONG_TEXT) for _ in range(ROOM - 1)]
        eventually(lambda: live.metric("sequences_waiting") + live.metric("sequences_running") == ROOM - 1)
        assert rest_outcome(live, "Alpha beta. Gamma delta.") == REFUSED[rest_outcome]
        last = pool.submit(rest_outcome, live, LONG_TEXT)  # the reserved rows of the page are free again
        eventually(lambda: live.metric("sequences_waiting") + live.metric("sequences_running") == ROOM)
        model.gate.set()
        assert {answer.result() for answer in [*accepted, last]} == {OK}


@pytest.mark.promise("R9")
def test_what_is_refused_for_its_text_keeps_no_room(live: LiveService) -> None:
    for _ in range(2 * ROOM):
        assert live.post({"text": "alpha " * 200, "split_sentences": False}).json()["reason"] == "invalid"
    assert rest_outcome(live, *["alpha."] * ROOM) == OK


@pytest.mark.promise("R15")
def test_an_unmeetable_deadline_costs_no_encoding(live: LiveService, model: GatedModel, measured: Measured) -> None:
    model.gate.clear()
    model.stepping.clear()
    with ThreadPoolExecutor() as pool:
        occupied = [pool.submit(grpc_outcome, live, LONG_TEXT, timeout=15.0) for _ in range(ROOM - 1)]
        eventually(lambda: live.metric("sequences_waiting") + live.metric("sequences_running") == ROOM - 1)
        assert model.stepping.wait(WAIT_SECONDS)
        now_seconds = time.monotonic()
        for ago_seconds in (20.0, 10.0):  # two waiting rows take 20 s longer
            live.scheduler._throughput.free(now_seconds - ago_seconds, 1)
        encoded = live.metric("engine_step_seconds_count", phase="encode")
        assert grpc_outcome(live, "alpha.", timeout=18.0) == "RESOURCE_EXHAUSTED, again after 1000 ms"
        refused = live.post({"text": "alpha."}, headers={"x-request-timeout-ms": "18000"})
        assert (refused.status_code, refused.json()["reason"]) == (429, DeadlineUnmeetableError.reason)
        measured("R15", f"refused after {refused.elapsed.total_seconds() * 1000:.0f} ms, encoder runs for it: 0")
        assert live.metric("engine_step_seconds_count", phase="encode") == encoded
        model.gate.set()
        assert {answer.result() for answer in occupied} == {OK}
    live.settle()
    assert live.metric("requests_total", outcome=DeadlineUnmeetableError.reason) == 2


@pytest.mark.promise("R16")
def test_a_wait_longer_than_the_queue_timeout_is_refused(bundle_path: Path, model: GatedModel) -> None:
    timeout_seconds = 5.0
    limits: dict[str, Any] = {"queue_limit": QUEUE_LIMIT, "queue_timeout_seconds": timeout_seconds}
    with run_service(bundle_path, [model], leaping=True, **limits) as live:
        with ThreadPoolExecutor() as pool:
            model.gate.clear()
            running = pool.submit(rest_outcome, live, LONG_TEXT)
            eventually(lambda: live.metric("sequences_running") == 1)
            waiting = pool.submit(rest_outcome, live, "alpha.")
            eventually(lambda: live.metric("sequences_waiting") == 1)
            live.leap(timeout_seconds)
            model.gate.set()
            assert (waiting.result(), running.result()) == ("429 queue_timeout, again after 1 s", OK)
        live.settle()
        assert live.metric("requests_total", outcome=QueueTimeoutError.reason) == 1
        assert live.metric("sequences_finished_total", reason=QueueTimeoutError.reason) == 1
