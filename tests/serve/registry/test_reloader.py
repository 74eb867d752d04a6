"""Hot reload: added, changed, removed and failing bundles, and requests of replaced models."""

import gc
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import grpc
import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle
from dragoman.serve.registry.lifecycle import Stage
from dragoman.serve.registry.loader import MAX_STUCK_LOADS, LoadModels, load_threads
from dragoman.serve.registry.pipeline import Pipeline
from dragoman.serve.runtime.model import Model
from dragoman.serve.settings import ServeSettings
from tests.support.fake_bundles import LONG_TEXT, MAX_TARGET_TOKENS, direction, load_fakes, put_bundle
from tests.support.fakes import EOS_ID, FakeModel, translate
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

Answer = dict[str, Any]
KEY = "key-of-the-operator"
HEADERS = {"authorization": f"Bearer {KEY}"}
PATH = "/v1/admin/reload"
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


def by_name(models: Mapping[str, Model]) -> LoadModels:
    """Loads a given model for some bundles, and new ones for the others."""
    return lambda _, bundle: [models.get(bundle.folder.name) or FakeModel(2)]


@contextmanager
def run(folder: Path, load: LoadModels, **settings: Any) -> Iterator[tuple[LiveService, ThreadPoolExecutor]]:
    with (
        ThreadPoolExecutor() as pool,
        run_service(folder, load=load, admin_key=KEY, engines=1, slots=2, **settings) as live,
    ):
        yield live, pool


def reload(live: LiveService, status: int = 200) -> Answer:
    """Requests a reload; returns its non-empty results."""
    answer = live.post(path=PATH, headers=HEADERS)
    assert answer.status_code == status, answer.text
    return {name: value for name, value in answer.json().items() if value}


def names(live: LiveService) -> list[str]:
    return [model["name"] for model in live.get("/v1/models").json()["models"]]


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


