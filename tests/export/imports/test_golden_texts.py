"""Texts for golden sentences consist of words of the vocabulary."""

import pytest

from export.imports.common import TEXTS, golden_texts


def test_texts_are_made_of_words_and_differ_in_length() -> None:
    texts = golden_texts(["<unk>", "</s>", "▁the", "ing", "▁", "▁2", ",", *(f"▁word{'x' * n}" for n in range(40))])
    assert len(set(texts)) == TEXTS
    assert {len(text.split()) for text in texts} >= {1, 2, 10}
    assert all(word == "the" or word.startswith("word") for text in texts for word in text.split())


def test_a_script_without_spaces_has_texts_too() -> None:
    texts = golden_texts(["<unk>", "▁", "日", "本", "語", "。"])
    assert all(set(text) <= set("日本語") and text for text in texts)


def test_a_large_vocabulary_gives_its_common_words() -> None:
    letters = "abcdefghij"
    words = [f"▁{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in letters]
    texts = golden_texts(words)
    assert all(f"▁{word}" in words[:2000] for text in texts for word in text.split())


@pytest.mark.parametrize("pieces", [[], ["<unk>", "▁", ".", "12"]])
def test_a_vocabulary_without_words_gives_none(pieces: list[str]) -> None:
    assert golden_texts(pieces) == []
