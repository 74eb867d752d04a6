"""Scores and windows of recurrent attention follow the papers' formulas; padding gets no weight."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dragoman.model.config import RecurrentConfig
from dragoman.model.network import alignment as module
from dragoman.model.network.alignment import AdditiveScore, Alignment, EncodedSource, GeneralScore, PredictiveAlignment
from tests.support import reference
from tests.support.recurrent_models import ATTENTIONS

Array = NDArray[np.float64]

WIDTH = 6
RADIUS = 2
LENGTHS = [9, 1, 4, 7]


def numpy(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def random_query() -> Tensor:
    return torch.randn(len(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(1))


def random_source(alignment: Alignment, padding: float = 0.0) -> EncodedSource:
    annotations = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(2))
    for row, length in zip(annotations, LENGTHS, strict=True):
        row[length:] = padding
    return EncodedSource.of(annotations, alignment.score.keys(annotations), torch.tensor(LENGTHS))


def random_alignment(attention: str) -> Alignment:
    torch.manual_seed(3)
    config = {"architecture": "recurrent", "attention": attention, "d_model": WIDTH, "window": RADIUS}
    alignment = module.make_alignment(RecurrentConfig.model_validate(config))
    for parameter in alignment.parameters():
        nn.init.normal_(parameter)
    return alignment


def weights_at(alignment: Alignment, position: int, source: EncodedSource | None = None) -> Tensor:
    weights: Tensor = alignment(random_query(), source or random_source(alignment), torch.tensor(position))
    return weights.detach()


def reference_score(alignment: Alignment, query: Array, annotation: Array) -> float:
    """Returns the score of one decoder state and one annotation, as in the papers."""
    score = alignment.score
    if isinstance(score, AdditiveScore):
        # W_a for the concatenation [h_t; h_s] is the concatenation of both matrices.
        matrix = np.concatenate((numpy(score.query.weight), numpy(score.key.weight)), axis=1)
        inner = np.tanh(matrix @ np.concatenate((query, annotation)) + numpy(score.key.bias))
        return float(numpy(score.energy.weight)[0] @ inner)
    if isinstance(score, GeneralScore):
        return float(annotation @ numpy(score.query.weight) @ query)
    return float(query @ annotation)


def reference_weights(alignment: Alignment, row: int, center: float, radius: float) -> Array:
    """Returns the softmax of one row's scores over a window of its real positions, zero elsewhere."""
    annotations, query = numpy(random_source(alignment).annotations)[row], numpy(random_query())[row]
    seen = [s for s in range(LENGTHS[row]) if center - radius <= s <= center + radius]
    weights = np.zeros(max(LENGTHS))
    weights[seen] = reference.softmax(np.array([reference_score(alignment, query, annotations[s]) for s in seen]))
    return weights


@pytest.mark.parametrize("attention", ["additive", "dot", "general", "concat"])
def test_global_attention_is_the_softmax_of_its_scores(attention: str) -> None:
    alignment = random_alignment(attention)
    expected = [reference_weights(alignment, row, 0, np.inf) for row in range(len(LENGTHS))]
    np.testing.assert_allclose(weights_at(alignment, 5), expected, atol=1e-6)


@pytest.mark.parametrize("position", range(9))
def test_monotonic_attention_sees_a_window_around_the_target_position(position: int) -> None:
    """It stays at the last token of a shorter source."""
    alignment = random_alignment("local_monotonic")
    centers = [min(position, length - 1) for length in LENGTHS]
    expected = [reference_weights(alignment, row, center, RADIUS) for row, center in enumerate(centers)]
    np.testing.assert_allclose(weights_at(alignment, position), expected, atol=1e-6)


def test_monotonic_attention_takes_rows_at_different_positions() -> None:
    alignment = random_alignment("local_monotonic")
    positions = [0, 3, 1, 6]
    together = alignment(random_query(), random_source(alignment), torch.tensor(positions))
    for row, position in enumerate(positions):
        torch.testing.assert_close(together[row].detach(), weights_at(alignment, position)[row])


def test_predictive_attention_is_a_bell_around_the_predicted_position() -> None:
    alignment = random_alignment("local_predictive")
    assert isinstance(alignment, PredictiveAlignment)
    matrix, (vector,) = (numpy(parameter) for parameter in alignment.predictor.parameters())
    for row, (query, length) in enumerate(zip(numpy(random_query()), LENGTHS, strict=True)):
        center = length / (1 + np.exp(-(vector @ np.tanh(matrix @ query))))
        bell = np.exp(-((np.arange(max(LENGTHS)) - center) ** 2) / (2 * (RADIUS / 2) ** 2))
        expected = reference_weights(alignment, row, center, RADIUS) * bell
        np.testing.assert_allclose(weights_at(alignment, 0)[row], expected, atol=1e-6)


@pytest.mark.parametrize("certainty", [-1e4, 1e4])
def test_predictive_attention_always_sees_something(certainty: float) -> None:
    """Even if the predicted position is at the edge of the source or just beyond it."""
    alignment = random_alignment("local_predictive")
    assert isinstance(alignment, PredictiveAlignment)
    alignment.radius = 1
    surely = nn.Linear(WIDTH, 1)
    nn.init.constant_(surely.bias, certainty)
    alignment.predictor[2] = surely
    assert (weights_at(alignment, 0).sum(dim=1) > 0.1).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_padding_gets_no_weight_and_has_no_influence(attention: str) -> None:
    alignment = random_alignment(attention)
    weights = weights_at(alignment, 1)
    assert not weights[~random_source(alignment).valid].any()
    assert torch.equal(weights, weights_at(alignment, 1, random_source(alignment, padding=7.0)))


@pytest.mark.parametrize(
    ("attention", "alignment", "score"),
    [
        ("additive", Alignment, AdditiveScore),
        ("dot", Alignment, module.DotScore),
        ("general", Alignment, GeneralScore),
        ("concat", Alignment, AdditiveScore),
        ("local_monotonic", module.MonotonicAlignment, GeneralScore),
        ("local_predictive", PredictiveAlignment, GeneralScore),
    ],
)
def test_every_attention_has_its_alignment_and_its_score(
    attention: str, alignment: type[Alignment], score: type[nn.Module]
) -> None:
    made = random_alignment(attention)
    assert type(made) is alignment
    assert type(made.score) is score
