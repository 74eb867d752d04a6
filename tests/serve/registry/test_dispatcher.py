"""Pivot translation over real connections: admission, streams, and requests that end early."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.conversation import Conversation, converse
from tests.support.fake_bundles import LONG_TEXT, direction, load_fakes, put_bundle
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

SLOTS, QUEUE_LIMIT = 1, 1
ROOM = SLOTS + QUEUE_LIMIT
STREAM = "/v1/translate/stream"
PAGE = f"alpha beta.\n{LONG_TEXT}"
FR_DE: dict[str, Any] = {"source_language": "fr", "target_language": "de", "allow_pivot": True}
LONG = {"text": LONG_TEXT, **FR_DE}
MESSAGE = TranslateRequest(text=[LONG_TEXT], **FR_DE)
Models = dict[str, GatedModel]


@pytest.fixture
def models() -> Models:
    """The model into the pivot language, and the one from it; both have gates."""
    return {name: GatedModel(SLOTS) for name in ("first", "second")}


@pytest.fixture
def folder(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    put_bundle(tmp_path / "first", tokenizer, direction("fr-en", 10))
    put_bundle(tmp_path / "second", tokenizer, direction("en-de", 16))
    return tmp_path


@pytest.fixture
def live(models: Models, folder: Path) -> Iterator[LiveService]:
    sizes: dict[str, Any] = {"engines": 1, "slots": SLOTS, "queue_limit": QUEUE_LIMIT}
    with run_service(folder, load=lambda _, bundle: [models[bundle.folder.name]], leaping=True, **sizes) as live:
        for model in models.values():
            model.prefills.clear()
        yield live
        for model in models.values():
            model.gate.set()


def load_of(live: LiveService, model: str) -> float:
    return live.metric("sequences_running", model=model) + live.metric("sequences_waiting", model=model)


def hold(live: LiveService, models: Models, pool: ThreadPoolExecutor, count: int) -> list[Any]:
    """Blocks the second model with requests of its own."""
    models["second"].gate.clear()
    requested = {"text": LONG_TEXT, "model": "second"}
    occupied = [pool.submit(live.post, requested) for _ in range(count)]
    eventually(lambda: load_of(live, "second") == count)
    return occupied


@pytest.mark.parametrize("text", [LONG_TEXT, PAGE])
def test_the_deltas_of_a_pivot_make_up_its_translation(live: LiveService, text: str) -> None:
    expected = live.post({**LONG, "text": text}).json()
    live.settle()  # the rows of the first request are free
    _, *lines = live.post({**LONG, "text": text}, path=STREAM).text.split("data: ")
    *deltas, result = [json.loads(line.partition("\n")[0]) for line in lines]
    assert (result["translations"], result["pivot"]) == (expected["translations"], expected["pivot"])
    assert "".join(delta["text"] for delta in deltas) == expected["translations"][0]["text"]
    live.settle()
    with live.call_stream(TranslateRequest(text=[text], **FR_DE)) as stream:
        *events, last = stream
    assert "".join(event.delta.text for event in events) == last.result.translations[0].text
    assert last.result.translations[0].text == expected["translations"][0]["text"]
    assert last.result.pivot.model == "first"


@pytest.mark.promise("R9")
def test_a_request_without_room_in_the_second_model_costs_the_first_nothing(live: LiveService, models: Models) -> None:
    with ThreadPoolExecutor() as pool:
        occupied = hold(live, models, pool, ROOM)
        for path in ("/v1/translate", STREAM):
            refused = live.post(LONG, path=path)
            assert (refused.status_code, refused.json()["reason"]) == (429, "queue_full")
        assert live.call_error(MESSAGE).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        models["second"].gate.set()
        assert {answer.result().status_code for answer in occupied} == {200}
    assert models["first"].prefills == []


@pytest.mark.promise("R9")
def test_places_in_the_second_model_are_reserved_while_the_first_translates(live: LiveService, models: Models) -> None:
    models["first"].gate.clear()
    with ThreadPoolExecutor() as pool:
        requested = pool.submit(live.post, LONG)
        eventually(lambda: load_of(live, "first") == 1)
        occupied = hold(live, models, pool, ROOM - 1)
        assert live.post({"text": "alpha.", "model": "second"}).json()["reason"] == "queue_full"
        models["first"].gate.set()
        eventually(lambda: load_of(live, "second") == ROOM)
        models["second"].gate.set()
        assert {answer.result().status_code for answer in [requested, *occupied]} == {200}


@pytest.mark.promise("R18")
@pytest.mark.parametrize("where", ["first", "second"])
def test_disconnects_during_a_pivot_free_all_rows(live: LiveService, models: Models, where: str) -> None:
    models[where].gate.clear()
    with live.grpc_channel() as channel:
        method: Any = channel.unary_stream("/dragoman.v1.TranslationService/TranslateStream")
        call = method(MESSAGE.SerializeToString(), timeout=WAIT_SECONDS)
        eventually(lambda: load_of(live, where) == 1)
        call.cancel()
        live.settle()
    models[where].gate.set()
    eventually(lambda: load_of(live, where) == 0)
    for name in models:
        assert live.post({"text": ["alpha."] * ROOM, "model": name}).status_code == 200


def fill(many: Conversation, texts: int, times: int, **fields: Any) -> list[int]:
    """Sends a request of some texts repeatedly; returns the number of translations of each response."""
    answered = []
    for number in range(times):
        many.send(str(number), *["alpha beta"] * texts, split_sentences=False, **fields)
        answered.append(len(many.receive().response.translations))
    return answered


@pytest.mark.promise("R9")
def test_a_stream_may_fill_both_models_again_and_again(folder: Path) -> None:
    """Rows of a request in one model count neither in the other model nor against later requests."""
    with run_service(folder, load=load_fakes, engines=1, slots=2, queue_limit=6) as live, converse(live) as many:
        assert fill(many, 8, 3, **FR_DE) == [8] * 3


def test_streams_in_opposite_directions_do_not_wait_for_each_other(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "romance", tokenizer, direction("fr-en", 7), direction("en-fr", 8))
    put_bundle(tmp_path / "teutonic", tokenizer, direction("de-en", 7), direction("en-de", 16))
    ways = [("fr", "de"), ("de", "fr")]
    with (
        run_service(tmp_path, load=load_fakes, engines=1, slots=2, queue_limit=2) as live,
        ThreadPoolExecutor() as pool,
        ExitStack() as streams,
    ):
        filled = []
        for source, target in ways:
            many = streams.enter_context(converse(live))
            pivot = {"source_language": source, "target_language": target, "allow_pivot": True}
            filled.append(pool.submit(fill, many, 4, 10, **pivot))
        assert [stream.result() for stream in filled] == [[4] * 10] * 2


def test_a_request_through_one_model_twice_does_not_compete_with_itself(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "both", tokenizer, direction("fr-en", 7), direction("en-de", 16))
    with run_service(tmp_path, load=load_fakes, engines=1, slots=2, queue_limit=2) as live, converse(live) as many:
        answer = live.post({"text": ["alpha beta"] * 4, "split_sentences": False, **FR_DE})
        assert len(answer.json()["translations"]) == 4
        assert fill(many, 4, 3, **FR_DE) == [4] * 3


def test_a_request_without_a_deadline_gets_one_for_both_translations(live: LiveService) -> None:
    sequences = live.count_submitted()
    before_seconds = time.monotonic()
    live.call(MESSAGE, timeout=None)
    assert len(sequences) == 2
    (deadline_seconds,) = {sequence.group.deadline_seconds for sequence in sequences}
    assert deadline_seconds is not None
    assert 30 <= deadline_seconds - before_seconds < 60


def test_both_translations_share_the_deadline(live: LiveService, models: Models) -> None:
    models["second"].gate.clear()
    with ThreadPoolExecutor() as pool:
        late = pool.submit(live.post, LONG, headers={"x-request-timeout-ms": "30000"})
        eventually(lambda: live.metric("sequences_running", model="second") == 1)
        live.leap(30.0)
        assert (late.result().status_code, late.result().json()["reason"]) == (504, "deadline_exceeded")
    models["second"].gate.set()
    eventually(lambda: load_of(live, "second") == 0)
    finished = "sequences_finished_total"
    eventually(lambda: live.metric(finished, model="second", reason="deadline_exceeded") == 1)
