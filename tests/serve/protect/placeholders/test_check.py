"""A placeholder of a translation is lost if it is a part of a word, and surplus ones go."""

import numpy as np
import pytest

from dragoman.serve.protect.alignment import Alignment, Span
from dragoman.serve.protect.markup.elements import MarkupOptions
from dragoman.serve.protect.markup.sentences import MarkedSentence, read_document
from dragoman.serve.protect.placeholders.check import has_same_placeholders, lost_nodes, with_own_placeholders
from dragoman.serve.protect.placeholders.marks import Marker
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from dragoman.serve.protect.placeholders.render import Rendering
from tests.support.cases import cases
from tests.support.markup import split, tokens_of

CASES = cases(__file__)

FINDER = Finder(KINDS)


def sentence_of(text: str) -> MarkedSentence:
    (sentence,) = read_document(text, MarkupOptions("text"), split, Marker(FINDER, formatting=False)).sentences
    return sentence


def lost(text: str, translation: str) -> list[str]:
    return [text[node.start : node.end] for node in lost_nodes(sentence_of(text), translation)]


@pytest.mark.parametrize(("text", "translation", "expected"), CASES["a placeholder inside of a word is lost"])
def test_a_placeholder_inside_of_a_word_is_lost(text: str, translation: str, expected: list[str]) -> None:
    assert lost(text, translation) == expected


@pytest.mark.parametrize(("text", "translation", "expected"), CASES["spaces part placeholders from words"])
def test_spaces_part_placeholders_from_words_and_surplus_ones_go(text: str, translation: str, expected: str) -> None:
    rows = tokens_of(translation)
    alignment = Alignment.of([(0, 2)], rows, np.ones((len(rows), 1)))
    changed, moved = with_own_placeholders(sentence_of(text), translation, alignment, FINDER)
    assert changed == expected
    assert all(span.end <= len(changed) for span in moved.target)


def test_an_alignment_moves_with_the_spaces() -> None:
    alignment = Alignment.of([(0, 2)], [(0, 2), (2, 5), (6, 10)], np.ones((3, 1)))
    _, moved = with_own_placeholders(sentence_of("%d dog"), "%dder Hund", alignment, FINDER)
    assert moved.target == (Span(0, 2), Span(3, 6), Span(7, 11))


@pytest.mark.parametrize(
    ("translation", "same"), [("%d Hund", True), ("%dHund", False), ("Hund", False), ("%d %d Hund", False)]
)
def test_a_translation_has_the_placeholders_of_its_text_next_to_words(translation: str, *, same: bool) -> None:
    assert has_same_placeholders("%d dog", translation, FINDER) == same


@pytest.mark.parametrize(("translation", "expected"), CASES["a text with words has a translation with words or none"])
def test_a_text_with_words_has_a_translation_with_words_or_none(translation: str, expected: str) -> None:
    sentence = sentence_of("{n} boat waits")
    tokens, rows = tokens_of(sentence.text), tokens_of(translation)
    attention = np.zeros((len(rows), len(tokens)))
    attention[:1, :3] = 1 / 3  # {, n and }
    attention[1:, -1:] = 1
    document = read_document(sentence.text, MarkupOptions("text"), split)
    alignment = Alignment.of(tokens, rows, attention)
    rendered, repairs = Rendering(FINDER).render(sentence, translation, alignment, document.escaper)
    assert rendered == expected
    assert {repair.way.value for repair in repairs} == {"untranslated" if expected == sentence.text else "placed"}
