"""The sentences that a load is made of."""

from pathlib import Path

import pytest

from loadtest.sentences import DEFAULT_SENTENCES, draw_requests, read_sentences


def test_blank_lines_of_a_file_are_no_sentences(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("One.\n\n  \nZwölf.\n", encoding="utf-8")
    assert read_sentences(path) == ("One.", "Zwölf.")


def test_a_file_without_sentences_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("\n\n")
    with pytest.raises(ValueError, match="at least one line"):
        read_sentences(path)


def test_every_request_has_the_asked_number_of_texts() -> None:
    requests = draw_requests(DEFAULT_SENTENCES, request_count=5, texts_per_request=3, seed=1)
    assert [len(texts) for texts in requests] == [3] * 5
    assert {text for texts in requests for text in texts} <= set(DEFAULT_SENTENCES)


def test_a_seed_gives_one_choice_of_sentences() -> None:
    choices = [draw_requests(DEFAULT_SENTENCES, 20, 2, seed) for seed in (1, 1, 2)]
    assert choices[0] == choices[1] != choices[2]