def test_unchanged_models_stay_and_freed_memory_is_returned(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[None] = []
    monkeypatch.setattr("dragoman.serve.registry.reloader.trim_memory", lambda: trimmed.append(None))
    assert reload(live) == {"unchanged": ["a", "b"]}
    assert len(trimmed) == 1


def test_a_new_bundle_is_served(live: LiveService, folder: Path, tokenizer: Tokenizer) -> None:
    put_bundle(folder / "c", tokenizer, direction("en-fr", 8))
    assert reload(live) == {"loaded": ["c"], "unchanged": ["a", "b"]}
    assert names(live) == ["a", "b", "c"]
    assert text_of(live, "c") == expected(tokenizer, 8)
    eventually(lambda: health(live, "c") == "SERVING")


def test_a_changed_bundle_replaces_the_old_one(live: LiveService, folder: Path, tokenizer: Tokenizer) -> None:
    before = live.get("/v1/models/a").json()["manifest_sha256"]
    assert text_of(live, "a") == expected(tokenizer, 7)
    put_bundle(folder / "a", tokenizer, direction("en-de", 9))
    assert reload(live) == {"replaced": ["a"], "unchanged": ["b"]}
    assert text_of(live, "a") == expected(tokenizer, 9)
    assert live.get("/v1/models/a").json()["manifest_sha256"] != before
    live.settle()
    assert live.metric("requests_total", model="a", outcome="ok") == 2, "counters do not begin again"


def test_a_removed_bundle_is_not_served_and_leaves_no_series(live: LiveService, folder: Path) -> None:
    eventually(lambda: health(live, "b") == "SERVING")
    assert live.metric("slots", model="b") > 0
    rmtree(folder / "b")
    assert reload(live) == {"removed": ["b"], "unchanged": ["a"]}
    assert live.post({"text": "one", "model": "b"}).status_code == 404
    eventually(lambda: live.metric("slots", model="b") == 0)
    assert 'model="b"' not in live.get("/metrics").text
    eventually(lambda: health(live, "b") == "NOT_FOUND")


def test_wrong_golden_sentences_replace_no_model(live: LiveService, folder: Path, tokenizer: Tokenizer) -> None:
    """Missing models stay too, because the folder may be partly written."""
    put_bundle(folder / "a", tokenizer, direction("en-de", 9), wrong=True)
    rmtree(folder / "b")
    report = reload(live, 422)
    assert (set(report), set(report["failed"])) == ({"failed"}, {"a"})
    assert names(live) == ["a", "b"]
    assert text_of(live, "a") == expected(tokenizer, 7)
    assert live.get("/readyz").status_code == 200
    assert (live.metric("reloads_total", outcome="failed"), live.metric("reload_failed_models")) == (1, 1)
    put_bundle(folder / "a", tokenizer, direction("en-de", 9))
    assert reload(live) == {"replaced": ["a"], "removed": ["b"]}
    assert live.metric("reload_failed_models") == 0


def test_a_broken_new_bundle_keeps_no_other_from_loading(live: LiveService, folder: Path, tokenizer: Tokenizer) -> None:
    for name in ("c", "d"):
        put_bundle(folder / name, tokenizer, direction("en-fr", 8))
    (folder / "c" / "weights.bin").write_bytes(b"changed")
    report = reload(live, 422)
    assert (list(report["failed"]), report["loaded"]) == (["c"], ["d"])
    assert report["failed"]["c"].startswith(f"{folder}/c/weights.bin: ")
    assert names(live) == ["a", "b", "d"]
    assert 'model="c"' not in live.get("/metrics").text


def test_a_folder_that_cannot_be_read_changes_nothing(live: LiveService, folder: Path) -> None:
    """A disk may be unavailable for a moment."""
    folder.rename(folder.with_name("away"))
    assert set(reload(live, 422)) == {"problem"}
    assert names(live) == ["a", "b"]
    assert text_of(live, "a")
    folder.with_name("away").rename(folder)


@pytest.mark.parametrize("replaced", [True, False])
def test_accepted_requests_are_answered_by_a_model_that_was_replaced_or_removed(
    folder: Path, tokenizer: Tokenizer, *, replaced: bool
) -> None:
    """The old version is blocked with a request until others were answered by the new one."""
    old = GatedModel(2)
    given: dict[str, Model] = {"a": old}
    with run(folder, lambda _, bundle: [given.pop(bundle.folder.name, None) or FakeModel(2)]) as (live, pool):
        old.gate.clear()
        occupied = pool.submit(text_of, live, "a")
        eventually(lambda: live.metric("sequences_running", model="a") == 1)
        rmtree(folder / "a")
        if replaced:
            put_bundle(folder / "a", tokenizer, direction("en-de", 9))
        assert reload(live) == {"replaced" if replaced else "removed": ["a"], "unchanged": ["b"]}
        if replaced:
            assert text_of(live, "a") == expected(tokenizer, 9)
        assert live.metric("sequences_running", model="a") == 1
        assert not occupied.done()
        old.gate.set()
        assert occupied.result(WAIT_SECONDS) == expected(tokenizer, 7)
        eventually(lambda: not live.service.models._leaving)
        assert live.metric("sequences_running", model="a") == 0


def test_the_memory_of_a_replaced_model_is_freed_at_once(folder: Path, tokenizer: Tokenizer) -> None:
    """The garbage collector runs rarely, and each version may hold hundreds of megabytes."""
    loaded: list[weakref.ref[FakeModel]] = []

    def load(settings: ServeSettings, _: Bundle) -> list[FakeModel]:
        model = FakeModel(settings.slots)
        loaded.append(weakref.ref(model))
        return [model]

    with run(folder, load) as (live, _):
        assert text_of(live, "a")
        put_bundle(folder / "a", tokenizer, direction("en-de", 9))
        gc.disable()
        try:
            assert reload(live) == {"replaced": ["a"], "unchanged": ["b"]}
            eventually(lambda: loaded[0]() is None)
        finally:
            gc.enable()


def test_a_pivot_keeps_its_second_model_while_the_first_translates(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "first", tokenizer, direction("fr-en", 7))
    put_bundle(tmp_path / "second", tokenizer, direction("en-de", 8))
    gated = GatedModel(2)
    with run(tmp_path, by_name({"first": gated})) as (live, pool):
        gated.gate.clear()
        request = {"text": LONG_TEXT, "source_language": "fr", "target_language": "de", "allow_pivot": True}
        occupied = pool.submit(live.post, request)
        eventually(lambda: live.metric("sequences_running", model="first") == 1)
        rmtree(tmp_path / "second")
        assert reload(live) == {"removed": ["second"], "unchanged": ["first"]}
        assert live.post(request).status_code == 400
        gated.gate.set()
        assert occupied.result(WAIT_SECONDS).json()["model"] == "second"


@pytest.fixture
def slow() -> Iterator[GatedModel]:
    """A model that loads until its gate opens."""
    slow = GatedModel(2)
    slow.gate.clear()
    yield slow
    slow.gate.set()


def test_a_replaced_model_is_stopped_once_if_the_service_stops_with_its_last_request(
    folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = GatedModel(2)
    given: dict[str, Model] = {"a": old}
    stopped = list[Pipeline]()
    stop = Pipeline.stop

    def note_and_stop(self: Pipeline) -> None:
        stopped.append(self)
        stop(self)

    monkeypatch.setattr(Pipeline, "stop", note_and_stop)
    with run(folder, lambda _, bundle: [given.pop(bundle.folder.name, None) or FakeModel(2)]) as (live, pool):
        old.gate.clear()
        occupied = pool.submit(text_of, live, "a")
        eventually(lambda: live.metric("sequences_running", model="a") == 1)
        put_bundle(folder / "a", tokenizer, direction("en-de", 9))
        assert reload(live) == {"replaced": ["a"], "unchanged": ["b"]}
        live.stop()
        eventually(lambda: live.service.lifecycle.stage is Stage.DRAINING)
        old.gate.set()
        assert occupied.result(WAIT_SECONDS) == expected(tokenizer, 7)
        live.join()
    assert len(stopped) == len(set(stopped)) == 3


@pytest.mark.promise("R26")
def test_a_service_that_is_stopped_during_a_reload_ends(folder: Path, tokenizer: Tokenizer, slow: GatedModel) -> None:
    with run(folder, by_name({"c": slow})) as (live, pool):
        put_bundle(folder / "c", tokenizer, direction("en-fr"))
        requested = pool.submit(live.post, path=PATH, headers=HEADERS)
        assert slow.stepping.wait(WAIT_SECONDS)
        live.stop()
        eventually(lambda: live.service.lifecycle.leaving)
        slow.gate.set()
        assert requested.result(WAIT_SECONDS).status_code in (200, 503)
        live.join()


def test_nothing_is_reloaded_before_the_service_is_ready(folder: Path, slow: GatedModel) -> None:
    with run(folder, by_name({"a": slow}), wait_ready=False) as (live, _):
        assert slow.stepping.wait(WAIT_SECONDS)
        assert set(reload(live, 422)) == {"problem"}
        slow.gate.set()
        eventually(lambda: live.get("/readyz").status_code == 200)


# Only loads that never end are given it: on a busy machine, the load of a fake model may take longer.
LIMIT_SECONDS = 2.0


@contextmanager
def impatient(live: LiveService) -> Iterator[None]:
    """Gives loads a short limit while the block runs."""
    loader = live.service.keeper._loader
    patient = loader._settings
    loader._settings = patient.model_copy(update={"load_timeout_seconds": LIMIT_SECONDS})
    yield
    loader._settings = patient


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Loads of bundles that translate from Finnish wait for this event."""
    released = threading.Event()
    yield released
    released.set()


@pytest.fixture
def limited(folder: Path, stuck: threading.Event) -> Iterator[LiveService]:
    def load(settings: ServeSettings, bundle: Bundle) -> list[FakeModel]:
        if bundle.manifest.directions[0].source == "fi":
            stuck.wait()
        return load_fakes(settings, bundle)

    with run_service(folder, load=load, admin_key=KEY) as live:
        yield live


def test_an_endless_load_fails_and_the_next_one_works(limited: LiveService, folder: Path, tokenizer: Tokenizer) -> None:
    put_bundle(folder / "a", tokenizer, direction("fi-de", 9))
    with impatient(limited):
        assert set(reload(limited, 422)["failed"]) == {"a"}
    assert text_of(limited, "a") == expected(tokenizer, 7)
    assert limited.metric("reloads_total", outcome="failed") == 1
    put_bundle(folder / "a", tokenizer, direction("en-de", 9))
    assert reload(limited) == {"replaced": ["a"], "unchanged": ["b"]}
    assert text_of(limited, "a") == expected(tokenizer, 9)


def test_too_many_stuck_loads_end_all_loads_until_one_of_them_ends(
    limited: LiveService, folder: Path, tokenizer: Tokenizer, stuck: threading.Event
) -> None:
    """Every stuck load keeps its memory."""
    put_bundle(folder / "a", tokenizer, direction("fi-de", 9))
    with impatient(limited):
        for _ in range(MAX_STUCK_LOADS):
            assert "--load-timeout-seconds" in reload(limited, 422)["failed"]["a"]
    before = load_threads()
    assert "restart" in reload(limited, 422)["problem"]
    assert load_threads() <= before
    stuck.set()
    eventually(lambda: limited.post(path=PATH, headers=HEADERS).status_code == 200)
    assert text_of(limited, "a") == expected(tokenizer, 9)


@pytest.mark.parametrize("error", [MemoryError(), OverflowError("a\nb"), RecursionError("deep"), KeyError("key")])
def test_an_unexpected_error_of_a_load_is_a_failed_reload(folder: Path, tokenizer: Tokenizer, error: Exception) -> None:
    def load(settings: ServeSettings, bundle: Bundle) -> list[FakeModel]:
        if bundle.folder.name == "c":
            raise error
        return load_fakes(settings, bundle)

    with run_service(folder, load=load, admin_key=KEY) as live:
        put_bundle(folder / "c", tokenizer, direction("en-fr", 8))
        problem = reload(live, 422)["failed"]["c"]
        assert problem.startswith(f"{folder}/c: ")
        assert type(error).__name__ in problem
        assert problem.isprintable()
        assert live.metric("reload_failed_models") == 1


def test_a_pipe_in_place_of_the_manifest_of_a_lone_bundle_is_a_failed_reload(bundle_path: Path, tmp_path: Path) -> None:
    folder = copytree(bundle_path, tmp_path / "lone")
    with run_service(folder, load=load_fakes, admin_key=KEY) as live:
        manifest = (folder / MANIFEST_FILE).read_bytes()
        (folder / MANIFEST_FILE).unlink()
        os.mkfifo(folder / MANIFEST_FILE)
        assert MANIFEST_FILE in reload(live, 422)["problem"]
        (folder / MANIFEST_FILE).unlink()
        (folder / MANIFEST_FILE).write_bytes(manifest)
        assert reload(live) == {"unchanged": ["fake"]}


def test_without_an_admin_key_there_is_no_such_call(folder: Path) -> None:
    with run_service(folder, load=load_fakes) as live:
        assert live.post(path=PATH, headers=HEADERS).status_code == 404
