"""Maps have a row per target token, a column per source token, and the pieces of both."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from examples.attention.runs import SentenceTooLongError, force_maps
from model.config import Direction, ModelConfig, RecurrentConfig, RunConfig, TransformerConfig
from model.network.translation_model import DecoderState, Memory, TranslationModel
from model.run import TrainedModel
from model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer, train_tokenizer
from tests.support.toy import random_model

SOURCE, TARGET = "alpha beta gamma delta house.", "one two"
LAYERS, HEADS = 3, 2
ENGLISH_GERMAN = Direction(source="en", target="de")


class FakeModel(TranslationModel):
    """Map n attends only to source position n."""

    def __init__(self, config: ModelConfig, maps: int) -> None:
        super().__init__(config, vocabulary_size=60, pad_id=PAD_ID)
        self.maps = maps
        self.read: list[list[int]] = []

    @property
    def output_weight(self) -> Tensor:
        raise NotImplementedError

    def encode(self, source_ids: Tensor) -> Memory:
        raise NotImplementedError

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        raise NotImplementedError

    def project(self, states: Tensor) -> Tensor:
        raise NotImplementedError

    def start(self, memory: Memory) -> DecoderState:
        raise NotImplementedError

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        raise NotImplementedError

    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        self.read = [source_ids[0].tolist(), target_ids[0].tolist()]
        one_hot = torch.eye(source_ids.shape[1])[: self.maps, None]  # [maps, 1, S]
        return one_hot.expand(-1, target_ids.shape[1], -1)[None]


def trained(tokenizer: Tokenizer, model: TranslationModel) -> TrainedModel:
    config = RunConfig(directions=(ENGLISH_GERMAN,), model=model.limits)
    return TrainedModel(config, tokenizer, model, steps=0)


@pytest.fixture
def transformer(tokenizer: Tokenizer) -> TrainedModel:
    config = TransformerConfig(d_model=32, heads=HEADS, decoder_layers=LAYERS)
    return trained(tokenizer, FakeModel(config, LAYERS * HEADS))


def test_the_translation_is_forced_on_the_model(tokenizer: Tokenizer, transformer: TrainedModel) -> None:
    force_maps(transformer, ENGLISH_GERMAN, SOURCE, TARGET)
    assert isinstance(transformer.model, FakeModel)
    assert transformer.model.read == [
        [*tokenizer.encode(SOURCE), EOS_ID],
        [BOS_ID, *tokenizer.encode(TARGET)],
    ]


def test_the_pieces_are_the_read_and_the_predicted_tokens(transformer: TrainedModel) -> None:
    maps = force_maps(transformer, ENGLISH_GERMAN, SOURCE, TARGET)
    assert "".join(maps.source_pieces) == "▁alpha▁beta▁gamma▁delta▁house.</s>"
    assert "".join(maps.target_pieces) == "▁one▁two</s>"


def test_maps_are_ordered_by_layer_and_head(transformer: TrainedModel) -> None:
    maps = force_maps(transformer, ENGLISH_GERMAN, SOURCE, TARGET)
    assert maps.layers.shape == (LAYERS, HEADS, len(maps.target_pieces), len(maps.source_pieces))
    looked_at = maps.layers[:, :, 0].argmax(axis=-1)
    assert looked_at.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_the_target_language_token_has_a_column(transformer: TrainedModel) -> None:
    directions = (ENGLISH_GERMAN, Direction(source="de", target="en"))
    tokenizer = train_tokenizer([SOURCE, TARGET] * 9, vocabulary_size=40, target_languages=("de", "en"))
    config = transformer.config.model_copy(update={"directions": directions})
    maps = force_maps(replace(transformer, config=config, tokenizer=tokenizer), ENGLISH_GERMAN, SOURCE, TARGET)
    assert maps.source_pieces[0] == "<2de>"
    assert maps.layers.shape[-1] == len(maps.source_pieces)


def test_the_summary_is_the_mean_over_the_heads_of_the_last_layer(transformer: TrainedModel) -> None:
    row = force_maps(transformer, ENGLISH_GERMAN, SOURCE, TARGET).summary[0]
    assert row.nonzero()[0].tolist() == [4, 5]
    assert row.sum() == pytest.approx(1)


def test_the_summary_of_a_recurrent_model_is_its_one_map(tokenizer: Tokenizer) -> None:
    model = FakeModel(RecurrentConfig(architecture="recurrent"), maps=1)
    maps = force_maps(trained(tokenizer, model), ENGLISH_GERMAN, SOURCE, TARGET)
    assert maps.layers.shape[:2] == (1, 1)
    assert maps.summary.shape == (len(maps.target_pieces), len(maps.source_pieces))
    assert (maps.summary[:, 0] == 1).all()


def test_the_rows_of_a_real_model_sum_to_one(tokenizer: Tokenizer) -> None:
    model = random_model(1, tokenizer.vocabulary_size, decoder_layers=2, max_source_tokens=40, max_target_tokens=40)
    maps = force_maps(trained(tokenizer, model), ENGLISH_GERMAN, SOURCE, TARGET)
    assert maps.layers.shape == (2, 2, len(maps.target_pieces), len(maps.source_pieces))
    assert maps.layers.sum(axis=-1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("limit", "message"),
    [("max_source_tokens", "source tokens, expected at most 2"), ("max_target_tokens", "target tokens, expected at m")],
)
def test_a_sentence_beyond_the_limits_is_an_error(tokenizer: Tokenizer, limit: str, message: str) -> None:
    model = FakeModel(TransformerConfig.model_validate({limit: 2}), maps=48)
    with pytest.raises(SentenceTooLongError, match=message):
        force_maps(trained(tokenizer, model), ENGLISH_GERMAN, SOURCE, "one two three four")
