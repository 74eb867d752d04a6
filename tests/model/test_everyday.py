"""The everyday text of the project: four languages in each line, and nothing that is held out among the rest."""

import re
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest

from tests.support.paths import ROOT

EVERYDAY = ROOT / "model/everyday"
TABLES = sorted(EVERYDAY.glob("*/*.tsv"))
HELD_OUT = sorted(EVERYDAY.glob("held_out/*.tsv"))
PLACEHOLDER = re.compile(r"%[sd]|\{\w+\}|</?\w+>")


def read(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_each_line_has_four_texts_and_an_english_text_of_its_own(path: Path) -> None:
    rows = read(path)
    assert [row for row in rows if len(row) != 4 or not all(cell and cell == cell.strip() for cell in row)] == []
    assert [text for text, count in Counter(row[0] for row in rows).items() if count > 1] == []


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_placeholders_and_tags_are_the_same_in_every_language(path: Path) -> None:
    assert [row for row in read(path) if len({tuple(sorted(PLACEHOLDER.findall(cell))) for cell in row}) > 1] == []


def test_no_held_out_sentence_resembles_a_training_sentence() -> None:
    tables = (read(path) for path in TABLES if path not in HELD_OUT)
    training = [words_of(row[0]) for row in chain.from_iterable(tables)]
    sentences_with = defaultdict[str, list[int]](list)
    for number, words in enumerate(training):
        for word in words:
            sentences_with[word].append(number)

    def resembles(text: str, limit: float) -> bool:
        """Looks for a sentence that has this share of all words of both; it lacks few words, so it has a rare one."""
        words = words_of(text)
        rarest = sorted(words, key=lambda word: len(sentences_with[word]))[: len(words) - int(limit * len(words)) + 1]
        near = (training[number] for word in rarest for number in sentences_with[word])
        return any(len(words & other) >= limit * len(words | other) for other in near)

    for path, limit in ((EVERYDAY / "held_out/test.tsv", 0.67), (EVERYDAY / "held_out/validation.tsv", 0.8)):
        assert [row[0] for row in read(path) if resembles(row[0], limit)] == []
