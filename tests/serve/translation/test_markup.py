"""Requests with markup over both interfaces, in streams, through a pivot and from the cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.translation import large_work
from dragoman.serve.translation.large_work import run_part
from dragoman.serve.translation.markup import FEW_TAGGED_SENTENCES
from tests.support.cases import cases
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.fakes import FakeModel
from tests.support.live import LiveService, run_service
from tests.support.markup import structure_of
from tests.support.wire import refusal_of_both, stream_over_rest, translate_over_both

CASES = cases(__file__)

Answer = dict[str, Any]
HTML = (
    '<div id="0">\n<h1 id="1">ab ba</h1><p id="2">b <b id="3">ab abba</b> a &amp; b. <i id="4">ab</i> ba!<br id="5"/>a'
    ' <img id="6"/> b</p><!-- ab --><pre id="7">abba</pre></div>\n'
)
SENTENCES = ["ab ba", "b ab abba a & b. ab ba!", "a b"]
LANGUAGES = {"source_language": "fr", "target_language": "de", "allow_pivot": True}


@pytest.mark.parametrize("markup_format", ["html", "xml"])
def test_the_tags_of_a_document_come_back_around_the_translations_of_its_sentences(
    letters_live: LiveService, markup_format: str
) -> None:
    """In XML, text stands next to no element of the outermost level here."""
    request = {"text": [HTML], "format": markup_format, "options": {"max_target_tokens": 6}}
    (translation,) = translate_over_both(letters_live, request)
    translated, source = structure_of(translation["text"].strip()), structure_of(HTML.strip())
    assert (translated.parents, translated.others) == (source.parents, source.others)
    assert translation["text"].startswith('<div id="0">\n<h1 id="1">')
    if markup_format == "html":
        assert translation["text"].endswith('<!-- ab --><pre id="7">abba</pre></div>\n')
        assert translation["sentences"] == len(SENTENCES)
    assert "alignments" not in translation


def test_sentences_of_markup_are_translated_as_plain_text(letters_live: LiveService) -> None:
    """Scores and tokens are bitwise those of the plain sentences."""
    options = {"max_target_tokens": 6, "token_scores": True}
    (marked,) = translate_over_both(letters_live, {"text": [HTML], "format": "html", "options": options})
    plain = translate_over_both(letters_live, {"text": SENTENCES, "options": options, "split_sentences": False})
    assert marked["tokens"] == [token for item in plain for token in item["tokens"]]
    assert marked["target_tokens"] == sum(item["target_tokens"] for item in plain)


def test_text_without_tags_is_translated_as_plain_text_and_escaped(letters_live: LiveService) -> None:
    text = "ab ba. b ab!"
    (plain,) = translate_over_both(letters_live, {"text": [text]})
    for markup_format in ("html", "xml"):
        (marked,) = translate_over_both(letters_live, {"text": [text], "format": markup_format})
        assert marked == {**plain, "text": plain["text"].replace("<", "&lt;").replace(">", "&gt;")}
    assert translate_over_both(letters_live, {"text": [text], "format": "text"}) == [plain]


def test_all_alternatives_have_the_tags(letters_live: LiveService) -> None:
    options = {"beam_size": 4, "hypotheses": 3, "max_target_tokens": 6}
    text = '<p id="1">b <b id="2">ab</b> abba</p>'
    (translation,) = translate_over_both(letters_live, {"text": [text], "format": "html", "options": options})
    found = [translation, *translation["alternatives"]]
    assert len(found) == 3
    assert all(structure_of(result["text"]).parents == structure_of(text).parents for result in found)
    assert len({result["text"] for result in found}) == 3


def test_texts_with_many_tags_are_joined_in_parts_of_their_own(
    letters_live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that other large requests wait for one of them, not for all."""
    parts: list[float] = []

    async def counted(deadline_seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        parts.append(deadline_seconds)
        return await run_part(deadline_seconds, function, *arguments)

    monkeypatch.setattr(large_work, "run_part", counted)
    text = f"<div>{'<p>a <b>ab</b></p>' * (FEW_TAGGED_SENTENCES + 1)}</div>"
    answer = letters_live.post({"text": [text] * 3, "format": "html", "options": {"max_target_tokens": 6}})
    translations = answer.json()["translations"]
    assert [structure_of(item["text"]).parents for item in translations] == [structure_of(text).parents] * 3
    assert len(parts) == 3


@pytest.mark.parametrize("text", ["<img src='a'>", "<p></p> <script>ab</script>", "<pre>ab</pre>", "&nbsp;"])
def test_markup_without_text_comes_back_as_it_is(letters_live: LiveService, text: str) -> None:
    empty, other = translate_over_both(letters_live, {"text": [text, "ab <b>ba</b> b"], "format": "html"})
    assert (empty["text"], empty["sentences"], empty["source_tokens"], empty["score"]) == (text, 0, 0, 0)
    assert other["sentences"] == 1
    assert translate_over_both(letters_live, {"text": [text], "format": "html"}) == [empty]


@pytest.mark.parametrize("options", [{}, {"beam_size": 2}], ids=str)
def test_the_deltas_of_a_stream_make_up_the_document(letters_live: LiveService, options: Answer) -> None:
    texts = [HTML, "<img>", "ab. b <b>ba</b>. a & b"]
    request = {"text": texts, "format": "html", "options": {**options, "max_target_tokens": 6}}
    deltas, result = stream_over_rest(letters_live, request)
    assert result["translations"] == translate_over_both(letters_live, request)
    for index, translation in enumerate(result["translations"]):
        own = [delta for delta in deltas if delta["text_index"] == index]
        assert "".join(delta["text"] for delta in own) == translation["text"]
        assert own[-1]["finish_reason"] == translation["finish_reason"]
        assert own[-1]["target_tokens"] == translation["target_tokens"]


def test_cached_sentences_have_their_tags(letters_bundle: Path) -> None:
    request = {"text": HTML, "format": "html", "options": {"max_target_tokens": 6}}
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, result_cache_bytes=1 << 20) as live:
        first, second = (live.post(request).json()["translations"][0] for _ in range(2))
        deltas, _ = stream_over_rest(live, request)
    assert (first.pop("cached"), second.pop("cached")) == (False, True)
    assert first == second
    assert "".join(delta["text"] for delta in deltas) == first["text"]


