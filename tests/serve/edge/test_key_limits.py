"""Keys with limits over every interface: their statuses, the admin routes, and that counts are exact."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import grpc
import httpx
import pytest
from structlog.testing import capture_logs

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.host.state import State
from dragoman.serve.keys.key import KeyLimits
from dragoman.serve.keys.store import KeyStore
from tests.support.cases import cases
from tests.support.interfaces import OpenDeepl
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, LiveService, eventually, run_service

CASES = cases(__file__)

TEXT = "alpha beta."
ADMIN = {"authorization": "Bearer admin"}


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module", name="served")
def _served(bundle_path: Path, folder: Path) -> Iterator[LiveService]:
    with run_service(
        bundle_path, state_dir=folder, stored_api_keys=True, admin_key="admin", key_metrics=True, microsoft_path="/m"
    ) as live:
        yield live


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def ask(live: LiveService, method: str, path: str = "", body: Any = None) -> httpx.Response:
    """Calls a route of keys as the admin."""
    with live.http() as client:
        return client.request(method, f"/v1/keys{path}", json=body, headers=ADMIN)


def create(live: LiveService, name: str, **limits: Any) -> str:
    answer = ask(live, "POST", body={"name": name, **limits})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["key"])


def used(live: LiveService, name: str) -> int:
    return int(ask(live, "GET", f"/{name}/usage").json()["characters"])


def translate(live: LiveService, key: str, **body: Any) -> httpx.Response:
    return live.post({"text": TEXT, **body}, headers=bearer(key))


def call(live: LiveService, key: str) -> Any:
    """Returns the status of a gRPC call."""
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        request = TranslateRequest(text=[TEXT]).SerializeToString()
        return method.future(request, timeout=WAIT_SECONDS, metadata=tuple(bearer(key).items())).code()


def as_deepl(live: LiveService, key: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"DeepL-Auth-Key {key}"}
    body = {"text": [TEXT], "source_lang": "EN", "target_lang": "DE", **more}
    return live.post(body, path="/v2/translate", headers=headers)


def as_libretranslate(live: LiveService, key: str, **more: Any) -> httpx.Response:
    return live.post({"q": TEXT, "source": "en", "target": "de", "api_key": key, **more}, path="/translate")


def test_a_key_is_created_listed_changed_and_revoked(served: LiveService) -> None:
    with capture_logs() as logs:
        key = create(served, "one", characters=1000, period="day")
        assert translate(served, key).status_code == 200
        served.settle()
    shown = ask(served, "GET", "/one").json()
    assert (shown["name"], shown["characters"], shown["period"], shown["revoked"]) == ("one", 1000, "day", None)
    assert shown in ask(served, "GET").json()["keys"]
    assert key not in f"{logs}{shown}"
    assert [log["key"] for log in logs if log["event"] == "request" and "key" in log] == ["one"]
    assert ask(served, "PATCH", "/one", {"characters": len(TEXT)}).json()["characters"] == len(TEXT)
    assert ask(served, "GET", "/one/usage").json()["limit"] == len(TEXT)
    assert translate(served, key).status_code == 429
    assert ask(served, "DELETE", "/one").json()["revoked"] is not None
    assert translate(served, key).status_code == 401


@pytest.mark.parametrize(("method", "path", "body", "status"), CASES["invalid requests of the admin are refused"])
def test_invalid_requests_of_the_admin_are_refused(
    served: LiveService, method: str, path: str, body: Any, status: int
) -> None:
    assert ask(served, method, path, body).status_code == status


def test_a_taken_name_is_a_conflict(served: LiveService) -> None:
    create(served, "taken")
    assert ask(served, "POST", body={"name": "taken"}).status_code == 409


def test_routes_of_keys_require_the_admin_key(served: LiveService) -> None:
    key = create(served, "client")
    with served.http() as client:
        for headers in ({}, bearer(key)):
            for path in ("/v1/keys", "/v1/keys/client", "/v1/keys/client/usage", "/v1/keys/"):
                assert client.get(path, headers=headers).status_code == 401


def test_every_interface_counts_the_characters_of_answered_requests(served: LiveService) -> None:
    key = create(served, "all")
    assert translate(served, key).status_code == 200
    assert call(served, key) is grpc.StatusCode.OK
    assert as_deepl(served, key, text=[TEXT, "\u2600"]).status_code == 200
    assert as_libretranslate(served, key, q=[TEXT, TEXT]).status_code == 200
    assert as_libretranslate(served, key, alternatives=1).status_code == 200
    with served.http() as client:
        assert "event: result" in client.post("/v1/translate/stream", json={"text": TEXT}, headers=bearer(key)).text
    pairs = {"pairs": [{"text": TEXT, "translation": "beta"}]}
    assert served.post(pairs, path="/v1/score", headers=bearer(key)).status_code == 200
    assert translate(served, key, source_language="xx").status_code == 400
    assert served.post({"text": TEXT}, path="/v1/detect", headers=bearer(key)).status_code == 200
    served.settle()
    assert used(served, "all") == 8 * len(TEXT) + 1
    metrics = served.get("/metrics").text
    assert f'dragoman_key_characters_total{{key="all"}} {8 * len(TEXT) + 1}.0' in metrics
    assert 'dragoman_key_requests_total{key="all",outcome="admitted"} 8.0' in metrics


def test_each_interface_has_its_own_status_of_a_used_quota(served: LiveService) -> None:
    key = create(served, "used", characters=len(TEXT))
    assert translate(served, key).status_code == 200
    answer = translate(served, key)
    assert (answer.status_code, answer.json()["reason"]) == (429, "quota_exceeded")
    assert "retry-after" not in answer.headers
    assert call(served, key) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert as_deepl(served, key).status_code == 456
    answer = as_libretranslate(served, key)
    assert (answer.status_code, answer.json()["error"][:9]) == (429, "Slowdown:")
    assert used(served, "used") == len(TEXT)


def test_clients_of_deepl_see_their_usage_and_its_limit(served: LiveService, open_deepl: OpenDeepl) -> None:
    client = open_deepl(served, create(served, "sdk", characters=2 * len(TEXT)))
    client.translate_text(TEXT, source_lang="EN", target_lang="DE")
    usage = client.get_usage()
    assert (usage.character.count, usage.character.limit) == (len(TEXT), 2 * len(TEXT))
    assert not usage.any_limit_reached
    client.translate_text(TEXT, source_lang="EN", target_lang="DE")
    assert client.get_usage().any_limit_reached
    with pytest.raises(deepl.QuotaExceededException):
        client.translate_text(TEXT, source_lang="EN", target_lang="DE")


def test_requests_per_minute_are_refused_with_the_time_of_the_next_minute(served: LiveService) -> None:
    key = create(served, "slow", requests_per_minute=1)
    answers = [translate(served, key) for _ in range(3)]  # a minute may begin between two of them
    refused = answers[-1] if answers[-1].status_code == 429 else answers[1]
    assert refused.json()["reason"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 60


def test_several_targets_are_one_request_of_as_many_characters(served: LiveService) -> None:
    key = create(served, "targets", requests_per_minute=1)
    query = "api-version=3.0&from=en&to=de&to=DE&to=de-AT"
    assert served.post([{"Text": TEXT}], path=f"/m/translate?{query}", headers=bearer(key)).status_code == 200
    served.settle()
    assert used(served, "targets") == 3 * len(TEXT)


def test_a_key_may_be_bound_to_models(served: LiveService) -> None:
    (model,) = served.service.models.names
    bound, other = create(served, "bound", models=[model]), create(served, "other", models=["none"])
    assert translate(served, bound, model=model).status_code == 200
    assert translate(served, other, model=model).json()["reason"] == "forbidden"
    assert translate(served, other).status_code == 403
    assert call(served, other) is grpc.StatusCode.PERMISSION_DENIED
    assert as_deepl(served, other).status_code == 403
    assert as_libretranslate(served, other).status_code == 403


def test_a_key_created_by_another_process_is_accepted_soon(served: LiveService, folder: Path) -> None:
    state = State(folder)
    store = KeyStore(state)
    key = store.create("command", KeyLimits())[1]
    eventually(lambda: translate(served, key).status_code == 200)
    store.revoke("command")
    eventually(lambda: translate(served, key).status_code == 401)
    state.close()


def test_counts_survive_a_restart(bundle_path: Path, tmp_path: Path, state_url: str | None) -> None:
    settings: dict[str, Any] = {"state_dir": tmp_path, "state_url": state_url, "stored_api_keys": True}
    with run_service(bundle_path, **settings, admin_key="admin") as live:
        key = create(live, "one", characters=3 * len(TEXT))
        assert translate(live, key).status_code == 200
    with run_service(bundle_path, **settings, admin_key="admin") as live:
        assert used(live, "one") == len(TEXT)
        assert [translate(live, key).status_code for _ in range(3)] == [200, 200, 429]
        assert used(live, "one") == 3 * len(TEXT)


def test_keys_in_a_file_have_names_and_limits(bundle_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# KEY and its limits\nfirst name=web characters={len(TEXT)}\nsecond models=none,other\nthird\n")
    with run_service(bundle_path, state_dir=tmp_path / "state", api_keys_file=path) as live:
        statuses = [translate(live, key).status_code for key in ("first", "first", "second", "third")]
        assert statuses == [200, 429, 403, 200]
    with run_service(bundle_path, state_dir=tmp_path / "state", api_keys_file=path) as live:
        assert translate(live, "first").status_code == 429


def test_a_glossary_belongs_to_the_key_that_stored_it(served: LiveService) -> None:
    owner, other = (create(served, name) for name in ("glossary-owner", "glossary-other"))
    entries = {"source_language": "en", "target_language": "de", "text": "alpha\tbeta"}
    made = served.post({"name": "one", "dictionaries": [entries]}, path="/v1/glossaries", headers=bearer(owner))
    path = f"/v1/glossaries/{made.json()['id']}"
    for key, status, count in ((owner, 200, 1), (other, 404, 0)):
        with served.http() as client:
            client.headers.update(bearer(key))
            statuses = [client.get(path).status_code, client.get(f"{path}/entries", params=entries).status_code]
            assert statuses == [status] * 2
            listed = [client.get(f"{name}/glossaries").json()["glossaries"] for name in ("/v1", "/v2", "/v3")]
            assert list(map(len, listed)) == [count] * 3
    assert translate(served, other, glossary=made.json()["id"]).json()["reason"] == "glossary_not_found"
    # The glossary is found, but the bundle has no alignments.
    assert translate(served, owner, glossary=made.json()["id"]).json()["field"] == "glossary"
    statuses = []
    for key in (other, owner):
        with served.http() as client:
            client.headers.update(bearer(key))
            statuses += [client.delete(path.replace("/v1", "/v3")).status_code, client.delete(path).status_code]
    assert statuses == [404, 404, 204, 404]
