"""Microsoft Translator's interface with its own client, in front of a fake model from English into German."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.ai.translation.text import TextTranslationClient
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError
from pydantic import ValidationError

from dragoman.serve.bundle.language_codes import language_code
from dragoman.serve.compat.google import http as google_http
from dragoman.serve.compat.microsoft import http as microsoft_http
from dragoman.serve.compat.microsoft.http import MAX_TARGETS
from dragoman.serve.languages.names import served_codes
from dragoman.serve.settings import ServeSettings
from tests.serve.compat.conftest import TEXT
from tests.support.cases import cases
from tests.support.live import LiveService, run_service

CASES = cases(__file__)
PATH, KEY = "/microsoft/translate", "secret"


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, microsoft_path="/microsoft", api_keys=KEY) as service:
        yield service


def connect(live: LiveService, key: str = KEY) -> TextTranslationClient:
    return TextTranslationClient(endpoint=f"{live.http_url}/microsoft", credential=AzureKeyCredential(key))


def test_its_client_translates_into_several_languages_and_lists(live: LiveService, expected: str) -> None:
    with connect(live) as client:
        found = client.translate(body=[TEXT, "😀"], to_language=["de", "DE"], from_language="en")
        assert [[(each.text, each.to) for each in item.translations] for item in found] == [
            [(expected, "de"), (expected, "DE")],
            [("😀", "de"), ("😀", "DE")],
        ]
        (item,) = client.translate(body=[TEXT], to_language=["de"])
        assert item.detected_language is not None
        assert (item.detected_language.language, item.translations[0].text) == ("en", expected)
        languages = client.get_supported_languages().translation
    assert languages is not None
    assert {code: (language.name, language.dir) for code, language in languages.items()} == {
        "de": ("German", "ltr"),
        "en": ("English", "ltr"),
    }


def test_a_wrong_key_is_refused_in_its_form(live: LiveService) -> None:
    with connect(live, "wrong") as client, pytest.raises(HttpResponseError) as refused:
        client.translate(body=[TEXT], to_language=["de"])
    assert refused.value.status_code == 401
    assert refused.value.error is not None
    assert str(refused.value.error.code) == "401000"


def test_a_language_is_detected_for_each_text(live: LiveService) -> None:
    answer = post(live, {"api-version": "3.0"}, [{"text": "The house is in the garden."}], "/microsoft/detect")
    assert [(each["language"], each["isTranslationSupported"]) for each in answer.json()] == [("en", True)]


@pytest.mark.parametrize(("query", "body", "code", "part"), CASES["an error has a number and names the parameter"])
def test_an_error_has_a_number_and_names_the_parameter(
    live: LiveService, query: dict[str, str], body: object, code: int, part: str
) -> None:
    answer = post(live, query, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert part in answer.json()["error"]["message"]


def test_a_request_with_a_target_that_is_not_served_translates_nothing(live: LiveService) -> None:
    before = live.metric("source_tokens_total")
    texts = [{"Text": "The house is in the garden."}, {"Text": "Das Haus steht im Garten."}]
    answer = post(live, {"api-version": "3.0", "to": ["de", "en"]}, texts)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400036)
    assert live.metric("source_tokens_total") == before


def test_the_body_of_a_stranger_is_not_read(live: LiveService) -> None:
    with live.http() as client:
        assert client.post(PATH, content=b"x" * (3 << 20)).json()["error"]["code"] == 401000


@pytest.mark.parametrize("path", ["/breaksentence", "/dictionary/lookup"])
def test_a_missing_route_is_not_found_in_its_form_whatever_the_key(live: LiveService, path: str) -> None:
    answer = post(live, {"api-version": "3.0"}, [{"Text": TEXT}], f"/microsoft{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, 404000)


@pytest.mark.parametrize("written", [google_http._WRITTEN, microsoft_http._WRITTEN])
def test_each_listed_code_names_its_language_again(written: dict[str, str]) -> None:
    for code, name in written.items():
        assert code in (language_code(name), *served_codes(name)), name


@pytest.mark.parametrize("path", ["/", "/v1/", "/v2"])
def test_a_prefix_that_hides_other_routes_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="whose routes it would hide"):
        ServeSettings(microsoft_path=path)
    assert ServeSettings(microsoft_path="/", libretranslate_path="off").microsoft_path == "/"


def test_a_request_has_a_limited_number_of_targets(live: LiveService) -> None:
    answer = post(live, {"api-version": "3.0", "to": ["de"] * (MAX_TARGETS + 1)}, [{"Text": TEXT}])
    assert answer.json()["error"]["code"] == 400036


def post(live: LiveService, query: dict[str, Any], body: object, path: str = PATH) -> Any:
    with live.http() as client:
        return client.post(path, params=query, json=body, headers={"ocp-apim-subscription-key": KEY})
