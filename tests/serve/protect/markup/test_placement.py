"""Where tags go in a translation, compared with slow references."""

import re
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupOptions
from dragoman.serve.protect.markup.references import Escaper
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tags import place_tags
from tests.support.cases import cases
from tests.support.markup import tokens_of, translate_markup, whole

HTML = MarkupOptions("html", ignore_tags=frozenset(["code"]))


def render(text: str, translation: str, links: str) -> str:
    """Returns the translation of one sentence, whose tokens have the links `source-target`, in the order of both."""
    document = read_document(text, HTML, whole)
    (sentence,) = document.sentences
    source, target = tokens_of(sentence.text), tokens_of(translation)
    weights = np.eye(len(target), len(source)) if links == "straight" else np.zeros((len(target), len(source)))
    for i, j in re.findall(r"(\d+)-(\d+)", links):
        weights[int(j), int(i)] = 1
    weights /= np.maximum(1, weights.sum(axis=1, keepdims=True))
    placed = place_tags(sentence, translation, Alignment.of(source, target, weights), document.escaper)
    return f"{document.gaps[0]}{placed}{document.gaps[1]}"


@pytest.mark.parametrize(
    ("text", "translation", "links", "expected"),
    [pytest.param(*case, id=f"{rule}: {case[0]}") for rule, rows in cases(__file__).items() for case in rows],
)
def test_tags_and_kept_text_go_where_their_rule_puts_them(
    text: str, translation: str, links: str, expected: str
) -> None:
    assert render(text, translation, links) == expected


def test_kept_text_stands_apart_from_a_word_that_the_model_joined_with_it() -> None:
    (sentence,) = read_document("and <code>ls</code>s", HTML, whole).sentences
    alignment = Alignment.of([(0, 3), (4, 6), (6, 7)], [(0, 3), (3, 5), (5, 6)], np.eye(3))
    assert place_tags(sentence, "undlss", alignment, Escaper("", (), "")) == "und <code>ls</code>s"


def test_an_element_over_two_sentences_encloses_the_end_of_one_and_the_beginning_of_the_other() -> None:
    def backwards(text: str) -> tuple[str, Alignment]:
        tokens = tokens_of(text)
        translation = " ".join(text[start:end] for start, end in reversed(tokens))
        return translation, Alignment.of(tokens, tokens_of(translation), np.eye(len(tokens))[::-1])

    text = "Ab <b>cd, ef. Gh <i>ij.</i> Kl mn</b> op."
    assert translate_markup(text, HTML) == text
    assert translate_markup(text, HTML, backwards) == "<b>. ef , cd Ab . <i>ij</i> Gh </b>. op mn Kl"


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[str], int, int, np.ndarray]:
    """Draws words, an element around some of them, and attention of as many target words."""
    count = draw(st.integers(2, 6))
    start = draw(st.integers(0, count - 1))
    end = draw(st.integers(start + 1, count if start else count - 1))
    rows = draw(st.integers(1, 6))
    attention = np.random.default_rng(draw(st.integers(0, 9999))).dirichlet(np.full(count + 1, 0.5), rows)[:, :-1]
    return [f"w{'abcdef'[place]}" for place in range(count)], start, end, attention


@settings(max_examples=200)
@given(sentences())
def test_the_interval_of_an_element_has_the_largest_sum(drawn: tuple[list[str], int, int, np.ndarray]) -> None:
    words, start, end, attention = drawn
    text = " ".join([*words[:start], f"<b>{' '.join(words[start:end])}</b>", *words[end:]])
    document = read_document(text, HTML, whole)
    translation = " ".join("uvxyz!"[place] * 2 for place in range(len(attention))).replace("!!", "tt")
    source, target = tokens_of(" ".join(words)), tokens_of(translation)
    (sentence,) = document.sentences
    placed = place_tags(sentence, translation, Alignment.of(source, target, attention), document.escaper)
    inside = attention[:, start:end].sum(axis=1)
    scores = 2 * inside - attention.sum(axis=1)
    best = max(scores[first:last].sum() for first, last in combinations_with_replacement(range(len(attention) + 1), 2))
    before, _, rest = placed.partition("<b>")
    enclosed = rest.partition("</b>")[0]
    first = len(before.split())
    assert scores[first : first + len(enclosed.split())].sum() == pytest.approx(best, abs=1e-6)
    assert placed.replace("<b>", "").replace("</b>", "") == translation
