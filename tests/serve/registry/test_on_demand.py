"""Models that requests bring to the server: once, by permission, with their progress, over real connections."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos import translation_pb2 as messages
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.registry.on_demand import is_local
from dragoman.serve.source import Progress
from tests.support.cases import cases
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.live import WAIT_SECONDS, LiveService, eventually, run_service

CASES = cases(__file__)

KEY = "key-of-the-operator"
FR_DE: dict[str, Any] = {"source_language": "fr", "target_language": "de"}
AT_ONCE = {"prefer": "respond-async"}


class FakeSource:
    """Pairs whose bundles appear in a folder; fetches wait while the gate is closed."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, *pairs: str) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        self.pairs = {pair: (pair[:2], pair[3:]) for pair in pairs}
        self.fetched = Counter[str]()
        self.running = Counter[str]()
        self.elsewhere = set[str]()
        self.gate = threading.Event()
        self.gate.set()
        self.problem = ""

    def find(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.exists() else None

    def fetch(self, name: str) -> Path:
        self.fetched[name] += 1
        self.running[name] += 1
        assert self.gate.wait(WAIT_SECONDS)
        self.running[name] -= 1
        if self.problem:
            raise OSError(self.problem)
        return self.install(name)

    def install(self, name: str) -> Path:
        return put_bundle(self.folder / name, self.tokenizer, direction(name, 7))

    def progress(self) -> Mapping[str, Progress]:
        return dict.fromkeys({*+self.running, *self.elsewhere}, (23_000_000, 43_000_000))

    def stop(self) -> None:
        self.gate.set()


@pytest.fixture
def source(tokenizer: Tokenizer, tmp_path: Path) -> FakeSource:
    (tmp_path / "cache").mkdir()
    return FakeSource(tmp_path / "cache", tokenizer, "fr-en", "en-de", "en-cs")


@contextmanager
def run(tmp_path: Path, source: FakeSource, **settings: Any) -> Iterator[LiveService]:
    """Serves one model from English into German, which the source offers too."""
    put_bundle(tmp_path / "models" / "own", source.tokenizer, direction("en-de", 7))
    with run_service(tmp_path / "models", load=load_fakes, source=source, admin_key=KEY, **settings) as live:
        yield live


def ask(live: LiveService, headers: Mapping[str, str] = {}, **fields: Any) -> Any:
    return live.post({"text": "alpha beta", **fields}, headers=headers)


def available(live: LiveService) -> dict[str, Any]:
    return {model["name"]: model for model in live.get("/v1/models").json()["available"]}


def test_a_pair_is_fetched_once_however_many_ask_for_it(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A hundred clients for five pairs; others are served meanwhile."""
    pairs = ["cs-en", "en-cs", "en-fr", "es-en", "fr-en"]
    (tmp_path / "cache").mkdir()
    source = FakeSource(tmp_path / "cache", tokenizer, *pairs)
    with run(tmp_path, source, queue_limit=200) as live, ThreadPoolExecutor(100) as pool:
        assert not source.fetched, "the start asks for nothing"
        source.gate.clear()
        asked = [{"source_language": pair[:2], "target_language": pair[3:]} for pair in pairs * 20]
        waiting = [pool.submit(ask, live, {}, **languages) for languages in asked]
        eventually(lambda: live.metric("inflight_requests") == 100)
        assert ask(live, source_language="en", target_language="de").json()["model"] == "own"
        source.gate.set()
        assert [(item.result().status_code, item.result().json()["model"]) for item in waiting] == [
            (200, pair) for pair in pairs * 20
        ]
        assert source.fetched == dict.fromkeys(pairs, 1)
        assert [model["name"] for model in live.get("/v1/models").json()["models"]] == [*pairs, "own"]


def test_progress_is_shown_to_clients_that_do_not_wait(tmp_path: Path, source: FakeSource) -> None:
    with run(tmp_path, source) as live:
        source.gate.clear()
        eventually(lambda: "en-cs, 23 of 43 MB" in ask(live, AT_ONCE, target_language="cs").text)
        late = ask(live, {"x-request-timeout-ms": "50"}, target_language="cs")
        assert "23 of 43 MB" in late.json()["detail"]
        refused = ask(live, AT_ONCE, target_language="cs")
        assert (refused.status_code, refused.json()["reason"]) == (503, "fetching")
        assert int(refused.headers["retry-after"]) > 0
        shown = available(live)
        facts = [shown["en-cs"][name] for name in ("state", "done_bytes", "total_bytes")]
        assert facts == ["fetching", 23_000_000, 43_000_000]
        assert shown["fr-en"]["state"] == "available"
        listed = live.stub("ListModels", messages.ListModelsRequest(), messages.ListModelsResponse)
        assert {model.name: model.done_bytes for model in listed.available} == {"en-cs": 23_000_000, "fr-en": 0}
        source.gate.set()
        eventually(lambda: ask(live, AT_ONCE, target_language="cs").status_code == 200)


def test_served_directions_are_not_fetched_unless_they_are_named(tmp_path: Path, source: FakeSource) -> None:
    with run(tmp_path, source) as live:
        assert ask(live, source_language="en", target_language="de").json()["model"] == "own"
        assert set(available(live)) == {"fr-en", "en-cs"}
    with run(tmp_path, source, on_demand="en-de") as live:
        assert ask(live, source_language="en", target_language="de").json()["model"] == "en-de"


def test_a_pair_without_a_model_goes_through_english_and_languages_are_listed(
    tmp_path: Path, source: FakeSource
) -> None:
    with run(tmp_path, source) as live:
        languages = {item["code"]: item["targets"] for item in live.get("/languages").json()}
        assert {"de", "cs"} <= set(languages["fr"])
        answer = ask(live, **FR_DE, allow_pivot=True).json()
        assert (answer["model"], answer["pivot"]["model"]) == ("own", "fr-en")
        assert live.post({"q": "alpha", "source": "fr", "target": "cs"}, path="/translate").status_code == 200
        assert source.fetched == {"fr-en": 1, "en-cs": 1}


@pytest.mark.parametrize("right", ["local", "nobody", "anyone"])
def test_a_request_that_may_not_download_learns_the_command(tmp_path: Path, source: FakeSource, right: str) -> None:
    """An installed model needs no permission."""
    with run(tmp_path, source, on_demand_from=right) as live:
        strange = {"x-forwarded-for": "192.0.2.1"}
        answer = ask(live, strange, target_language="cs", source_language="en")
        if right == "anyone":
            assert answer.status_code == 200
            return
        assert (answer.status_code, answer.json()["field"]) == (404, "model")
        assert "`dragoman pull en-cs`" in answer.json()["detail"]
        assert not source.fetched
        put_bundle(source.folder / "en-cs", source.tokenizer, direction("en-cs", 7))
        assert ask(live, strange, target_language="cs", source_language="en").status_code == 200


def test_a_key_may_have_the_right_to_download(tmp_path: Path, source: FakeSource) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-key name=first fetch=true\nother-key name=other\n")
    with run(tmp_path, source, api_keys_file=keys, on_demand_from="nobody") as live:
        statuses = [
            ask(live, {"authorization": f"Bearer {key}"}, source_language="en", target_language="cs").status_code
            for key in ("other-key", "first-key")
        ]
        assert statuses == [404, 200]


def test_a_failed_fetch_is_reported_and_not_repeated_at_once(tmp_path: Path, source: FakeSource) -> None:
    with run(tmp_path, source) as live:
        source.problem = "http://hub.internal/x does not answer"
        answers = [ask(live, source_language="en", target_language="cs") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert answers[0].json()["detail"].startswith("en-cs: cannot be fetched")
        assert "hub.internal" not in answers[0].text, "only the log names the hub"
        assert source.fetched == {"en-cs": 1}
        assert available(live)["en-cs"]["state"] == "failed"
        assert live.get("/readyz").status_code == 200


def test_what_another_process_fetches_is_shown_and_served_or_has_failed(tmp_path: Path, source: FakeSource) -> None:
    with run(tmp_path, source) as live:
        source.elsewhere = {"en-cs", "unknown"}
        eventually(lambda: available(live)["en-cs"]["state"] == "fetching")
        assert available(live)["en-cs"]["done_bytes"] == 23_000_000
        source.install("en-cs")
        source.elsewhere = {"fr-en"}
        eventually(lambda: "en-cs" in [model["name"] for model in live.get("/v1/models").json()["models"]])
        assert (
            ask(live, {"x-forwarded-for": "192.0.2.1"}, source_language="en", target_language="cs").status_code == 200
        )
        source.elsewhere = set()
        eventually(lambda: available(live)["fr-en"]["state"] == "failed")
        assert ask(live, source_language="fr", target_language="en").status_code == 503
    assert not source.fetched


def test_fetched_models_stay_at_a_reload(tmp_path: Path, source: FakeSource) -> None:
    with run(tmp_path, source) as live:
        assert ask(live, source_language="en", target_language="cs").status_code == 200
        report = live.post(path="/v1/admin/reload", headers={"authorization": f"Bearer {KEY}"}).json()
        assert report["unchanged"] == ["own", "en-cs"]
        assert report["removed"] == []


@pytest.mark.parametrize(
    ("network", "headers", "local"), CASES["a local request came through no proxy and from no other site"]
)
def test_a_local_request_came_through_no_proxy_and_from_no_other_site(
    network: str, headers: dict[str, str], *, local: bool
) -> None:
    assert is_local(RequestRecord("id", network=network, headers=headers)) is local
