"""Maps have a row per target word and a column per source word."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction, RunConfig
from dragoman.model.data.corpus import CorpusError
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import TrainedModel
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, Tokenizer, train_tokenizer
from examples.attention.maps import AttentionMaps, draw_heads, draw_summaries, force_maps, split_words
from tests.support.cases import cases
from tests.support.toy import random_model

CASES = cases(__file__)

SOURCE, TARGET = "alpha beta gamma delta house.", "one two"
ENGLISH_GERMAN = Direction(source="en", target="de")


def origin(tokenizer: Tokenizer, *more: Direction, limit: int = 40) -> Exportable:
    """Returns a random Transformer with two decoder layers of two heads."""
    model = random_model(
        1, tokenizer.vocabulary_size, decoder_layers=2, max_source_tokens=limit, max_target_tokens=limit
    )
    config = RunConfig(directions=(ENGLISH_GERMAN, *more), model=model.limits)
    return Exportable.of_run(TrainedModel(config, tokenizer, model, steps=0))


def test_the_translation_is_forced_on_the_model(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[int]] = []
    attend = Transformer.attention_maps

    def watch(model: Transformer, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        read.extend([*source_ids.tolist(), *target_ids.tolist()])
        return attend(model, source_ids, target_ids)

    monkeypatch.setattr(Transformer, "attention_maps", watch)
    force_maps(origin(tokenizer), ENGLISH_GERMAN, SOURCE, TARGET)
    assert read == [[*tokenizer.encode(SOURCE), EOS_ID], [BOS_ID, *tokenizer.encode(TARGET)]]


def test_axes_have_the_words_and_rows_sum_to_one(tokenizer: Tokenizer) -> None:
    maps = force_maps(origin(tokenizer), ENGLISH_GERMAN, SOURCE, TARGET)
    assert maps.source == ("alpha", "beta", "gamma", "delta", "house", ".", "</s>")
    assert maps.target == ("one", "two", "</s>")
    assert maps.layers.shape == (2, 2, 3, 7)
    assert maps.layers.sum(axis=-1) == pytest.approx(1)
    assert maps.summary == pytest.approx(maps.layers[1].mean(axis=0))


def test_the_token_of_the_target_language_has_a_column() -> None:
    tokenizer = train_tokenizer([SOURCE, TARGET] * 9, vocabulary_size=40, target_languages=("de", "en"))
    maps = force_maps(origin(tokenizer, Direction(source="de", target="en")), ENGLISH_GERMAN, SOURCE, TARGET)
    assert maps.source[:2] == ("<2de>", "alpha")


@pytest.mark.parametrize(("source", "target", "side"), [(SOURCE, "a", "source"), ("a", SOURCE, "target")])
def test_a_sentence_beyond_the_limits_is_an_error(tokenizer: Tokenizer, source: str, target: str, side: str) -> None:
    with pytest.raises(CorpusError, match=f"{side} tokens, expected at most 5"):
        force_maps(origin(tokenizer, limit=5), ENGLISH_GERMAN, source, target)


@pytest.mark.parametrize(("pieces", "words"), CASES["pieces form words"])
def test_pieces_form_words(pieces: str, words: list[tuple[int, str]]) -> None:
    assert split_words(pieces.split()) == [(start, word) for start, word in words]


def test_another_direction_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(CorpusError, match="de-en: expected a direction of the model: en-de"):
        force_maps(origin(tokenizer), Direction(source="de", target="en"), TARGET, SOURCE)


def test_every_word_and_every_head_is_drawn(tmp_path: Path) -> None:
    words = ("$5", "<b>", "Ä", "</s>")
    maps = AttentionMaps(words, words, np.random.default_rng(1).random((2, 3, 4, 4), dtype=np.float32))
    draw_summaries({"first": maps, "second": maps}, tmp_path / "maps.svg")
    draw_heads(maps, tmp_path / "heads.svg")
    drawn, heads = ((tmp_path / f"{name}.svg").read_text(encoding="utf-8") for name in ("maps", "heads"))
    for word in ("$5", "&lt;b&gt;", "Ä", "&lt;/s&gt;"):
        assert drawn.count(f">{word}</text>") == 4  # on both axes of two maps
        assert heads.count(f">{word}</text>") == 5  # of three columns and two rows
    assert [f"layer {layer}, head {head}" in heads for layer in (1, 2) for head in (1, 2, 3)] == [True] * 6
    assert [drawn.count("<image"), heads.count("<image")] == [1, 1]  # the color bar; cells are vectors
