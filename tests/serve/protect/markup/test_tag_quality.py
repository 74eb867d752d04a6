"""How well tags are placed: tag-span F1 where the right places are known, with exact and with noisy alignments."""

import re
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from dragoman.model.demo.grammar import Grammar
from dragoman.model.demo.text import Text
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupOptions
from tests.support.markup import tag_f1, translate_markup, whole

SENTENCES = 400
HTML = MarkupOptions("html")
MAX_MARKED_WORDS = 4
PUNCTUATION = re.compile(r"([,.?]*)$")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns words without punctuation, which stand for their tokens."""
    return [match.span() for match in re.finditer(r"[^\s.,?]+", text)]


def phrases(words: int, links: list[tuple[int, int]]) -> Iterator[tuple[slice, slice]]:
    """Yields short phrases that are aligned with one phrase of the translation, without gaps."""
    for start in range(words):
        for end in range(start + 1, min(start + MAX_MARKED_WORDS, words) + 1):
            inside = [link for link in links if start <= link[0] < end]
            sources, targets = {i for i, _ in inside}, {j for _, j in inside}
            if len(sources) < end - start or max(targets) - min(targets) >= len(targets):
                continue
            if all(start <= i < end for i, j in links if j in targets):
                yield slice(start, end), slice(min(targets), max(targets) + 1)


def enclosed(text: str, phrase: slice) -> str:
    words = text.split()
    words[phrase.start] = f"<b>{words[phrase.start]}"
    words[phrase.stop - 1] = PUNCTUATION.sub(r"</b>\1", words[phrase.stop - 1], count=1)
    return " ".join(words)


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
        english, german = text.plain()
        found = list(phrases(len(english.split()), list(text.alignment())))
        if found:
            source, target = found[int(random() * len(found))]
            pairs.append((place(text, enclosed(english, source), noise, noises), enclosed(german, target)))
    f1, equal = tag_f1(pairs)
    print(f"noise {noise}: tag-span F1 {f1:.4f}, equal {equal:.4f}")
    assert f1 >= min_f1
    assert equal >= min_equal
