"""Requests with placeholders and formatting over both interfaces and in streams."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.cases import cases
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.live import LiveService, eventually, run_service
from tests.support.paths import ROOT
from tests.support.wire import refusal_of_both, stream_over_rest, translate_over_both

CASES = cases(__file__)

OPTIONS = {"max_target_tokens": 6}


@pytest.mark.parametrize("markup_format", ["text", "html"])
@pytest.mark.parametrize("text", ["ab {0} ba", "ab %s. b {0} ab!", "{0} %s", "ab https://a.example/b ba b"])
def test_placeholders_come_back_with_what_was_repaired(
    letters_live: LiveService, text: str, markup_format: str
) -> None:
    request = {"text": [text], "format": markup_format, "placeholders": ["all"], "options": OPTIONS}
    (translation,) = translate_over_both(letters_live, request)
    kept = [name for name in ("{0}", "%s", "https://a.example/b") if name in text]
    assert all(translation["text"].count(item) == 1 for item in kept)
    repairs = translation.get("repairs") or []
    assert {repair["placeholder"] for repair in repairs} <= set(kept)


@pytest.mark.parametrize("markup_format", ["text", "html"])
def test_only_the_texts_of_the_branches_of_a_message_are_translated(
    letters_live: LiveService, markup_format: str
) -> None:
    message = "{{n, plural, one {{{}}} other {{{}}}}}"
    request = {"text": [message.format("a", "ab ba")], "format": markup_format, "placeholders": ["all"]}
    (translation,) = translate_over_both(letters_live, {**request, "options": OPTIONS})
    branches = translate_over_both(letters_live, {"text": ["a", "ab ba"], "options": OPTIONS})
    assert translation["text"] == message.format(*(branch["text"] for branch in branches))


def test_a_stream_with_placeholders_has_one_delta_per_text(letters_live: LiveService) -> None:
    request: dict[str, Any] = {"text": ["ab %s ba", "b"], "placeholders": ["printf"], "options": OPTIONS}
    deltas, result = stream_over_rest(letters_live, request)
    assert [delta["text"] for delta in deltas] == [translation["text"] for translation in result["translations"]]
    assert result["translations"] == translate_over_both(letters_live, request)


def test_a_pivot_lists_the_repairs_of_both_translations(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for name, prefix in (("en-de", 9), ("fr-en", 10)):
        put_bundle(tmp_path / name, tokenizer, direction(name, prefix), aligned=True)
    request = {"text": ["red %s house"], "placeholders": ["all"], "options": OPTIONS}
    languages = {"source_language": "fr", "target_language": "de", "allow_pivot": True}
    with run_service(tmp_path, [], load=load_fakes, alignments=True) as live:
        (translation,) = translate_over_both(live, {**request, **languages})
        (first,) = translate_over_both(live, {**request, "target_language": "en", "source_language": "fr"})
    assert translation["text"].count("%s") == first["text"].count("%s") == 1
    assert translation["repairs"][: len(first["repairs"])] == first["repairs"]


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "a.txt"])
def test_files_of_messages_keep_their_placeholders_unless_told_otherwise(
    tokenizer: Tokenizer, tmp_path: Path, name: str
) -> None:
    put_bundle(tmp_path / "model", tokenizer, direction("en-de", 9), aligned=True)
    query = {"name": name, "source_language": "en", "target_language": "de"}
    message = b'{"en": "red %s house in {city}"}'
    with run_service(tmp_path / "model", load=load_fakes, alignments=True, state_dir=tmp_path / "state") as live:
        path = f"/v1/documents/{live.post(path='/v1/documents', content=message, params=query).json()['id']}"
        eventually(lambda: live.get(path).json()["status"] == "done")
        text = live.get(f"{path}/result").text
    assert [text.count(label) for label in ("%s", "{city}")] == [int(name != "a.txt")] * 2


def test_automatic_placeholders_are_all_kinds_with_alignments_and_none_without(
    letters_live: LiveService, bundle_path: Path
) -> None:
    request = {"text": ["ab {0} ba"], "options": OPTIONS}
    automatic, every = ({**request, "placeholders": [kind]} for kind in ("auto", "all"))
    assert translate_over_both(letters_live, automatic) == translate_over_both(letters_live, every)
    with run_service(bundle_path, alignments=False) as live:
        assert translate_over_both(live, automatic) == translate_over_both(live, request)
        assert "placeholders" in str(refusal_of_both(live, every)[0])


def test_formatting_follows_the_text(letters_live: LiveService) -> None:
    request = {"text": ["ab ba?", "ab\tba"], "preserve_formatting": True, "options": OPTIONS}
    first, second = translate_over_both(letters_live, request)
    assert first["text"].endswith("?")
    assert second["text"].count("\t") == 1
    assert "repairs" not in first


@pytest.mark.parametrize("bundle", ["multi30k", "multi30k-en-de"])
def test_an_included_model_keeps_the_period_behind_a_placeholder(bundle: str) -> None:
    """The period attends to the placeholder, whose words it follows."""
    request = {"text": "A man is talking to {name}.", "source_language": "en", "target_language": "de"}
    with run_service(ROOT / "bundles" / bundle, [], alignments=True) as live:
        for markup_format, formatting in product(("text", "html", "xml"), (False, True)):
            fields = {"format": markup_format, "preserve_formatting": formatting, "placeholders": ["all"]}
            (translation,) = live.post({**request, **fields}).json()["translations"]
            assert translation["text"].endswith(" {name}.")


@pytest.mark.parametrize(("fields", "refused"), CASES["invalid placeholders are refused"])
def test_invalid_placeholders_are_refused(letters_live: LiveService, fields: dict[str, Any], refused: str) -> None:
    problem, _ = refusal_of_both(letters_live, {"text": ["ab"], **fields})
    assert refused in str(problem)
