"""An ensemble predicts the mean of its members' probabilities, step by step."""

import pytest
import torch

from dragoman.model.network.ensemble import Ensemble
from dragoman.model.network.transformer import Transformer
from tests.support.toy import VOCABULARY, ragged_ids, random_ids, random_model

SOURCES, TARGETS = ragged_ids([3, 9, 1, 6]), random_ids(4, 9, seed=2)


@pytest.fixture
def members() -> list[Transformer]:
    """Models of different widths, depths and memories."""
    return [random_model(5, VOCABULARY), random_model(6, VOCABULARY, d_model=48, decoder_memory="ssru")]


def test_steps_predict_the_mean_of_the_probabilities_of_the_members(members: list[Transformer]) -> None:
    expected = torch.stack([member(SOURCES, TARGETS).softmax(dim=-1) for member in members]).mean(dim=0)
    ensemble = Ensemble(members)
    state = ensemble.start(ensemble.encode(SOURCES))
    for position, token_ids in enumerate(TARGETS.unbind(dim=1)):
        logits, state = ensemble.decode_step(token_ids, state)
        torch.testing.assert_close(logits.exp(), expected[:, position], atol=2e-5, rtol=2e-5)
