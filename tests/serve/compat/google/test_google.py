"""Google Translate's interface with its own client, in front of a fake model from English into German."""

import html
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest
from google.auth.credentials import AnonymousCredentials
from google.cloud.translate_v2 import Client

from dragoman.serve.compat.google.http import MAX_TEXTS
from tests.serve.compat.conftest import TEXT
from tests.support.cases import cases
from tests.support.fakes import FakeModel
from tests.support.live import LiveService, run_service

CASES = cases(__file__)
PATH = "/language/translate/v2"


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, google_path="/") as service:
        yield service


@pytest.fixture
def client(live: LiveService) -> Iterator[Client]:
    client = Client(
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": live.http_url},
    )
    # The garbage collector would report its open sockets in another test.
    with closing(client._http):
        yield client


def test_its_client_translates_detects_and_lists(live: LiveService, client: Client, expected: str) -> None:
    found = client.translate([TEXT, "😀"], target_language="de", source_language="en", format_="text")
    assert [each["translatedText"] for each in found] == [expected, "😀"]
    found = client.translate(TEXT, target_language="DE")
    assert (found["translatedText"], found["detectedSourceLanguage"]) == (html.escape(expected), "en")
    assert client.detect_language("The house is in the garden.")["language"] == "en"
    assert client.get_languages() == [{"language": "de", "name": "German"}, {"language": "en", "name": "English"}]
    assert live.get(f"{PATH}/languages").json()["data"]["languages"] == [{"language": "de"}, {"language": "en"}]
    with pytest.raises(BadRequest, match="target: 'xx'"):
        client.translate(TEXT, target_language="xx")


def test_parameters_may_stand_in_the_query(live: LiveService, expected: str) -> None:
    with live.http() as http:
        answer = http.get(PATH, params={"q": [TEXT, TEXT], "target": "de", "source": "en", "format": "text"})
    assert answer.json() == {"data": {"translations": [{"translatedText": expected}] * 2}}


def test_signs_of_html_in_a_text_without_tags_are_text(live: LiveService) -> None:
    parameters = {"source": "en", "target": "de"}
    for text in ("Q&A", "alpha < beta & co"):
        (plain,) = live.post({**parameters, "q": text, "format": "text"}, path=PATH).json()["data"]["translations"]
        (found,) = live.post({**parameters, "q": text}, path=PATH).json()["data"]["translations"]
        assert found["translatedText"] == html.escape(plain["translatedText"])


def test_html_is_the_default_and_keeps_tags(letters_bundle: Path) -> None:
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, google_path="/") as live:
        (found,) = live.post({"q": "<p>ab <b>ba</b> &amp; b</p>", "target": "de"}, path=PATH).json()["data"][
            "translations"
        ]
    text = found["translatedText"]
    assert text.startswith("<p>")
    assert text.count("<b>") == text.count("</b>") == 1


@pytest.mark.parametrize(("parameters", "part"), CASES["an error has Google's form and names the parameter"])
def test_an_error_has_googles_form_and_names_the_parameter(
    live: LiveService, parameters: dict[str, Any], part: str
) -> None:
    answer = live.post(parameters, path=PATH)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert part in error["message"]


def test_a_request_has_a_limited_number_of_texts(live: LiveService) -> None:
    assert "Too many" in live.post({"q": ["a"] * (MAX_TEXTS + 1), "target": "de"}, path=PATH).text


def test_a_key_may_stand_in_the_query_or_a_header(bundle_path: Path) -> None:
    body = {"q": TEXT, "target": "de"}
    with run_service(bundle_path, google_path="/google", api_keys="secret") as live, live.http() as http:
        path = f"/google{PATH}"
        refused = http.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["status"]) == (401, "UNAUTHENTICATED")
        assert http.post(path, json=body, params={"key": "secret"}).status_code == 200
        for name, value in (("x-goog-api-key", "secret"), ("authorization", "Bearer secret")):
            assert http.post(path, json=body, headers={name: value}).status_code == 200


def test_an_unknown_path_is_not_found_in_googles_form(live: LiveService) -> None:
    answer = live.get(f"{PATH}/other")
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_both_interfaces_are_off_by_default(served: LiveService) -> None:
    for path in (PATH, "/microsoft/translate"):
        assert served.post({"q": TEXT}, path=path).status_code == 404
