"""An ensemble predicts the mean of its members' probabilities, as a whole and step by step."""

import pytest
import torch

from dragoman.model.network.ensemble import Ensemble
from dragoman.model.network.translation_model import TranslationModel
from tests.support.toy import VOCABULARY, ragged_ids, random_ids, random_model

SOURCES, TARGETS = ragged_ids([3, 9, 1, 6]), random_ids(4, 9, seed=2)


@pytest.fixture
def members() -> list[TranslationModel]:
    """Models of different widths, depths and memories."""
    return [random_model(5, VOCABULARY), random_model(6, VOCABULARY, d_model=48, decoder_memory="ssru")]


def test_probabilities_are_the_mean_of_the_members(members: list[TranslationModel]) -> None:
    expected = torch.stack([member(SOURCES, TARGETS).softmax(dim=-1) for member in members]).mean(dim=0)
    torch.testing.assert_close(Ensemble(members)(SOURCES, TARGETS).exp(), expected)


def test_steps_predict_what_decoding_as_a_whole_predicts(members: list[TranslationModel]) -> None:
    ensemble = Ensemble(members)
    expected = ensemble(SOURCES, TARGETS)
    state = ensemble.start(ensemble.encode(SOURCES))
    for position, token_ids in enumerate(TARGETS.unbind(dim=1)):
        logits, state = ensemble.decode_step(token_ids, state)
        torch.testing.assert_close(logits, expected[:, position], atol=2e-5, rtol=2e-5)


def test_attention_maps_are_those_of_all_members(members: list[TranslationModel]) -> None:
    maps = Ensemble(members).attention_maps(SOURCES, TARGETS)
    assert torch.equal(maps, torch.cat([member.attention_maps(SOURCES, TARGETS) for member in members], dim=1))
