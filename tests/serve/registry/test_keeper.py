"""Models that leave the memory, and come back with the next request, over real connections."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos import translation_pb2 as messages
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.engine.engine import ENGINE_THREAD
from dragoman.serve.runtime.placement import host_memory_bytes
from dragoman.serve.settings import ServeSettings
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.fakes import FakeModel
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

SIZES: dict[str, Any] = {"engines": 1, "slots": 2}
KEY = "key-of-the-operator"
HOUR: dict[str, Any] = {**SIZES, "model_idle_seconds": 3600}
MOMENT: dict[str, Any] = {**SIZES, "model_idle_seconds": 0.05}


@pytest.fixture
def folder(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    for name, pair in (("a", "en-de"), ("b", "de-cs"), ("c", "cs-en")):
        put_bundle(tmp_path / name, tokenizer, direction(pair, 7))
    return tmp_path


class Loads:
    """Loads fake models, counts the loads by model, and stops them while the gate is closed."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.gate = threading.Event()
        self.gate.set()
        self.given: dict[str, FakeModel] = {}

    def __call__(self, settings: ServeSettings, bundle: Bundle) -> list[FakeModel]:
        name = bundle.folder.name
        self.counts[name] += 1
        assert self.gate.wait(WAIT_SECONDS)
        return [self.given[name]] if name in self.given else load_fakes(settings, bundle)


@pytest.fixture
def loads() -> Loads:
    return Loads()


def room(folder: Path, models: int) -> int:
    """Returns a limit of memory for this many models of the folder."""
    return models * host_memory_bytes(Bundle.open(folder / "a"), SIZES["engines"], SIZES["slots"])


@contextmanager
def run(folder: Path, loads: Loads, **settings: Any) -> Iterator[tuple[LiveService, ThreadPoolExecutor]]:
    with ThreadPoolExecutor() as pool, run_service(folder, load=loads, admin_key=KEY, **settings) as live:
        yield live, pool
        loads.gate.set()


def ask(live: LiveService, model: str, **fields: Any) -> int:
    status: int = live.post({"text": "alpha beta", "model": model, **fields}).status_code
    return status


def states(live: LiveService) -> dict[str, str]:
    return {model["name"]: model["state"] for model in live.get("/v1/models").json()["models"]}


def present(live: LiveService) -> set[str]:
    return {model.name for model in live.service.models.present}


def test_all_models_are_verified_at_the_start_and_begin_with_their_first_request(folder: Path, loads: Loads) -> None:
    """No engine runs for a model without requests."""
    with run(folder, loads, **HOUR) as (live, _):
        assert live.get("/readyz").status_code == 200
        assert loads.counts == {"a": 1, "b": 1, "c": 1}
        assert not [item for item in threading.enumerate() if item.name == ENGINE_THREAD]
        assert states(live) == {"a": "unloaded", "b": "unloaded", "c": "unloaded"}
        assert ask(live, "b") == 200
        assert states(live) == {"a": "unloaded", "b": "ready", "c": "unloaded"}
        model = live.stub("GetModel", messages.GetModelRequest(name="a"), messages.Model)
        assert model.state == messages.MODEL_STATE_UNLOADED
        assert live.health("dragoman.v1.TranslationService/a") == "SERVING"


def test_a_model_is_loaded_once_however_many_ask_and_its_sentences_are_not_verified_again(
    folder: Path, loads: Loads
) -> None:
    with run(folder, loads, **HOUR) as (live, pool):
        verified = live.metric("sequences_finished_total", model="a")
        loads.gate.clear()
        asking = [pool.submit(ask, live, "a") for _ in range(5)]
        eventually(lambda: live.metric("model_waits_total", model="a") == 5)
        loads.gate.set()
        assert [item.result(WAIT_SECONDS) for item in asking] == [200] * 5
        assert loads.counts["a"] == 2
        assert live.metric("sequences_finished_total", model="a") == verified + 5
        assert live.metric("model_load_seconds_count", model="a") == 2


def test_a_request_that_waits_keeps_its_deadline_and_the_load_goes_on(folder: Path, loads: Loads) -> None:
    with run(folder, loads, **HOUR) as (live, pool):
        loads.gate.clear()
        patient = pool.submit(ask, live, "a")
        eventually(lambda: live.metric("model_waits_total", model="a") == 1)
        with live.http() as client:
            body = {"text": "alpha", "model": "a"}
            assert client.post("/v1/translate", json=body, headers={"x-request-timeout-ms": "50"}).status_code == 504
        loads.gate.set()
        assert patient.result(WAIT_SECONDS) == 200
        assert loads.counts["a"] == 2


def test_an_idle_model_leaves_and_comes_back(folder: Path, loads: Loads) -> None:
    with run(folder, loads, **MOMENT, own_settings={"b": {"pinned": True}}) as (live, _):
        for count in (2, 3):
            assert ask(live, "a") == 200
            assert loads.counts["a"] == count
            eventually(lambda: present(live) == {"b"})
        assert live.metric("model_evictions_total", model="a", cause="idle") == 2
        assert live.metric("model_memory_bytes") == live.metric("model_memory_bytes", model="b") > 0
        assert live.metric("slots", model="a") > 0, "its series stay"


