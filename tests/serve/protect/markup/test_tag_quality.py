"""How well tags are placed: tag-span F1 where the right places are known, with exact and with noisy alignments."""

import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dragoman.model.demo.grammar import Grammar
from dragoman.model.demo.text import Text
from dragoman.model.demo.variants import tagged
from dragoman.serve.bundle.manifest import AttentionHead
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupOptions
from tests.support.live import run_service
from tests.support.markup import translate_markup, whole

if TYPE_CHECKING:
    from dragoman.model.run import RunFolder

SENTENCES = 400
HTML = MarkupOptions("html")


def enclosed_words(text: str) -> set[int]:
    """Returns the places of the words inside of the first element."""
    before, _, rest = text.partition("<b>")
    inside, _, _ = rest.partition("</b>")
    words = re.compile(r"[^\W_]+")
    first = len(words.findall(before))
    return set(range(first, first + len(words.findall(inside))))


def span_f1(pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """Returns F1 over the words inside of elements, and the share of equal texts, of translations and references."""
    found = [(enclosed_words(translated), enclosed_words(reference)) for translated, reference in pairs]
    common = sum(len(ours & theirs) for ours, theirs in found)
    total = sum(len(ours) + len(theirs) for ours, theirs in found)
    return 2 * common / total, float(np.mean([translated == reference for translated, reference in pairs]))


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


@pytest.mark.parametrize(("noise", "min_f1", "min_equal"), [(0.0, 1.0, 1.0), (0.3, 0.99, 0.99), (0.6, 0.77, 0.42)])
def test_elements_of_the_demo_grammar_enclose_the_right_words(noise: float, min_f1: float, min_equal: float) -> None:
    grammar, random, noises = Grammar(5), Random(5).random, np.random.default_rng(5)
    pairs = list[tuple[str, str]]()
    while len(pairs) < SENTENCES:
        text = grammar.sentence()
        variant = tagged(text, random)
        if variant is not None:
            pairs.append((place(text, variant[0], noise, noises), variant[1]))
    f1, equal = span_f1(pairs)
    print(f"noise {noise}: tag-span F1 {f1:.4f}, equal {equal:.4f}")
    assert f1 >= min_f1
    assert equal >= min_equal


def test_elements_of_a_trained_model_enclose_the_right_words(toy_run: "RunFolder", tmp_path: Path) -> None:
    """The toy language keeps the order of words, so the right place of each tag is known."""
    from dragoman.export.make_bundle import BundleOptions, make_bundle  # noqa: PLC0415 - serving tests start without torch
    from tests.support.toy import samples_of, toy_test_sentences, translate_toy  # noqa: PLC0415 - see above

    heads = tuple(AttentionHead(layer=0, head=head) for head in range(4))
    samples = samples_of(toy_test_sentences()[:20])
    make_bundle(toy_run.load(), samples, tmp_path / "toy", BundleOptions("toy", alignment_heads=heads))
    random, sources, references = np.random.default_rng(3), list[str](), list[str]()
    for sentence in toy_test_sentences()[:SENTENCES]:
        words = sentence.split()
        start = int(random.integers(len(words)))
        end = int(random.integers(start + 1, len(words) + 1))
        for texts, translated in ((sources, words), (references, translate_toy(sentence).split())):
            texts.append(
                " ".join([*translated[:start], f"<b>{' '.join(translated[start:end])}</b>", *translated[end:]])
            )
    limits: dict[str, Any] = {
        "engines": 1,
        "slots": 8,
        "max_texts": SENTENCES,
        "queue_limit": SENTENCES,
        "device": "cpu",
    }
    with run_service(tmp_path / "toy", [], alignments=True, **limits) as live:
        answer = live.post({"text": sources, "format": "html", "split_sentences": False}).json()
    f1, equal = span_f1(
        [(each["text"], reference) for each, reference in zip(answer["translations"], references, strict=True)]
    )
    print(f"toy model: tag-span F1 {f1:.4f}, equal {equal:.4f}")
    assert f1 >= 0.97
    assert equal >= 0.9
