"""Whatever the model returns, a translation has the placeholders of its text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupFormat, MarkupOptions
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.placeholders.formatting import format_as
from dragoman.serve.protect.placeholders.marks import Marker
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from dragoman.serve.protect.placeholders.render import Rendering
from tests.support.cases import cases
from tests.support.markup import split, tokens_of

CASES = cases(__file__)

FINDER = Finder(KINDS)
PLACEHOLDERS = ["%s", "%1$d", "%%", "%(name)s", "{}", "{0}", "{name!r:>5}", "{{ user }}", "${HOME}", "#{x}", "@anna"]
ADDRESS = "https://a.example/b?c=d"
PLACEHOLDERS += ["#tag", ADDRESS, "sftp://a.example", "a.b@c.example", "/usr/bin/x", '<x id="1"/>', "{0, number, #.##}"]
PARTS = st.sampled_from([*PLACEHOLDERS, "ab", "cd.", "e,", "Fg!", "7", "\U0001f600", "\u00a0", "\u200f"])
TOUCHING = st.lists(st.sampled_from(["%s", "%(name)s", "{0}", "{{ user }}", '<x id="1"/>']), min_size=2).map("".join)
TEXTS = st.lists(PARTS | TOUCHING, min_size=1, max_size=8).map(" ".join)


def translate(text: str, markup_format: MarkupFormat, seed: int, noise: float) -> str:
    """Translates by a model that reorders, drops, repeats and invents tokens."""
    marker = Marker(FINDER, formatting=True, branching=True)
    random = np.random.default_rng(seed)
    rendering = Rendering(FINDER, formatting=True)
    document = read_document(text, MarkupOptions(markup_format), split, marker)
    parts = list[str]()
    for gap, sentence in zip(document.gaps, document.sentences, strict=False):
        tokens = tokens_of(sentence.text)
        order = random.permutation(np.repeat(np.arange(len(tokens)), random.choice([0, 1, 1, 2], len(tokens))))
        words = [sentence.text[slice(*tokens[index])] for index in order]
        if random.random() < noise:
            words.append(str(random.choice(PLACEHOLDERS)))
        translation = " ".join(words)
        rows = tokens_of(translation)
        attention = random.dirichlet(np.ones(len(tokens)), len(rows)) if tokens else np.zeros((len(rows), 0))
        alignment = Alignment.of(tokens, rows, attention)
        parts += gap, rendering.render(sentence, translation, alignment, document.escaper)[0]
    return "".join((*parts, document.gaps[-1]))


def test_a_translation_has_the_placeholders_of_its_text(*, thorough: bool) -> None:
    @settings(max_examples=2000 if thorough else 200)
    @given(TEXTS, st.sampled_from(["text", "html"]), st.integers(0, 2**16), st.sampled_from([0.0, 0.5]))
    def check(text: str, markup_format: MarkupFormat, seed: int, noise: float) -> None:
        translated = translate(text, markup_format, seed, noise)
        assert FINDER.texts(translated) == FINDER.texts(text)
        for character in "\u00a0\u200f\U0001f600":
            assert translated.count(character) == text.count(character)

    check()


def render(
    text: str, translation: str, attention: Any = 1.0, markup_format: MarkupFormat = "text", *, formatting: bool = False
) -> tuple[str, Sequence[object]]:
    """Returns the translation of one sentence with its placeholders, and the repairs; by default, all is aligned."""
    document = read_document(text, MarkupOptions(markup_format), split, Marker(FINDER, formatting=formatting))
    (sentence,) = document.sentences
    tokens, rows = tokens_of(sentence.text), tokens_of(translation)
    alignment = Alignment.of(tokens, rows, np.broadcast_to(attention, (len(rows), len(tokens))))
    return Rendering(FINDER, formatting=formatting).render(sentence, translation, alignment, document.escaper)


@pytest.mark.parametrize(
    "translation", ["cd ef gh", "cd {a} ef {b} gh", "{b}{a} cd ef gh", "cd {a}{b} ef {a}{b}{c} gh"]
)
def test_placeholders_that_touch_stay_together(translation: str) -> None:
    rendered, _ = render("ab {a}{b} <b>{c}</b>{d} cd", translation, markup_format="html")
    assert rendered.count("{a}{b}") == 1
    assert FINDER.texts(rendered) == FINDER.texts("{a}{b}<b>{c}</b>{d}")


def test_an_address_that_the_model_joins_with_a_word_is_surplus() -> None:
    assert render(f"{ADDRESS} ab", f"{ADDRESS} ab Stadt{ADDRESS} cd") == (f"{ADDRESS} ab cd", ())


@pytest.mark.parametrize("markup_format", ["text", "html", "xml"])
@pytest.mark.parametrize("formatting", [False, True])
@pytest.mark.parametrize(
    ("translation", "attended", "expected"),
    [("ef.", 2, "{0} ef."), ("cd ef.", 0, "cd ef {0}.")],
    ids=["the only word", "between"],
)
def test_a_period_stays_behind_a_placeholder_whatever_it_attends_to(
    markup_format: MarkupFormat, translation: str, attended: int, expected: str, *, formatting: bool
) -> None:
    """The placeholder replaced a period that attended to it, and stood behind one that attended to a word before it.

    It does not replace the only word of the translation.
    """
    attention = np.eye(len(tokens_of("ab {0}.")))[attended]
    assert render("ab {0}.", translation, attention, markup_format, formatting=formatting)[0] == expected


def test_the_final_punctuation_of_a_translation_is_that_of_its_text(*, thorough: bool) -> None:
    parts = st.lists(st.sampled_from([*PLACEHOLDERS, "ab", "cd"]), min_size=1, max_size=6).map(" ".join)

    @settings(max_examples=2000 if thorough else 200)
    @given(
        parts, st.sampled_from([".", "!", "?", "..."]), st.sampled_from(["text", "html", "xml"]), st.integers(0, 999)
    )
    def check(text: str, mark: str, markup_format: MarkupFormat, seed: int) -> None:
        assert translate(f"{text}{mark}", markup_format, seed, 0.5).endswith(mark)

    check()


@pytest.mark.parametrize(("translation", "expected"), CASES["a surplus placeholder leaves no space"])
def test_a_surplus_placeholder_leaves_no_space(translation: str, expected: str) -> None:
    assert render("ab", translation)[0] == expected


@pytest.mark.parametrize(("source", "translation", "expected"), CASES["case and final punctuation follow the text"])
def test_case_and_final_punctuation_follow_the_text(source: str, translation: str, expected: str) -> None:
    assert format_as(source, translation) == expected
