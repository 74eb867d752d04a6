"""The grammar is a function from English to German, depends on the seed only, and covers all constructions."""

import hashlib
import os
import re
import subprocess
import sys

import pytest

from dragoman.model.demo.grammar import Grammar
from dragoman.model.demo.text import Text
from tests.support.cases import cases
from tests.support.paths import ROOT

SAMPLE_SIZE = 16_000
DIGEST_PROGRAM = "from tests.model.demo.test_grammar import digest; print(digest(seed=7))"

CASES = cases(__file__)


def sample(size: int, seed: int = 7) -> list[Text]:
    grammar = Grammar(seed)
    return [grammar.sentence() for _ in range(size)]


def digest(seed: int) -> str:
    return hashlib.sha256("\n".join(map("\t".join, sample(1_000, seed))).encode()).hexdigest()


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return sample(SAMPLE_SIZE)


@pytest.fixture(scope="module")
def pairs(texts: list[Text]) -> list[Text]:
    return [text.plain() for text in texts]


def test_an_english_sentence_has_one_german_translation(pairs: list[Text]) -> None:
    translations: dict[str, set[str]] = {}
    for pair in pairs:
        translations.setdefault(pair.english, set()).add(pair.german)
    assert [(english, german) for english, german in translations.items() if len(german) > 1] == []


def test_another_seed_makes_other_sentences() -> None:
    assert digest(seed=7) != digest(seed=8)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_sentences_depend_on_the_seed_only(hash_seed: str) -> None:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGEST_PROGRAM]
    result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == digest(seed=7)


@pytest.mark.parametrize(("english", "german"), CASES["constructions"])
def test_a_construction_occurs_often_and_is_always_translated(english: str, german: str, pairs: list[Text]) -> None:
    """At least one sentence in 400 has it."""
    showing = [pair for pair in pairs if re.search(english, pair.english, re.IGNORECASE)]
    assert len(showing) >= SAMPLE_SIZE / 400
    assert [pair for pair in showing if not re.search(german, pair.german, re.IGNORECASE)] == []


def test_questions_are_questions_in_both_languages(pairs: list[Text]) -> None:
    assert {(pair.english[-1], pair.german[-1]) for pair in pairs} == {(".", "."), ("?", "?")}


def test_sentences_are_written_properly(pairs: list[Text]) -> None:
    written = re.compile(r"[A-ZÄÖÜ][^\s,.?~<]*(?:[,.]? [^\s,.?~<]+)*[.?]")
    assert [text for pair in pairs for text in pair if not written.fullmatch(text)] == []


def test_sentences_are_short(pairs: list[Text]) -> None:
    lengths = sorted(len(pair.english.split()) for pair in pairs)
    assert lengths[0] >= 2
    assert lengths[len(lengths) // 2] <= 9
    assert lengths[int(len(lengths) * 0.95)] <= 17


@pytest.mark.parametrize(("english", "german", "alignment"), CASES["alignments"])
def test_words_are_aligned(english: str, german: str, alignment: str, texts: list[Text], pairs: list[Text]) -> None:
    matching = [
        text
        for text, pair in zip(texts, pairs, strict=True)
        if re.search(english, pair.english) and re.search(german, pair.german)
    ]
    assert {" ".join(f"{i}-{j}" for i, j in text.alignment()) for text in matching} == {alignment}


def test_every_word_has_a_translation(texts: list[Text]) -> None:
    for text in texts[:5_000]:
        english, german = (set(range(len(side.split()))) for side in text.plain())
        sources, targets = (set(side) for side in zip(*text.alignment(), strict=True))
        assert (english - sources, german - targets) == (set(), set()), text.plain()
