"""DeepL's interface: its shapes, errors and Python client, with a fake model from English into German."""

from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest

from tests.serve.compat.conftest import TEXT
from tests.support.cases import cases
from tests.support.interfaces import OpenDeepl
from tests.support.live import LiveService, run_service

CASES = cases(__file__)

PAIR = {"source_lang": "EN", "target_lang": "DE"}


def ask(live: LiveService, **parameters: Any) -> httpx.Response:
    return live.post({"text": [TEXT], **PAIR, **parameters}, path="/v2/translate")


def test_parameters_may_stand_in_json_form_or_query(served: LiveService, expected: str) -> None:
    whole = {"detected_source_language": "EN", "text": expected, "billed_characters": len(TEXT)}
    assert ask(served, text=[TEXT, ""]).json() == {
        "translations": [whole, {"detected_source_language": "EN", "text": "", "billed_characters": 0}]
    }
    form = served.post(path="/v2/translate", data={"text": [TEXT, TEXT], "split_sentences": "0", **PAIR})
    assert form.json() == {"translations": [whole, whole]}
    with served.http() as client:
        assert client.get("/v2/translate", params={"text": TEXT, **PAIR}).json() == {"translations": [whole]}


def test_parameters_without_effect_are_accepted(served: LiveService, expected: str) -> None:
    of_text = {"formality": "prefer_more", "context": "gamma", "preserve_formatting": True, "split_sentences": 1}
    others = {"show_billed_characters": "1", "enable_beta_languages": False, "debug": "1"}
    assert ask(served, **of_text, **others).json()["translations"][0]["text"] == expected


def test_blanks_take_linear_time(served: LiveService) -> None:
    """A text of a million blanks would take hours, and each text within the limit half a second."""
    for texts, status in (["a" + " " * 1_000_000 + "b"], 413), (["alpha" + " " * 9_000 + "beta."] * 8, 200):
        assert ask(served, text=texts, split_sentences="nonewlines").status_code == status


def test_larger_requests_than_deepl_takes_are_refused(served: LiveService) -> None:
    assert ask(served, text=["\u00e4" * 40_000, "\u00e4" * 40_000]).status_code == 413


def test_a_text_in_another_variant_of_the_target_language_comes_back_unchanged(served: LiveService) -> None:
    for target in ("EN-US", "EN-GB"):
        answer = ask(served, target_lang=target).json()["translations"][0]
        assert (answer["text"], answer["detected_source_language"]) == (TEXT, "EN")


def test_the_kind_of_model_is_answered_if_asked(served: LiveService) -> None:
    (answer,) = ask(served, model_type="prefer_quality_optimized").json()["translations"]
    assert answer["model_type_used"] == "quality_optimized"


def test_sentences_may_run_over_lines(served: LiveService, expected: str) -> None:
    answer = ask(served, text=["alpha\nbeta."], split_sentences="nonewlines").json()
    assert answer["translations"][0]["text"] == expected


@pytest.mark.parametrize(
    ("parameters", "part"), [*CASES["errors name the parameter"], ({"text": ["a"] * 51}, "at most 50")]
)
def test_errors_name_the_parameter(served: LiveService, parameters: dict[str, Any], part: str) -> None:
    answer = ask(served, **parameters)
    assert answer.status_code == 400
    assert part in answer.json()["message"]
    assert answer.headers["x-trace-id"] == answer.headers["x-request-id"]


def test_markup_keeps_its_tags(letters_live: LiveService) -> None:
    sent = {"text": ["<p>ab <b>ba</b></p>", "a <x/> b"], **PAIR}
    for more in ({"tag_handling": "html"}, {"tag_handling": "xml", "ignore_tags": ["x"], "outline_detection": False}):
        answer = letters_live.post({**sent, **more}, path="/v2/translate").json()
        first, second = (translation["text"] for translation in answer["translations"])
        assert first.startswith("<p>")
        assert first.count("<b>") == first.count("</b>") == second.count("<x/>") == 1


def test_languages_list_the_variants_of_targets(served: LiveService) -> None:
    with served.http() as client:
        assert client.get("/v2/languages").json() == [{"language": "EN", "name": "English"}]
        target = {"language": "DE", "name": "German", "supports_formality": False}
        assert client.get("/v2/languages", params={"type": "target"}).json() == [target]
        assert client.get("/v2/languages", params={"type": "x"}).status_code == 400
        listed = client.get("/v3/languages", params={"resource": "translate_text"}).json()
        usable = [(entry["lang"], entry["usable_as_source"], entry["usable_as_target"]) for entry in listed]
        assert usable == [("de", False, True), ("en", True, False)]
        assert client.get("/v3/languages", params={"product": "translate_text"}).status_code == 400
        assert client.get("/v3/languages/resources").json()[0]["name"] == "translate_text"
        assert client.get("/v2/usage").json()["character_count"] == 0


def test_both_owners_of_paths_below_v2_answer_in_their_form(served: LiveService) -> None:
    for path in ("/v2/models/none", "/v2/none"):
        assert "error" in served.get(path).json()
    for path in ("/v2/write/rephrase", "/v3/none", "/v2/document/1/none"):
        answer = served.get(path)
        assert (answer.status_code, list(answer.json())) == (404, ["message"])
    assert served.get("/v2/health/ready").json() == {"ready": True}
    assert served.get("/v2").json()["name"]


def test_keys_may_stand_in_a_header_or_a_parameter(bundle_path: Path) -> None:
    with run_service(bundle_path, api_keys="secret") as live:
        for parameters, headers, status in (
            ({}, {}, 403),
            ({"auth_key": "other"}, {}, 403),
            ({"auth_key": "secret"}, {}, 200),
            ({}, {"authorization": "DeepL-Auth-Key secret"}, 200),
            ({}, {"authorization": "Bearer secret"}, 200),
            ({}, {"authorization": "DeepL-Auth-Key other"}, 403),
        ):
            body = {"text": [TEXT], **PAIR, **parameters}
            assert live.post(body, path="/v2/translate", headers=headers).status_code == status
        assert live.get("/v2/languages").status_code == live.get("/v2/usage").status_code == 403


def test_a_setting_moves_or_removes_the_routes(bundle_path: Path) -> None:
    with run_service(bundle_path, deepl_path="/deepl/") as live:
        assert live.get("/deepl/v2/usage").status_code == 200
        assert live.get("/v2/usage").json() == {"error": "Not Found"}
    with run_service(bundle_path, deepl_path="off") as live:
        assert live.get("/v3/languages").json()["reason"] == "not_found"


def test_the_python_client_works_unchanged(served: LiveService, expected: str, open_deepl: OpenDeepl) -> None:
    client = open_deepl(served)
    result = client.translate_text(TEXT, source_lang="EN", target_lang="DE")
    assert isinstance(result, deepl.TextResult)
    assert (result.text, result.detected_source_lang, result.billed_characters) == (expected, "EN", len(TEXT))
    assert [language.code for language in client.get_target_languages()] == ["DE"]
    assert [language.code for language in client.get_source_languages()] == ["EN"]
    assert not client.get_usage().any_limit_reached
    with pytest.raises(deepl.DeepLException, match="target_lang"):
        client.translate_text(TEXT, source_lang="EN", target_lang="ZZ")
