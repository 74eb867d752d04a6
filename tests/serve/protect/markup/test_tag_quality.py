"""How well tags are placed: tag-span F1 where the right places are known, with exact and with noisy alignments."""

import re
from random import Random

import numpy as np
import pytest

from dragoman.model.demo.grammar import Grammar
from dragoman.model.demo.text import Text
from dragoman.model.demo.variants import tagged
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupOptions
from tests.support.markup import tag_f1, translate_markup, whole

SENTENCES = 400
HTML = MarkupOptions("html")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns words without punctuation, which stand for their tokens."""
    return [match.span() for match in re.finditer(r"[^\s.,?]+", text)]


def place(text: Text, source: str, noise: float, random: np.random.Generator) -> str:
    """Returns the German sentence with the tags of an English one, by its links with a share of random attention."""
    english, german = text.plain()
    rows, columns = word_spans(german), word_spans(english)
    weights = np.zeros((len(rows), len(columns)))
    for i, j in text.alignment():
        weights[j, i] = 1
    linked = weights / np.maximum(1, weights.sum(axis=1, keepdims=True))
    attention = (1 - noise) * linked + noise * random.dirichlet(np.ones(len(columns)), len(rows))
    return translate_markup(source, HTML, lambda _: (german, Alignment.of(columns, rows, attention)), whole)


@pytest.mark.parametrize(("noise", "min_f1", "min_equal"), [(0.0, 1.0, 1.0), (0.3, 0.99, 0.99), (0.6, 0.77, 0.39)])
def test_elements_of_the_demo_grammar_enclose_the_right_words(noise: float, min_f1: float, min_equal: float) -> None:
    grammar, random, noises = Grammar(5), Random(5).random, np.random.default_rng(5)
    pairs = list[tuple[str, str]]()
    while len(pairs) < SENTENCES:
        text = grammar.sentence()
        variant = tagged(text, random)
        if variant is not None:
            pairs.append((place(text, variant[0], noise, noises), variant[1]))
    f1, equal = tag_f1(pairs)
    print(f"noise {noise}: tag-span F1 {f1:.4f}, equal {equal:.4f}")
    assert f1 >= min_f1
    assert equal >= min_equal
