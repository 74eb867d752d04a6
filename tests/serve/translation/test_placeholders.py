"""Requests with placeholders and formatting over both interfaces and in streams."""

import json
from typing import Any

import pytest

from tests.support.live import LiveService
from tests.support.wire import refusal_of_both, translate_over_both

OPTIONS = {"max_target_tokens": 6}


@pytest.mark.parametrize("markup_format", ["text", "html"])
@pytest.mark.parametrize("text", ["ab {0} ba", "ab %s. b {0} ab!", "{0} %s", "ab https://a.example/b ba b"])
def test_placeholders_come_back_with_what_was_repaired(
    letters_live: LiveService, text: str, markup_format: str
) -> None:
    request = {"text": [text], "format": markup_format, "placeholders": ["all"], "options": OPTIONS}
    (translation,) = translate_over_both(letters_live, request)
    kept = [each for each in ("{0}", "%s", "https://a.example/b") if each in text]
    assert all(translation["text"].count(each) == 1 for each in kept)
    repairs = translation.get("repairs") or []
    assert {each["placeholder"] for each in repairs} <= set(kept)


def test_a_stream_with_placeholders_has_one_delta_per_text(letters_live: LiveService) -> None:
    request: dict[str, Any] = {"text": ["ab %s ba", "b"], "placeholders": ["printf"], "options": OPTIONS}
    content = letters_live.post(request, path="/v1/translate/stream").text
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in content.split("\n\n") if block]
    *deltas, result = [json.loads(block["data"]) for block in blocks if "data" in block]
    assert [each["text"] for each in deltas] == [each["text"] for each in result["translations"]]
    assert result["translations"] == translate_over_both(letters_live, request)


def test_formatting_follows_the_text(letters_live: LiveService) -> None:
    request = {"text": ["ab ba?", "ab\tba"], "preserve_formatting": True, "options": OPTIONS}
    first, second = translate_over_both(letters_live, request)
    assert first["text"].endswith("?")
    assert second["text"].count("\t") == 1
    assert "repairs" not in first


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"placeholders": ["words"]}, "placeholders[0]"),
        ({"placeholders": ["all"], "target_prefix": ["a"]}, "target_prefix"),
        ({"preserve_formatting": True, "options": {"alignments": "words"}}, "options.alignments"),
    ],
)
def test_invalid_placeholders_are_refused(letters_live: LiveService, fields: dict[str, Any], refused: str) -> None:
    problem, _ = refusal_of_both(letters_live, {"text": ["ab"], **fields})
    assert refused in str(problem)
