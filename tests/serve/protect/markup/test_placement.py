"""Where tags go in a translation, compared with slow references."""

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
from tests.support.markup import tokens_of, translate_markup, whole

HTML = MarkupOptions("html", ignore_tags=frozenset(["code"]))


def render(text: str, translation: str, links: str) -> str:
    """Returns the translation of one sentence, whose tokens have the links `source-target`, in the order of both."""
    document = read_document(text, HTML, whole)
    (sentence,) = document.sentences
    source, target = tokens_of(sentence.text), tokens_of(translation)
    weights = np.zeros((len(target), len(source)))
    for link in links.split():
        i, j = map(int, link.split("-"))
        if links != STRAIGHT or max(i, j) < min(weights.shape):
            weights[j, i] = 1
    weights /= np.maximum(1, weights.sum(axis=1, keepdims=True))
    placed = place_tags(sentence, translation, Alignment.of(source, target, weights), document.escaper)
    return f"{document.gaps[0]}{placed}{document.gaps[1]}"


# Text, translation, links, and the translation with tags.
Case = tuple[str, str, str, str]


def cases(*rows: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", rows, ids=lambda case: f"{case[0]} - {case[1]}")


# Each token is linked with that of its index, as far as there are tokens.
STRAIGHT = "0-0 1-1 2-2 3-3 4-4"


@cases(
    ("the <b>red</b> car", "das rote Auto", STRAIGHT, "das <b>rote</b> Auto"),
    ("the <b>red</b> car", "la voiture rouge", "0-0 1-2 2-1", "la voiture <b>rouge</b>"),
    ("I <b>close</b> it", "ich mache es zu", "0-0 1-1 1-3 2-2", "ich <b>mache</b> es zu"),
    ("I <b>close the</b> door", "ich mache die Tür zu", "0-0 1-1 2-2 3-3 1-4", "ich <b>mache die</b> Tür zu"),
    ("a <b>very big</b> dog", "ein sehr großer Hund", STRAIGHT, "ein <b>sehr großer</b> Hund"),
    ("<b>he</b> washes", "er wäscht sich", "0-0 1-1", "<b>er</b> wäscht sich"),
    ("the <b>dog</b>.", "der Hund.", STRAIGHT, "der <b>Hund</b>."),
    ("the <b>dog</b>.", "der Hund.", "0-0 1-1 1-2", "der <b>Hund</b>."),
    ("no <b>dog!</b> cat", "kein Hund! Katze", STRAIGHT, "kein <b>Hund!</b> Katze"),
    ("<b>a dog</b>", "ein Hund", "", "<b>ein Hund</b>"),
    ("a <b>dog</b> x", "ein y", "0-0 2-1", "ein <b></b>y"),
    ("<i><b>a</b> c</i> d", "x y z", "0-2 1-1 2-0", "x <i>y <b>z</b></i>"),
    ("<b><i>a c</i></b> d", "x y z", "0-1 1-2 2-0", "x <b><i>y z</i></b>"),
    ("<b>a</b> <i>c</i> d", "x y z", "0-2 1-0 2-1", "<i>x</i> y <b>z</b>"),
    ("<b>a</b> <i>c</i> d", "x y", "0-0 1-0 2-1", "<b></b><i></i>x y"),
    ("<b>a.</b> c", "! ? x", STRAIGHT, "! <b>?</b> x"),
)
def test_an_element_encloses_the_words_that_are_aligned_with_its_own(case: Case) -> None:
    assert render(*case[:3]) == case[3]


@cases(
    ("click <img> now", "klicke jetzt", STRAIGHT, "klicke <img> jetzt"),
    ("click <img> now", "jetzt klicken", "0-1 1-0", "<img> jetzt klicken"),
    ("click<img> now", "klicke jetzt", STRAIGHT, "klicke<img> jetzt"),
    ("click <img>now", "klicke jetzt", STRAIGHT, "klicke <img>jetzt"),
    ("click <img>, go", "klicke, los", STRAIGHT, "klicke <img>, los"),
    ("a <wbr><!-- c -->b", "x y", STRAIGHT, "x <wbr><!-- c -->y"),
    ("a <wbr><img> b", "x y", STRAIGHT, "x <wbr><img> y"),
    ("a <wbr> <img> b", "x y", STRAIGHT, "x <wbr> <img> y"),
    ("a<wbr> <img> b", "x y", STRAIGHT, "x<wbr> <img> y"),
    ("a <i></i><b></b><!-- c --> b", "x y", STRAIGHT, "x <i></i><b></b><!-- c --> y"),
    ("a<i> </i><b>b</b> c", "x y z", STRAIGHT, "x<i></i> <b>y</b> z"),
    ("<b>a <img></b> b", "y x", "0-1 1-0", "y <b>x <img></b>"),
    ("a<a name=n></a> b c", "x y z", STRAIGHT, "x<a name=n></a> y z"),
    ("a <svg><a>b</a></svg> c", "x z", STRAIGHT, "x <svg><a>b</a></svg> z"),
    ("see a <img>.", "sieh a.", "0-0 1-1 0-2", "sieh a <img>."),
    ("see a. <img>", "sieh a.", "0-0 1-1 0-2", "sieh a. <img>"),
)
def test_a_point_goes_between_the_words_that_stood_around_it(case: Case) -> None:
    assert render(*case[:3]) == case[3]


@cases(
    ("run <code>ls</code> now", "führe jetzt ls aus", "0-0 1-2 2-1 0-3", "führe jetzt <code>ls</code> aus"),
    ("run <code>ls -l</code> now", "führe ls -l jetzt aus", "", "führe <code>ls -l</code> jetzt aus"),
    ("close <code>door</code> now", "schließe Tür jetzt", STRAIGHT, "schließe <code>door</code> jetzt"),
    ("a <code>b</code> c", "x b y b z", "0-0 1-3 2-4", "x b y <code>b</code> z"),
    ("a <code>b</code> c", "x zb y", "0-0 2-2", "x <code>b</code> zb y"),
    ("<b>a <code>b</code></b> c", "z b y", "0-2 1-1 2-0", "z <b><code>b</code> y</b>"),
    ("now run <code>ls</code>", "führe jetzt ls", "0-1 1-0 2-2", "führe jetzt <code>ls</code>"),
    ("<b>a c</b> <code>ls</code>", "x ls y", "0-0 1-2", "<b>x</b> <code>ls</code> y"),
)
def test_kept_text_replaces_its_copy_or_the_words_that_are_aligned_with_it(case: Case) -> None:
    assert render(*case[:3]) == case[3]


@cases(
    ("to <code>{x}</code>.", "mit Xa.", "0-0 2-1 2-2", "mit <code>{x}</code>."),
    ("to <code>{x}</code>", "mit Xa.", "0-0 2-1 2-2", "mit <code>{x}</code>."),
    ("to a <code>{x}</code>.", "mit a.", "0-0 1-1 0-2", "mit a <code>{x}</code>."),
    ("<code>{x}</code> who sits", "Xa, der sitzt", "1-0 1-1 3-2 4-3", "<code>{x}</code>, der sitzt"),
    ("<code>{x}</code> and b", ", b", "4-1", "<code>{x}</code>, b"),
    ('to "<code>{x}</code>" now', "mit „Xa“ jetzt", "0-0 3-1 3-2 3-3 6-4", "mit „<code>{x}</code>“ jetzt"),
    ("to (<code>{x}</code>).", "mit (Xa).", "0-0 3-1 3-2 3-3 3-4", "mit (<code>{x}</code>)."),
    ('to "<code>{x}</code>"', "mit „{y}“", "0-0 3-1 2-2 3-3 4-4 3-5", "mit „<code>{x}</code>“"),
)
def test_kept_text_leaves_the_punctuation_around_it(case: Case) -> None:
    """A placeholder at the end replaced the period too, if the period attended to it."""
    assert render(*case[:3]) == case[3]


@cases(
    ("to <code>{x}</code> now", "mit „Xa“ jetzt", "0-0 2-1 2-2 2-3 4-4", "mit <code>{x}</code> jetzt"),
    ("of <code>Inc.</code> now", "von Ing. jetzt", STRAIGHT, "von <code>Inc.</code> jetzt"),
    ("to <code>{x}</code>.", "mit X7.", "0-0 2-1", "mit <code>{x}</code>."),
)
def test_kept_text_replaces_whole_words_and_marks_that_the_source_does_not_have(case: Case) -> None:
    assert render(*case[:3]) == case[3]


@cases(
    ("a <code>b</code>, c", "x y", "0-0", "x <code>b</code> y"),
    ("a,<code>b</code> c", "x y", "0-0", "x <code>b</code> y"),
    ("<code>b</code>: c", "y", "", "<code>b</code> y"),
    (" <code>b</code>c", "y", "", " <code>b</code> y"),
    ("<code>b</code>c", "y", "", "<code>b</code>y"),
)
def test_kept_text_without_words_of_its_own_touches_a_word_only_if_it_does_so_in_the_source(case: Case) -> None:
    """White space on one side is enough to stand apart at an edge of the translation."""
    assert render(*case[:3]) == case[3]


def test_kept_text_stands_apart_from_a_word_that_the_model_joined_with_it() -> None:
    (sentence,) = read_document("and <code>ls</code>s", HTML, whole).sentences
    alignment = Alignment.of([(0, 3), (4, 6), (6, 7)], [(0, 3), (3, 5), (5, 6)], np.eye(3))
    assert place_tags(sentence, "undlss", alignment, Escaper("", (), "")) == "und <code>ls</code>s"


@cases(
    ("H<sub>2</sub>O is", "H2O ist", "0-0 1-1 2-2 3-3", "H<sub>2</sub>O ist"),
    ("1<i>b</i> c", "1b c", STRAIGHT, "1<i>b</i> c"),
    ("<b>a &amp; b</b> < c", "x < y & z", "0-4 1-3 2-2 3-1 4-0", "x &lt; <b>y &amp; z</b>"),
)
def test_tags_inside_of_words_stand_between_tokens_and_text_is_escaped(case: Case) -> None:
    assert render(*case[:3]) == case[3]


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
