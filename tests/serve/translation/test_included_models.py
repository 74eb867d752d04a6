"""Whatever an included model writes, placeholders and terms are whole, texts keep words and messages their form."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.protect.alignment import is_word
from dragoman.serve.protect.markup.sentences import has_letter_outside
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from dragoman.serve.registry.engine_models import load_models
from tests.support.cases import cases
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

CASES = cases(__file__)

FINDER = Finder(KINDS)
# All rows of a request, and those of its repairs, find room.
MAX_TEXTS = 10
GLUED = ["{} dog is playing.", "{} women sit on a bench.", "A man sees {} in the park.", "Two boys run to {}."]
SHORT = ["{} boat waits", "{} is required", "{} new messages", "Hello {}!", "Page {}", "{} likes this"]
PLACEHOLDERS = ["%d", "%1$s", "{name}", "{{count}}", "%{total}", "$t(menu.open)", "@anna", "o'neil@example.com", "%n"]
TERMS = {
    "de": [("cow", "Milchkuh"), ("bus stop", "Omnibushalt")],
    "fr": [("guest", "convive"), ("cow", "laitière")],
    "cs": [("cow", "dojnice"), ("dog", "hafan")],
}
WORDS = ["dog", "A", "man", "plays", "in the park", "red", "is", "required", "and", "12:30", "new", "of"]
MARKS = st.sampled_from(["", "", "", ",", ".", "!", ":"])
MARKED = st.tuples(st.sampled_from(WORDS) | st.sampled_from(PLACEHOLDERS), MARKS).map("".join)
TEXTS = st.lists(MARKED, min_size=1, max_size=7).map(" ".join)


@pytest.fixture(scope="module", params=[True, False], ids=["native", "python"])
def live(request: pytest.FixtureRequest) -> Iterator[LiveService]:
    """The model of four languages in the native loop, and in the engine in Python."""
    load = None if request.param else load_models
    with run_service(ROOT / "bundles" / "multi30k", [], load=load, alignments=True) as service:
        yield service


def translate(live: LiveService, target: str, *texts: str, **fields: Any) -> list[dict[str, Any]]:
    translations = list[dict[str, Any]]()
    for first in range(0, len(texts), MAX_TEXTS):
        request = {"text": texts[first : first + MAX_TEXTS], "source_language": "en", "target_language": target}
        translations += live.post({**request, **fields}).json()["translations"]
    return translations


def assert_kept(text: str, translation: str) -> None:
    """Asserts that placeholders stay, touch no word that they do not touch before, and have words around them."""
    assert FINDER.texts(translation) == FINDER.texts(text)
    for start, end in FINDER.spans(translation):
        assert not is_word(translation[max(0, start - 1) : start])
        assert not is_word(translation[end : end + 1])
    # If a text has several sentences, this holds only for those with placeholders.
    if FINDER.spans(text) and not re.search(r"[.!?]\s", text):
        has_words, keeps_words = (has_letter_outside(item, FINDER.spans(item)) for item in (text, translation))
        assert keeps_words or not has_words
        assert len(text) <= 4 * len(translation) <= 16 * len(text)


@pytest.mark.parametrize("target", ["de", "fr", "cs"])
def test_placeholders_are_whole_and_words_stay(live: LiveService, target: str) -> None:
    """The model went on inside of a word, `%dder Hund`, and a placeholder replaced a whole text, `{name}.`."""
    texts = [text.format(placeholder) for text in (*GLUED, *SHORT) for placeholder in PLACEHOLDERS]
    for text, translation in zip(texts, translate(live, target, *texts, placeholders=["all"]), strict=True):
        assert_kept(text, translation["text"])


@pytest.mark.parametrize("target", ["de", "fr", "cs"])
def test_decoded_terms_are_whole(live: LiveService, target: str) -> None:
    """The model went on inside of a word: `Milchkuhr`, `Conviveit mange`."""
    for source, form in TERMS[target]:
        texts = [f"A {source} stands in the grass.", f"A man looks at the {source}.", f"The {source} is red."]
        for translation in translate(live, target, *texts, terms=[{"source": source, "targets": [form]}]):
            (term,) = translation["terms"]
            assert term["way"] == "present" or term["target"].lower() == form.lower()


def test_any_text_keeps_its_placeholders_and_words(live: LiveService, *, thorough: bool) -> None:
    @settings(max_examples=300 if thorough else 25)
    @given(TEXTS, st.sampled_from(["text", "html"]))
    def check(text: str, markup_format: str) -> None:
        (translation,) = translate(live, "de", text, placeholders=["all"], format=markup_format)
        assert_kept(text, translation["text"])

    check()


@pytest.mark.parametrize(("message", "before", "after"), CASES["the branches of messages are translated"])
def test_the_branches_of_messages_are_translated(live: LiveService, message: str, before: str, after: str) -> None:
    (translation,) = translate(live, "de", message, placeholders=["all"])
    assert translation["text"].startswith(before)
    assert translation["text"].endswith(after)
    assert "dog" not in translation["text"]
    assert [character["way"] for character in translation.get("repairs") or []].count("untranslated") == 0


def test_a_batch_changes_no_bit(live: LiveService) -> None:
    texts = [text.format(placeholder) for text in (*GLUED, *SHORT) for placeholder in PLACEHOLDERS[:4]][:MAX_TEXTS]
    for text, translation in zip(texts, translate(live, "de", *texts, placeholders=["all"]), strict=True):
        assert translate(live, "de", text, placeholders=["all"]) == [translation]


def test_elements_in_branches_stay_around_their_words(live: LiveService) -> None:
    message = "{n, plural, one {<b>#</b> dog plays} other {<i># dogs</i> play}}"
    (translation,) = translate(live, "de", message, placeholders=["all"], format="html")
    assert translation["text"].startswith("{n, plural, one {<b>#</b> ")
    assert translation["text"].count("<i># ") == translation["text"].count("</i>") == 1
