"""Without its placeholders, a sentence is plain, and its translation has them all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupFormat, MarkupOptions
from dragoman.serve.protect.markup.sentences import MarkedSentence, read_document
from dragoman.serve.protect.placeholders.bare import without_placeholders
from dragoman.serve.protect.placeholders.marks import Marker
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from dragoman.serve.protect.placeholders.render import Rendering
from tests.support.cases import cases
from tests.support.markup import split, tokens_of

CASES = cases(__file__)

FINDER = Finder(KINDS)


def bare_of(text: str, markup_format: MarkupFormat) -> tuple[MarkedSentence, Rendering]:
    document = read_document(text, MarkupOptions(markup_format), split, Marker(FINDER, formatting=False))
    (sentence,) = document.sentences
    return without_placeholders(sentence, document.escaper.escape), Rendering(FINDER)


@pytest.mark.parametrize(("text", "bare"), CASES["a placeholder leaves with its marks and one space"])
def test_a_placeholder_leaves_with_its_marks_and_one_space(text: str, bare: str) -> None:
    assert bare_of(text, "text")[0].text == bare


@pytest.mark.parametrize(("text", "translation"), CASES["an element of placeholders alone is one point"])
def test_an_element_of_placeholders_alone_is_one_point(text: str, translation: str) -> None:
    sentence, rendering = bare_of(text, "html")
    tokens = tokens_of(sentence.text)
    rows = tokens_of("ist hier")
    weights = [[1 / len(tokens)] * len(tokens)] * len(rows)
    alignment = Alignment.of(tokens, rows, np.array(weights))
    document = read_document(text, MarkupOptions("html"), split)
    assert rendering.render(sentence, "ist hier", alignment, document.escaper)[0] == translation


@given(st.lists(st.sampled_from(["{a}", "%s", "ab", "cd,", "(", ")", '"', "<b>", "</b>"]), max_size=8).map(" ".join))
def test_every_placeholder_is_a_point(text: str) -> None:
    text = f"ab {text}"
    document = read_document(text, MarkupOptions("html"), split, Marker(FINDER, formatting=False))
    for sentence in document.sentences:
        bare = without_placeholders(sentence, document.escaper.escape)
        assert bare.kept == []
        assert "{a}" not in bare.text
        tokens = tokens_of(bare.text)
        alignment = Alignment.of(tokens, tokens, np.eye(len(tokens)))
        rendered, _ = Rendering(FINDER).render(bare, bare.text, alignment, document.escaper)
        assert FINDER.texts(rendered) == FINDER.texts(sentence.source)
