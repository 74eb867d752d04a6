"""Hot reload: added, changed, removed and failing bundles, and authorization."""

import gc
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import rmtree
from typing import Any

import grpc
import pytest

from model.tokenizer.tokenizer import Tokenizer
from serve.bundle.bundle import Bundle
from serve.runtime.model import Model
from serve.settings import ServeSettings
from tests.support.fakes import EOS_ID, FakeModel, translate
from tests.support.live import (
    LONG_TEXT,
    MAX_TARGET_TOKENS,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    direction,
    eventually,
    load_fakes,
    put_bundle,
    run_service,
)

Answer = dict[str, Any]
KEY = "a key, 1 of 1"
SERVICE = "dragoman.v1.TranslationService"


@pytest.fixture
def folder(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    put_bundle(tmp_path / "a", tokenizer, direction("en-de", 7))
    put_bundle(tmp_path / "b", tokenizer, direction("de-en", 7))
    return tmp_path


@pytest.fixture
def live(folder: Path) -> Iterator[LiveService]:
    with run_service(folder, load=load_fakes, admin_key=KEY) as live:
        yield live


def run_models(folder: Path, models: Mapping[str, Model]) -> AbstractContextManager[LiveService]:
    """Serves a folder with a given model for each bundle, by name."""
    return run_service(folder, load=lambda _, bundle: [models[bundle.folder.name]], admin_key=KEY, engines=1, slots=2)


def reload(live: LiveService, status: int = 200) -> Answer:
    """Requests a reload; returns its non-empty results."""
    answer = live.post(path="/v1/admin/reload", headers={"authorization": f"Bearer {KEY}"})
    assert answer.status_code == status, answer.text
    return {name: value for name, value in answer.json().items() if value}


def names(live: LiveService) -> list[str]:
    return [each["name"] for each in live.get("/v1/models").json()["models"]]


def text_of(live: LiveService, model: str) -> str:
    text: str = live.post({"text": LONG_TEXT, "model": model}).json()["translations"][0]["text"]
    return text


def expected(tokenizer: Tokenizer, prefix: int) -> str:
    target_ids, _, _ = translate((prefix, *tokenizer.encode(LONG_TEXT), EOS_ID), MAX_TARGET_TOKENS)
    return tokenizer.decode(target_ids)


def health(live: LiveService, model: str) -> str:
    """Returns the health status of a model, which may be unknown."""
    try:
        return live.health(f"{SERVICE}/{model}")
    except grpc.RpcError:
        return "NOT_FOUND"


def test_nothing_new_is_left_as_it_is(live: LiveService) -> None:
    assert reload(live) == {"unchanged": ["a", "b"]}


def test_a_reload_gives_back_what_earlier_models_left(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[None] = []
    monkeypatch.setattr("serve.registry.reloader.trim_memory", lambda: given.append(None))
    reload(live)
    assert len(given) == 1


def test_a_new_bundle_is_served(live: LiveService, folder: Path, tokenizer: Tokenizer) -> None:
    put_bundle(folder / "c", tokenizer, direction("en-fr", 8))
    assert reload(live) == {"loaded": ["c"], "unchanged": ["a", "b"]}
    assert names(live) == ["a", "b", "c"]
    assert text_of(live, "c") == expected(tokenizer, 8)
    eventually(lambda: health(live, "c") == "SERVING")


def test_a_bundle_that_changed_takes_the_place_of_the_old_one(
    live: LiveService, folder: Path, tokenizer: Tokenizer
) -> None:
    before = live.get("/v1/models/a").json()["manifest_sha256"]
    live.post({"text": "one", "model": "a"})
    live.settle()
    put_bundle(folder / "a", tokenizer, direction("en-de", 9))
    assert reload(live) == {"replaced": ["a"], "unchanged": ["b"]}
    assert text_of(live, "a") == expected(tokenizer, 9)
    assert live.get("/v1/models/a").json()["manifest_sha256"] != before
    live.settle()
    assert live.metric("requests_total", model="a", outcome="ok") == 2, "counters do not begin again"


def test_a_bundle_that_is_gone_is_served_no_longer_and_leaves_no_series(live: LiveService, folder: Path) -> None:
    eventually(lambda: health(live, "b") == "SERVING")
    assert live.metric("slots", model="b") > 0
    rmtree(folder / "b")
    assert reload(live) == {"removed": ["b"], "unchanged": ["a"]}
    assert live.post({"text": "one", "model": "b"}).status_code == 404
    eventually(lambda: live.metric("slots", model="b") == 0)
    assert 'model="b"' not in live.get("/metrics").text
    eventually(lambda: health(live, "b") == "SERVICE_UNKNOWN")


def test_a_bundle_that_fails_its_golden_sentences_leaves_the_old_one_in_its_place(
    live: LiveService, folder: Path, tokenizer: Tokenizer
) -> None:
    """Missing models stay too, because the folder may be partly written."""
    put_bundle(folder / "a", tokenizer, direction("en-de", 9), wrong=True)
    rmtree(folder / "b")
    report = reload(live, 422)
    assert report["failed"]["a"].startswith("golden sentence 0: target tokens are ")
    assert set(report) == {"failed"}
    assert names(live) == ["a", "b"]
    assert text_of(live, "a") == expected(tokenizer, 7)
    assert live.get("/readyz").status_code == 200
    assert (live.metric("reloads_total", outcome="failed"), live.metric("reload_failed_models")) == (1, 1)
    put_bundle(folder / "a", tokenizer, direction("en-de", 9))
    assert reload(live) == {"replaced": ["a"], "removed": ["b"]}
    assert live.metric("reload_failed_models") == 0


def test_a_new_bundle_that_is_broken_does_not_keep_the_others_from_coming(
    live: LiveService, folder: Path, tokenizer: Tokenizer
) -> None:
    put_bundle(folder / "c", tokenizer, direction("en-fr", 8))
    (folder / "c" / "weights.bin").write_bytes(b"changed")
    put_bundle(folder / "d", tokenizer, direction("en-fr", 8))
    report = reload(live, 422)
    assert (list(report["failed"]), report["loaded"]) == (["c"], ["d"])
    assert "sha256 is" in report["failed"]["c"]
    assert names(live) == ["a", "b", "d"]
    assert 'model="c"' not in live.get("/metrics").text


def test_a_folder_that_cannot_be_read_changes_nothing(live: LiveService, folder: Path) -> None:
    """A disk may be unavailable for a moment."""
    folder.rename(folder.with_name("away"))
    assert "no such folder" in reload(live, 422)["problem"]
    assert names(live) == ["a", "b"]
    assert text_of(live, "a")
    folder.with_name("away").rename(folder)


def test_requests_of_the_old_version_are_answered_by_it_and_later_ones_by_the_new_one(
    folder: Path, tokenizer: Tokenizer
) -> None:
    """The old version is blocked with a request until after it was replaced and others were answered."""
    old = GatedModel(2)

    def load(settings: ServeSettings, bundle: Bundle) -> list[FakeModel]:
        first = bundle.folder.name == "a" and bundle.manifest.directions[0].source_prefix == (7,)
        return [old] if first else [FakeModel(settings.slots)]

    with (
        ThreadPoolExecutor() as pool,
        run_service(folder, load=load, admin_key=KEY, engines=1, slots=2) as live,
    ):
        old.gate.clear()
        occupied = pool.submit(text_of, live, "a")
        eventually(lambda: live.metric("sequences_running", model="a") == 1)
        put_bundle(folder / "a", tokenizer, direction("en-de", 9))
        assert reload(live) == {"replaced": ["a"], "unchanged": ["b"]}
        assert text_of(live, "a") == expected(tokenizer, 9)
        assert live.metric("sequences_running", model="a") == 1
        assert not occupied.done()
        old.gate.set()
        assert occupied.result(WAIT_SECONDS) == expected(tokenizer, 7)
        eventually(lambda: not live.service.models._leaving)
        assert live.metric("sequences_running", model="a") == 0


def test_a_model_that_was_replaced_gives_its_memory_back_at_once(folder: Path, tokenizer: Tokenizer) -> None:
    """The garbage collector runs rarely, and each version may hold hundreds of megabytes."""
    loaded: list[weakref.ref[FakeModel]] = []

    def load(settings: ServeSettings, _: Bundle) -> list[FakeModel]:
        model = FakeModel(settings.slots)
        loaded.append(weakref.ref(model))
        return [model]

    with run_service(folder, load=load, admin_key=KEY, engines=1, slots=2) as live:
        assert text_of(live, "a")
        put_bundle(folder / "a", tokenizer, direction("en-de", 9))
        gc.disable()
        try:
            assert reload(live) == {"replaced": ["a"], "unchanged": ["b"]}
            eventually(lambda: loaded[0]() is None)
        finally:
            gc.enable()


def test_a_removed_model_answers_what_it_accepted(folder: Path, tokenizer: Tokenizer) -> None:
    gated = GatedModel(2)
    models = {"a": FakeModel(2), "b": gated}
    with (
        ThreadPoolExecutor() as pool,
        run_models(folder, models) as live,
    ):
        gated.gate.clear()
        occupied = pool.submit(text_of, live, "b")
        eventually(lambda: live.metric("sequences_running", model="b") == 1)
        rmtree(folder / "b")
        assert reload(live) == {"removed": ["b"], "unchanged": ["a"]}
        gated.gate.set()
        assert occupied.result(WAIT_SECONDS) == expected(tokenizer, 7)


def test_a_pivot_keeps_its_second_model_while_the_first_translates(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "first", tokenizer, direction("fr-en", 7))
    put_bundle(tmp_path / "second", tokenizer, direction("en-de", 8))
    gated = GatedModel(2)
    models = {"first": gated, "second": FakeModel(2)}
    with (
        ThreadPoolExecutor() as pool,
        run_models(tmp_path, models) as live,
    ):
        gated.gate.clear()
        request = {"text": LONG_TEXT, "source_language": "fr", "target_language": "de", "allow_pivot": True}
        occupied = pool.submit(live.post, request)
        eventually(lambda: live.metric("sequences_running", model="first") == 1)
        rmtree(tmp_path / "second")
        assert reload(live) == {"removed": ["second"], "unchanged": ["first"]}
        assert live.post(request).status_code == 400
        gated.gate.set()
        assert occupied.result(WAIT_SECONDS).json()["model"] == "second"


@pytest.mark.promise("R26")
def test_a_service_that_is_stopped_in_the_middle_of_a_reload_ends(folder: Path, tokenizer: Tokenizer) -> None:
    slow = GatedModel(2)
    slow.gate.clear()
    with (
        ThreadPoolExecutor() as pool,
        run_service(
            folder,
            load=lambda _, bundle: [slow if bundle.folder.name == "c" else FakeModel(2)],
            admin_key=KEY,
            engines=1,
            slots=2,
        ) as live,
    ):
        put_bundle(folder / "c", tokenizer, direction("en-fr"))
        asked = pool.submit(live.post, path="/v1/admin/reload", headers={"authorization": f"Bearer {KEY}"})
        assert slow.stepping.wait(WAIT_SECONDS)
        live.stop()
        eventually(lambda: live.service.lifecycle.leaving)
        slow.gate.set()
        assert asked.result(WAIT_SECONDS).status_code in (200, 503)
        live.join()


def test_before_the_service_is_ready_nothing_is_reloaded(folder: Path) -> None:
    slow = GatedModel(2)
    slow.gate.clear()
    try:
        with run_service(folder, load=lambda *_: [slow], admin_key=KEY, wait_ready=False, engines=1, slots=2) as live:
            assert slow.stepping.wait(WAIT_SECONDS)
            assert reload(live, 422)["problem"].startswith("the service is starting")
            slow.gate.set()
            eventually(lambda: live.get("/readyz").status_code == 200)
    finally:
        slow.gate.set()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": "Bearer \u00e4".encode()},
        {"authorization": f"Basic {KEY}"},
        {"authorization": KEY},
    ],
)
def test_whoever_has_not_the_key_may_not_reload(live: LiveService, headers: Answer) -> None:
    answer = live.post(path="/v1/admin/reload", headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert live.metric("reloads_total") == 0


def test_without_a_key_there_is_no_such_call(folder: Path) -> None:
    with run_service(folder, load=load_fakes) as live:
        assert live.post(path="/v1/admin/reload", headers={"authorization": f"Bearer {KEY}"}).status_code == 404


def test_the_key_may_stand_in_a_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    with run_service(folder, load=load_fakes, admin_key_file=path) as live:
        assert reload(live) == {"unchanged": ["a", "b"]}
