"""The head for alignments: its weights are those of PyTorch, and it is chosen by sharpness and reach."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragoman.export.alignment import HeadMeasure
from dragoman.export.teacher_forcing import Pair, read_translations
from dragoman.export.torch_weights import to_weights
from dragoman.model.network.transformer import Transformer
from dragoman.serve.bundle.manifest import AttentionHead
from tests.support.cases import cases
from tests.support.toy import OPTIONS, random_model

CASES = cases(__file__)

TOKENS = 4


@pytest.fixture
def model() -> Transformer:
    return random_model(5, 50, decoder_layers=2)


@pytest.mark.parametrize("options", ["default", "modern"])
def test_attention_weights_are_those_of_pytorch(options: str) -> None:
    model = random_model(5, 50, **{**OPTIONS[options], "decoder_layers": 2})
    source, target = (5, 6, 7, 8, 3), (9, 10, 11)
    expected = model.attention_maps(torch.tensor([source]), torch.tensor([[model.bos_id, *target]]))[0]
    found: list[NDArray[np.float32]] = []
    read_translations(to_weights(model), [Pair(source, (), target)], lambda _, weights: found.append(weights))
    assert np.allclose(np.stack(found).reshape(expected.shape), expected.detach().numpy(), atol=1e-5)


def blurred(share: float) -> NDArray[np.float32]:
    """Returns weights of one head: this share for the token of the same number, and the rest for all alike."""
    return (share * np.eye(TOKENS) + (1 - share) / TOKENS).astype(np.float32)


def measured(model: Transformer, maps: NDArray[np.float32]) -> HeadMeasure:
    """Returns what is measured on one sentence, of weights [layers, H, T, S]."""
    measure = HeadMeasure(model.config, 1)
    for weights in maps:
        measure.add(0, weights)
        measure.add(1, np.ones_like(weights))  # beyond the sentences that count
    return measure


@pytest.mark.parametrize(("shares", "chosen"), CASES["the usual head is taken unless worse"])
def test_the_usual_head_is_taken_unless_worse(shares: list[float], chosen: tuple[int, int], model: Transformer) -> None:
    maps = np.stack([blurred(share) for share in shares]).reshape(2, 2, TOKENS, TOKENS)
    heads, quality = measured(model, maps).choose()
    assert heads == (AttentionHead(layer=chosen[0], head=chosen[1]),)
    assert quality.coverage == 1.0
    assert 0 <= quality.entropy <= 1


def test_a_head_that_looks_at_one_token_only_covers_little(model: Transformer) -> None:
    stuck = np.zeros((2, 2, TOKENS, TOKENS), np.float32)
    stuck[..., 0] = 1
    stuck[0, 1] = blurred(0.8)
    assert measured(model, stuck).choose()[0] == (AttentionHead(layer=0, head=1),)


def test_without_sentences_the_usual_head_is_taken(model: Transformer) -> None:
    assert HeadMeasure(model.config, 1).choose()[0] == (AttentionHead(layer=1, head=0),)


def test_named_heads_are_taken_with_their_mean_quality(model: Transformer) -> None:
    maps = np.stack([blurred(share) for share in (0.99, 0.5, 0.2, 0.1)]).reshape(2, 2, TOKENS, TOKENS)
    measure = measured(model, maps)
    named = AttentionHead(layer=0, head=1), AttentionHead(layer=1, head=0)
    heads, quality = measure.choose(named)
    alone = [measure.choose((item,))[1] for item in named]
    assert heads == named
    assert quality == pytest.approx(np.mean(alone, axis=0))