def test_a_pivot_keeps_the_tags(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for name, prefix in (("en-de", 9), ("fr-en", 10)):
        put_bundle(tmp_path / name, tokenizer, direction(name, prefix), aligned=True)
    text = '<div id="0"><p id="1">alpha <b id="2">beta gamma</b> one.</p><img id="3"/>\n<p id="4">two</p></div>'
    with run_service(tmp_path, load=load_fakes, alignments=True) as live:
        (translation,) = translate_over_both(live, {"text": [text], "format": "html", **LANGUAGES})
        (between,) = translate_over_both(live, {"text": [text], "format": "html", "model": "fr-en"})
        (last,) = translate_over_both(live, {"text": [between["text"]], "format": "html", "model": "en-de"})
    assert structure_of(translation["text"]).parents == structure_of(text).parents
    assert translation["text"] == last["text"] != between["text"]


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        *CASES["invalid markup and options are refused by field"],
        ({"format": "html", "non_splitting_tags": ["b"] * 65}, "non_splitting_tags", "65 names, expected at most 64"),
        ({"format": "html", "text": ["<b>" * 201]}, "text[0]", "more than 200 levels of elements at character 600"),
        ({"format": "html", "text": ["<p>ab</p>" * 500]}, "text", "expected at most"),
    ],
)
def test_invalid_markup_and_options_are_refused_by_field(
    letters_live: LiveService, fields: Answer, field: str, problem: str
) -> None:
    refused, message = refusal_of_both(letters_live, {"text": ["ab <b>ba</b>"], **fields})
    assert refused == field
    assert problem in message


def test_tags_of_a_client_split_and_are_ignored(letters_live: LiveService) -> None:
    request = {"text": ["ab <B>ba</B> a <code>abba  b</code> b"], "format": "html"}
    chosen = {"splitting_tags": ["B"], "ignore_tags": ["Code"]}
    (translation,) = translate_over_both(letters_live, {**request, **chosen})
    assert translation["sentences"] == 3
    assert "<code>abba  b</code>" in translation["text"]
    (one,) = translate_over_both(letters_live, request)
    assert one["sentences"] == 1


def test_blocks_are_the_sentences_if_they_are_not_split(letters_live: LiveService) -> None:
    request = {"text": ["<p>ab! Ba!</p>\n<p>b. A.</p>"], "format": "html"}
    (translation,) = translate_over_both(letters_live, {**request, "split_sentences": False})
    assert translation["sentences"] == 2
