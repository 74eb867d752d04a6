"""Applications that use LibreTranslate or DeepL: the requests that their sources send. The applications do not run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import FakeModel
from tests.support.live import LiveService, run_service

KEY = {"authorization": "DeepL-Auth-Key secret"}


@pytest.fixture(scope="module")
def served(letters_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    state = tmp_path_factory.mktemp("state")
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, state_dir=state, api_keys="secret") as live:
        yield live


def test_weblate_translates_strings_with_placeholders_and_a_glossary(served: LiveService) -> None:
    with served.http() as client:
        client.headers.update(KEY)
        for side, code in (("source", "EN"), ("target", "DE")):
            listed = client.get("/v2/languages", params={"type": side, "enable_beta_languages": "1"}).json()
            assert code in [entry["language"] for entry in listed]
        pairs = client.get("/v2/glossary-language-pairs").json()["supported_languages"]
        assert ("EN", "DE") in [(pair["source_lang"].upper(), pair["target_lang"].upper()) for pair in pairs]
        languages = {"source_lang": "EN", "target_lang": "DE"}
        new = {"name": "weblate:1", "entries": "b\tdcd", "entries_format": "tsv", **languages}
        assert client.post("/v2/glossaries", json=new).status_code == 201
        listed = client.get("/v2/glossaries").json()["glossaries"]
        glossary = {entry["name"]: entry["glossary_id"] for entry in listed}["weblate:1"]
        requested = {
            "text": ['ab <x id="3"></x> ba', "b"],
            "formality": "default",
            "tag_handling": "xml",
            "ignore_tags": ["x"],
            "context": "a form",
            "glossary_id": glossary,
            "model_type": "prefer_quality_optimized",
            **languages,
        }
        first, second = client.post("/v2/translate", json=requested).json()["translations"]
        assert '<x id="3"></x>' in first["text"]
        assert "dcd" in second["text"]
        assert client.delete(f"/v2/glossaries/{glossary}").status_code == 204


def test_nextcloud_lists_detects_and_translates(served: LiveService) -> None:
    """Its library sends multipart data, in requests without parameters too: an empty form has the last line only."""
    empty: dict[str, Any] = {
        "content": "--------------------------1--\r\n",
        "headers": {"content-type": "multipart/form-data; boundary=------------------------1"},
    }
    with served.http() as client:
        assert client.post("/", **empty).status_code < 500
        assert client.request("GET", "/frontend/settings", **empty).json()["keyRequired"]
        assert {item["code"] for item in client.request("GET", "/languages", **empty).json()} == {"de", "en"}
        detected = client.post("/detect", params={"q": "ab ba", "api_key": "secret"}, **empty).json()
        assert detected[0]["language"] == "en"
        form = {"q": "ab ba", "format": "html", "source": "en", "target": "de", "api_key": "secret"}
        answer = client.post("/translate", files={name: (None, value) for name, value in form.items()})
        assert answer.json()["translatedText"]


def test_a_browser_extension_asks_before_its_request(served: LiveService) -> None:
    origin = {"origin": "moz-extension://1", "access-control-request-method": "POST"}
    with served.http() as client:
        preflight = client.options("/translate", headers={**origin, "access-control-request-headers": "content-type"})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "content-type" in preflight.headers["access-control-allow-headers"].lower()
        body = {"q": "ab ba", "source": "auto", "target": "de", "format": "text", "api_key": "secret"}
        answer = client.post("/translate", json=body, headers={"origin": origin["origin"]})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.json()["detectedLanguage"]["language"] in ("de", "en")
