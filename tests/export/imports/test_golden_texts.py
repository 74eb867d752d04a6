"""Texts for golden sentences are sentences of the source language, or consist of words of the vocabulary."""

import pytest

from dragoman.export.imports.golden import SENTENCES, TEXTS, golden_samples, golden_texts, read_sentences
from dragoman.export.source_model import Exportable
from dragoman.export.torch_weights import to_weights
from dragoman.model.tokenizer.tokenizer import UNK_ID, Tokenizer
from dragoman.serve.bundle.manifest import BundleDirection
from tests.support.toy import random_model


def test_texts_are_made_of_words_and_differ_in_length() -> None:
    texts = golden_texts(["<unk>", "</s>", "▁the", "ing", "▁", "▁2", ",", *(f"▁word{'x' * n}" for n in range(40))])
    assert len(set(texts)) == TEXTS
    assert {len(text.split()) for text in texts} >= {1, 2, 10}
    assert all(word == "the" or word.startswith("word") for text in texts for word in text.split())


def test_a_script_without_spaces_has_texts_too() -> None:
    assert all(set(text) <= set("日本語") and text for text in golden_texts(["<unk>", "▁", "日", "本", "語", "。"]))


def test_a_large_vocabulary_gives_its_common_words() -> None:
    letters = "abcdefghij"
    words = [f"▁{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in letters]
    assert all(f"▁{word}" in words[:2000] for text in golden_texts(words) for word in text.split())


@pytest.mark.parametrize("pieces", [[], ["<unk>", "▁", ".", "12"]])
def test_a_vocabulary_without_words_gives_none(pieces: list[str]) -> None:
    assert golden_texts(pieces) == []


def test_twenty_languages_have_sentences_of_their_own() -> None:
    languages = sorted(path.stem for path in SENTENCES.glob("*.txt"))
    sentences = {language: read_sentences(language) for language in languages}
    assert len(languages) == 20
    assert {len(texts) for texts in sentences.values()} == {8}
    assert len({text for texts in sentences.values() for text in texts}) == 160
    assert all(text == text.strip() and len(text) > 8 for texts in sentences.values() for text in texts)
    assert read_sentences("xx") == []


def test_sentences_with_unknown_pieces_are_not_golden(tokenizer: Tokenizer) -> None:
    """The tokenizer of the tests lacks most letters; then words of the vocabulary stand in."""
    weights = to_weights(random_model(1, tokenizer.vocabulary_size))
    direction = BundleDirection(source="en", target="de")
    samples = golden_samples(Exportable(weights, tokenizer, (direction,), (3,), UNK_ID, {}, 0))
    assert {str(sample.direction) for sample in samples} == {"en-de"}
    texts = [sample.text for sample in samples]
    known = [text for text in read_sentences("en") if UNK_ID not in tokenizer.encode(text)]
    assert texts == (known or golden_texts(tokenizer.source_pieces))