def test_a_model_with_a_request_stays(folder: Path, loads: Loads) -> None:
    with run(folder, loads, **MOMENT) as (live, pool):
        loads.given["a"] = gated = GatedModel(2)
        gated.gate.clear()
        held = pool.submit(ask, live, "a")
        assert gated.stepping.wait(WAIT_SECONDS)
        time.sleep(0.3)
        assert present(live) == {"a"}
        gated.gate.set()
        assert held.result(WAIT_SECONDS) == 200
        eventually(lambda: not present(live))


def test_models_take_turns_within_the_memory_and_no_request_fails(folder: Path, loads: Loads) -> None:
    """Three models of which two fit, each for several clients at once."""
    with run(folder, loads, **SIZES, memory_limit=room(folder, 2)) as (live, pool):
        asked = [pool.submit(ask, live, name) for _ in range(20) for name in "abc"]
        most = 0
        while not all(item.done() for item in asked):
            most = max(most, len(present(live)))
        assert Counter(item.result() for item in asked) == {200: 60}
        assert most <= 2
        assert live.metric("model_evictions_total", cause="memory") > 0
        assert sum(loads.counts.values()) < 60, "requests for the same model share a load"


def test_a_busy_model_finishes_its_requests_before_it_makes_room(folder: Path, loads: Loads) -> None:
    with run(folder, loads, **SIZES, memory_limit=room(folder, 1)) as (live, pool):
        loads.given["a"] = gated = GatedModel(2)
        gated.gate.clear()
        held = pool.submit(ask, live, "a")
        assert gated.stepping.wait(WAIT_SECONDS)
        waiting = pool.submit(ask, live, "b")
        eventually(lambda: live.metric("model_waits_total", model="b") == 1)
        time.sleep(0.1)
        assert present(live) == {"a"}
        gated.gate.set()
        assert held.result(WAIT_SECONDS) == waiting.result(WAIT_SECONDS) == 200


def test_both_models_of_a_pivot_are_loaded_together_or_refused(folder: Path, loads: Loads) -> None:
    body = {"text": "alpha beta", "source_language": "en", "target_language": "cs", "allow_pivot": True}
    for models, status in ((2, 200), (1, 503)):
        with run(folder, loads, **SIZES, memory_limit=room(folder, models)) as (live, pool):
            answers = [item.result() for item in [pool.submit(live.post, body) for _ in range(4)]]
            assert [answer.status_code for answer in answers] == [status] * 4
            assert status == 200 or "--memory-limit" in answers[0].json()["detail"]


def test_a_bundle_that_was_replaced_on_the_disk_is_verified_and_answers(
    folder: Path, loads: Loads, tokenizer: Tokenizer
) -> None:
    with run(folder, loads, **HOUR) as (live, _):
        before = live.get("/v1/models/a").json()["manifest_sha256"]
        put_bundle(folder / "a", tokenizer, direction("en-de", 9))
        assert ask(live, "a") == 200
        assert live.get("/v1/models/a").json()["manifest_sha256"] != before
        os.utime(folder / "b" / "weights.bin")
        verified = live.metric("sequences_finished_total", model="b")
        assert ask(live, "b") == 200
        assert live.metric("sequences_finished_total", model="b") > verified + 1


def test_a_model_that_cannot_be_loaded_again_is_refused_alone_until_it_can(folder: Path, loads: Loads) -> None:
    with run(folder, loads, **HOUR) as (live, _):
        (folder / "a").rename(folder / ".away")
        assert ask(live, "a") == 503
        assert states(live)["a"] == "failed"
        assert (live.get("/readyz").status_code, ask(live, "b")) == (200, 200)
        (folder / ".away").rename(folder / "a")
        assert ask(live, "a") == 200


def test_a_reload_finds_absent_models_and_loads_only_what_changed(
    folder: Path, loads: Loads, tokenizer: Tokenizer
) -> None:
    with run(folder, loads, **HOUR) as (live, _):
        put_bundle(folder / "b", tokenizer, direction("de-cs", 9))
        report = live.post(path="/v1/admin/reload", headers={"authorization": f"Bearer {KEY}"}).json()
        assert (report["replaced"], report["unchanged"]) == (["b"], ["a", "c"])
        assert loads.counts == {"a": 1, "b": 2, "c": 1}
        assert not present(live)
        assert ask(live, "b") == 200


def test_a_limit_that_a_model_never_fits_into_is_refused_at_the_start(folder: Path, loads: Loads) -> None:
    """Next to the pinned ones."""
    limit = room(folder, 2) - 1
    with run(folder, loads, **SIZES, memory_limit=limit) as (live, _):
        assert ask(live, "b") == 200
    pinned = {"a": {"pinned": True}}
    with pytest.raises(BundleError, match="--memory-limit"):  # noqa: SIM117 - the service fails at its start
        with run(folder, loads, **SIZES, memory_limit=limit, own_settings=pinned):
            pass
