"""The sentences of a load."""

from pathlib import Path

import pytest

from loadtest.scenario import DEFAULT_SENTENCES, ScenarioError, describe, read_sentences


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("One.\n\n  \nZwölf.\n", encoding="utf-8")
    assert read_sentences(path) == ("One.", "Zwölf.")


def test_a_file_without_sentences_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("\n\n")
    with pytest.raises(ScenarioError, match=r"^sentences: .*sentences\.txt: "):
        read_sentences(path)


def test_a_binary_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "sentences.gz"
    path.write_bytes(b"\x1f\x8b")
    with pytest.raises(ScenarioError, match=r"sentences: .*sentences\.gz: .*can't decode byte"):
        read_sentences(path)


def test_sentences_are_described_by_their_words() -> None:
    assert describe(("one", "one two", "one two three")) == {
        "sentences": 3,
        "words_p50": 2,
        "words_p90": 3,
        "words_max": 3,
    }


def test_without_a_file_the_built_in_sentences_are_used() -> None:
    assert read_sentences(None) == DEFAULT_SENTENCES
