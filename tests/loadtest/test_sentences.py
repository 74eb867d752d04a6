"""The sentences that a load is made of."""

from pathlib import Path

import pytest

from loadtest.scenario import DEFAULT_SENTENCES, ScenarioError, describe, read_sentences


def test_blank_lines_of_a_file_are_no_sentences(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("One.\n\n  \nZwölf.\n", encoding="utf-8")
    assert read_sentences(path) == ("One.", "Zwölf.")


def test_a_file_without_sentences_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("\n\n")
    with pytest.raises(ScenarioError) as refused:
        read_sentences(path)
    assert str(refused.value) == f"sentences: {path}: expected at least one line that is not blank"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
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


def test_without_a_file_there_are_sentences() -> None:
    assert read_sentences(None) == DEFAULT_SENTENCES
