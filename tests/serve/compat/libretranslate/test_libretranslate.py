"""LibreTranslate's interface: its shapes, error texts and clients, with a fake model from English into German."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from deep_translator import LibreTranslator
from libretranslate_aio import BadRequestError, LibreTranslate
from libretranslatepy import LibreTranslateAPI
from translate import Translator

from tests.serve.compat.conftest import TEXT
from tests.support.cases import cases
from tests.support.live import LiveService, run_service

CASES = cases(__file__)

PAIR = {"source": "en", "target": "de"}


def ask(live: LiveService, path: str = "/translate", **parameters: Any) -> httpx.Response:
    return live.post(parameters, path=path)


def test_parameters_may_stand_in_json_form_multipart_or_query(served: LiveService, expected: str) -> None:
    parameters = {"q": TEXT, **PAIR}
    ways: list[dict[str, Any]] = [
        {"json": parameters},
        {"data": parameters},
        {"files": {name: (None, value) for name, value in parameters.items()}},
        {"params": parameters},
        {"params": PAIR, "data": {"q": TEXT}},
    ]
    for way in ways:
        answer = served.post(path="/translate", **way)
        assert (answer.status_code, answer.json()) == (200, {"translatedText": expected})


def test_a_list_of_texts_gets_a_list(served: LiveService, expected: str) -> None:
    both = {"translatedText": [expected, expected]}
    assert ask(served, q=[TEXT, TEXT], **PAIR).json() == both
    assert served.post(path="/translate", data={"q": [TEXT, TEXT], **PAIR}).json() == both
    assert ask(served, q=[TEXT], **PAIR).json() == {"translatedText": [expected]}


def test_texts_without_words_come_back_unchanged(served: LiveService, expected: str) -> None:
    texts = ask(served, q=["😀👍🏽", " \n", TEXT, ""], **PAIR).json()["translatedText"]
    assert texts == ["😀👍🏽", " \n", expected, ""]
    assert ask(served, q=TEXT, source="de", target="de").json() == {"translatedText": TEXT}


def test_alternatives_are_distinct_and_bounded(served: LiveService) -> None:
    answer = ask(served, q=TEXT, alternatives=2, **PAIR).json()
    texts = [answer["translatedText"], *answer["alternatives"]]
    assert 1 < len(texts) <= 3
    assert len(set(texts)) == len(texts)
    # A text takes a slot per hypothesis, and an engine has four.
    too_many = ask(served, q=TEXT, alternatives=4, **PAIR).json()
    assert too_many["error"] == "Invalid request: alternatives parameter must be <= 3"
    assert ask(served, q=[f"{TEXT} Gamma delta."], alternatives=1, **PAIR).json()["alternatives"] == [[]]


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        *CASES["errors have the texts that clients know"],
        ({"q": ["a"] * 65, **PAIR}, "Invalid request: request (65) exceeds text limit (40)"),
        ({"q": "a" * 10_001, **PAIR}, "Invalid request: request (10001) exceeds text limit (10000)"),
    ],
)
def test_errors_have_the_texts_that_clients_know(served: LiveService, parameters: dict[str, Any], error: str) -> None:
    answer = ask(served, **parameters)
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_codes_may_have_any_case_and_region(served: LiveService, expected: str) -> None:
    assert ask(served, q=TEXT, source="EN-us", target="de_DE").json() == {"translatedText": expected}


def test_pages_of_any_origin_may_call_unless_origins_are_configured(served: LiveService, bundle_path: Path) -> None:
    for answer in (served.get("/languages"), ask(served), served.get("/translate")):
        assert answer.headers["access-control-allow-origin"] == "*"
    with served.http() as client:
        assert client.options("/translate").headers["access-control-max-age"] == "1728000"
    with run_service(bundle_path, cors_origins=["https://a.example"]) as live:
        assert "access-control-allow-origin" not in live.get("/languages").headers


def test_other_routes_have_their_shapes(served: LiveService) -> None:
    assert served.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]
    assert served.get("/health").json() == {"status": "ok"}
    settings = served.get("/frontend/settings").json()
    assert (settings["charLimit"], settings["keyRequired"]) == (10_000, False)
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert "/translate" in served.get("/spec").json()["paths"]
    assert ask(served, "/suggest", q=TEXT, s=TEXT, **PAIR).status_code == 403
    assert served.get("/translate").status_code == 405
    assert served.post(path="/languages").json() == {"error": "Method Not Allowed"}


def test_keys_may_stand_in_the_parameters(bundle_path: Path) -> None:
    with run_service(bundle_path, api_keys="secret") as live:
        assert ask(live, q=TEXT, **PAIR).status_code == 400
        wrong = ask(live, q=TEXT, api_key="other", **PAIR)
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert ask(live, q=TEXT, api_key="secret", **PAIR).status_code == 200
        bearer = live.post({"q": TEXT, **PAIR}, path="/translate", headers={"authorization": "Bearer secret"})
        assert bearer.status_code == 200
        assert live.get("/languages").status_code == 200


def test_a_setting_moves_or_removes_the_routes(bundle_path: Path) -> None:
    with run_service(bundle_path, libretranslate_path="/libre") as live:
        assert ask(live, "/libre/translate", q=TEXT, **PAIR).status_code == 200
        assert ask(live, q=TEXT, **PAIR).json()["reason"] == "not_found"
    with run_service(bundle_path, libretranslate_path="off") as live:
        assert live.get("/languages").status_code == 404


def test_clients_work_unchanged(served: LiveService, expected: str) -> None:
    url = served.http_url
    assert LibreTranslateAPI(url).translate(TEXT, "en", "de") == expected
    assert LibreTranslator("en", "de", api_key="x", custom_url=f"{url}/").translate(TEXT) == expected
    translator = Translator(provider="libre", from_lang="en", to_lang="de", base_url=url, secret_access_key=None)
    assert translator.translate(TEXT) == expected
    with LibreTranslate(url) as client:
        assert client.translate(TEXT, "en", "de").translated_text == expected
        assert client.translate([TEXT, TEXT], "en", "de").translated_text == [expected, expected]
        assert [language.code for language in client.languages()] == ["de", "en"]
        with pytest.raises(BadRequestError, match="zz is not supported"):
            client.translate(TEXT, "en", "zz")
