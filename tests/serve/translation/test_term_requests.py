"""Requests with terms over both interfaces, in streams, with markup and placeholders, and through a pivot."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.protect.terms.sentence_terms import SentenceTerms
from dragoman.serve.translation import job
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.fakes import FakeModel
from tests.support.live import LiveService, run_service
from tests.support.wire import refusal_of_both, stream_over_rest, translate_over_both

OPTIONS = {"max_target_tokens": 6}
TERMS = [{"source": "ab", "targets": ["bab", "aab"]}, {"source": "b", "targets": []}]


def has(text: str, form: str) -> int:
    return len(re.findall(rf"(?<!\w){form}(?!\w)", text))


@pytest.mark.parametrize("fields", [{}, {"options": {"beam_size": 3}}, {"options": {"beam_size": 3, "hypotheses": 2}}])
@pytest.mark.parametrize("text", ["ab ba", "b ba ab", "ba", "ab ab, ab"])
def test_every_term_is_in_the_translation(letters_live: LiveService, text: str, fields: dict[str, Any]) -> None:
    options = {**OPTIONS, **fields.get("options", {})}
    (translation,) = translate_over_both(letters_live, {"text": [text], "terms": TERMS, "options": options})
    for found in (translation, *translation["alternatives"]):
        applied = found.get("terms") or []
        assert [item["source"] for item in applied] == re.findall(r"\bab\b|\bb\b", text)
        assert has(found["text"], "bab") + has(found["text"], "aab") >= has(text, "ab")
        assert has(found["text"], "b") >= has(text, "b")
        assert {item["way"] for item in applied} <= {"present", "decoded", "placed"}
        assert "alignments" not in found


def test_long_texts_have_the_terms_of_each_sentence(letters_live: LiveService) -> None:
    request = {"text": ["ab ba.\nba b.\n"], "terms": TERMS, "options": OPTIONS}
    (translation,) = translate_over_both(letters_live, request)
    first, second, end = translation["text"].split("\n")
    assert [term["source"] for term in translation["terms"]] == ["ab", "b"]
    assert has(first, "[ab]ab") == has(second, "b") == 1
    assert end == ""


@pytest.mark.parametrize("in_loop", [True, False])
def test_terms_of_long_texts_do_not_block_the_event_loop(
    letters_live: LiveService, monkeypatch: pytest.MonkeyPatch, *, in_loop: bool
) -> None:
    """They are sought and placed in the thread of large requests."""
    text = "ab ba.\nba ab."
    monkeypatch.setattr(job, "SMALL_MARKUP_BYTES", len(text) if in_loop else 1)
    threads: set[bool] = set()
    places = {name: getattr(SentenceTerms, name) for name in ("lacking", "place")}

    def watched(name: str, terms: SentenceTerms, *arguments: Any) -> Any:
        threads.add(threading.current_thread().name.startswith("large-work"))
        return places[name](terms, *arguments)

    for name in places:
        monkeypatch.setattr(SentenceTerms, name, lambda terms, *arguments, name=name: watched(name, terms, *arguments))
    answer = letters_live.post({"text": [text], "terms": TERMS, "options": OPTIONS}).json()
    assert len(answer["translations"][0]["terms"]) == 2
    assert threads == {not in_loop}


@pytest.mark.parametrize(
    "text", ["<p>ab <i>ba</i></p>", "<p><b>a<i>b</i></b> ba</p>", "<p>%s ab</p>", "<p>ba</p><p>b</p>"]
)
def test_terms_stand_in_markup_and_beside_placeholders(letters_live: LiveService, text: str) -> None:
    request = {"text": [text], "format": "html", "placeholders": ["printf"], "terms": TERMS, "options": OPTIONS}
    (translation,) = translate_over_both(letters_live, request)
    bare = re.sub(r"</?[bi]>", "", translation["text"])
    assert sorted(re.findall(r"</?[a-z]>|%s", translation["text"])) == sorted(re.findall(r"</?[a-z]>|%s", text))
    assert [character for character in translation.get("terms") or () if not has(bare, character["target"])] == [], bare
    assert bool(translation.get("terms")) is (text != "<p>ba</p>")


def test_alignments_of_a_translation_with_terms_lie_in_it(letters_live: LiveService) -> None:
    for unit in ("words", "tokens"):
        request = {"text": ["ab ba"], "terms": TERMS, "options": {**OPTIONS, "alignments": unit}}
        (translation,) = translate_over_both(letters_live, request)
        (alignment,) = translation["alignments"]
        assert len(alignment["weights"]) == len(alignment["target"])
        assert all(span["end"] <= len(translation["text"]) for span in alignment["target"])


def test_a_text_without_a_term_is_translated_as_without_terms(letters_live: LiveService) -> None:
    plain = {"text": ["ba ba", "b"], "options": OPTIONS}
    same = {**plain, "terms": [{"source": "aaa", "targets": ["b"]}]}
    assert translate_over_both(letters_live, plain) == translate_over_both(letters_live, same)


def test_a_stream_with_terms_has_one_delta_per_text(letters_live: LiveService) -> None:
    request: dict[str, Any] = {"text": ["ab ba", "b"], "terms": TERMS, "options": OPTIONS}
    deltas, result = stream_over_rest(letters_live, request)
    assert [delta["text"] for delta in deltas] == [translation["text"] for translation in result["translations"]]
    assert result["translations"] == translate_over_both(letters_live, request)


def test_a_pivot_applies_the_terms_of_both_ends(letters: Tokenizer, tmp_path: Path) -> None:
    for name, prefix in (("en-de", 9), ("fr-en", 10)):
        put_bundle(tmp_path / name, letters, direction(name, prefix), aligned=True)
    terms = [{"source": "ab", "targets": ["aba"]}, {"source": "b"}]
    languages = {"source_language": "fr", "target_language": "de", "allow_pivot": True}
    request = {"text": ["b ab", "<b>b</b> ab"], "terms": terms, "options": OPTIONS, **languages}
    with run_service(tmp_path, [], load=load_fakes, alignments=True) as live:
        for text_format in ("text", "html"):
            for translation in translate_over_both(live, {**request, "format": text_format}):
                sources = [term["source"] for term in translation["terms"]]
                assert {"b", "ab"} <= set(sources)
                bare = re.sub(r"</?b>", "", translation["text"])
                assert all(has(bare, term["target"]) for term in translation["terms"])
                assert has(bare, "b")
                assert has(bare, "aba")


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"terms": [{"source": "ab", "targets": ["b"]}, {"source": "ab", "targets": ["a"]}]}, "terms[1]"),
        ({"terms": [{"source": " "}]}, "terms[0]"),
        ({"terms": [{"source": "ab"}], "target_prefix": ["a"]}, "target_prefix"),
        ({"terms": [{"source": f"a{number}"} for number in range(1001)]}, "terms"),
        ({"glossary": ["0"]}, "glossary"),
        ({"glossary": ["0"] * 6}, "glossary"),
    ],
)
def test_invalid_terms_are_refused(letters_live: LiveService, fields: dict[str, Any], refused: str) -> None:
    assert refusal_of_both(letters_live, {"text": ["ab"], **fields})[0] == refused


@pytest.fixture(scope="module")
def stored_live(letters_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    state = tmp_path_factory.mktemp("state")
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, state_dir=state) as live:
        yield live


PAIR = {"source_language": "en", "target_language": "de"}
DICTIONARY = {**PAIR, "entries": TERMS}
PATH = "/v1/glossaries"


def test_a_stored_glossary_applies_as_its_terms_do(stored_live: LiveService) -> None:
    made = stored_live.post({"name": "letters", "dictionaries": [DICTIONARY]}, path=PATH)
    assert made.status_code == 201
    assert made.json()["dictionaries"] == [{**PAIR, "entry_count": 2}]
    request = {"text": ["ab ba", "b"], "options": OPTIONS}
    stored = translate_over_both(stored_live, {**request, "glossary": [made.json()["id"]]})
    assert stored == translate_over_both(stored_live, {**request, "terms": TERMS})


def test_terms_of_a_request_count_before_those_of_glossaries(stored_live: LiveService) -> None:
    made = stored_live.post({"name": "letters", "dictionaries": [DICTIONARY]}, path=PATH).json()
    own = {"terms": [{"source": "ab", "targets": ["aaaa"]}], "glossary": [made["id"]]}
    (translation,) = translate_over_both(stored_live, {"text": ["ab b"], "options": OPTIONS, **own})
    assert [term["target"] for term in translation["terms"]] == ["aaaa", "b"]


def test_glossaries_are_listed_read_replaced_and_deleted(stored_live: LiveService) -> None:
    made = stored_live.post({"name": "first", "dictionaries": [DICTIONARY]}, path=PATH).json()
    one = f"{PATH}/{made['id']}"
    assert made in stored_live.get(PATH).json()["glossaries"]
    assert stored_live.get(one).json() == made
    file = {**PAIR, "text": "ab\tbab\taab\n"}
    with stored_live.http() as client:
        replaced = client.put(one, json={"name": "second", "dictionaries": [file]}).json()
        entries = client.get(f"{one}/entries", params=PAIR)
        assert entries.json() == {"entries": [{"source": "ab", "targets": ["bab", "aab"], "match_case": False}]}
        for name, media_type in (("tsv", "text/tab-separated-values"), ("csv", "text/csv"), ("tbx", "xml")):
            answer = client.get(f"{one}/entries", params={**PAIR, "format": name})
            assert media_type in answer.headers["content-type"]
            again = {"name": name, "dictionaries": [{**file, "text": answer.text, "format": name}]}
            assert client.put(one, json=again).json()["dictionaries"] == replaced["dictionaries"]
        assert client.delete(one).status_code == 204
        assert client.get(one).status_code == client.delete(one).status_code == 404
        for unknown in (made["id"], "\ud800"):
            body = json.dumps({"text": ["ab"], "glossary": unknown})
            refused = client.post("/v1/translate", content=body, headers={"content-type": "application/json"})
            assert (refused.status_code, refused.json()["reason"]) == (404, "glossary_not_found")
    assert replaced["name"] == "second"


@pytest.mark.parametrize(
    ("dictionary", "field"),
    [
        ({**DICTIONARY, "text": "a\tb"}, "dictionaries[0]"),
        ({**DICTIONARY, "entries": [{"source": "a"}, {"source": "a"}]}, "dictionaries[0].entries[1]"),
        ({**DICTIONARY, "entries": [], "text": "a\tb", "format": "doc"}, "format"),
        ({**DICTIONARY, "target_language": "en"}, "dictionaries"),
    ],
)
def test_invalid_glossaries_are_refused(stored_live: LiveService, dictionary: dict[str, Any], field: str) -> None:
    answer = stored_live.post({"name": "letters", "dictionaries": [dictionary]}, path=PATH)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_a_server_without_a_state_directory_stores_none(letters_live: LiveService) -> None:
    assert letters_live.get(PATH).json() == {"glossaries": []}
    answer = letters_live.post({"name": "letters", "dictionaries": [DICTIONARY]}, path=PATH)
    assert "--state-dir" in answer.json()["detail"]
