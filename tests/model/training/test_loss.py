"""The chunked loss equals the textbook loss, gradients included."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dragoman.model.tokenizer.tokenizer import PAD_ID
from dragoman.model.training.loss import CPU_CHUNK_ROWS, CPU_GROUP_ROWS, alignment_loss, translation_loss
from dragoman.model.weights import FORBIDDEN

WIDTH, VOCABULARY = 8, 11
POSITIONS = [1, 5, CPU_CHUNK_ROWS, 2 * CPU_CHUNK_ROWS + 3, CPU_GROUP_ROWS + CPU_CHUNK_ROWS + 3]


def make_inputs(passes: int, positions: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(positions)
    states = torch.randn(passes, positions, WIDTH, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    labels = torch.randint(1, VOCABULARY, (positions,))
    labels[1::3] = PAD_ID
    return states, weight, labels


def reference_loss(states: Tensor, weight: Tensor, labels: Tensor, label_smoothing: float, r_drop: float) -> Tensor:
    """Returns the loss from its formula with PyTorch's own functions."""
    logits = states @ weight.T
    options: dict[str, Any] = {"ignore_index": PAD_ID, "label_smoothing": label_smoothing}
    loss = torch.stack([functional.cross_entropy(one, labels, **options) for one in logits]).mean()
    if len(states) == 2:
        first, second = logits.log_softmax(dim=-1)[:, labels != PAD_ID]
        pairs = ((second, first), (first, second))
        both = sum(functional.kl_div(*pair, log_target=True, reduction="sum") for pair in pairs)
        loss = loss + r_drop / 2 * both / 2 / (labels != PAD_ID).sum()
    return loss


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("passes", "r_drop"), [(1, 0.0), (2, 0.0), (2, 3.0)])
def test_loss_and_gradients_fit_the_formula(positions: int, label_smoothing: float, passes: int, r_drop: float) -> None:
    states, weight, labels = make_inputs(passes, positions)
    expected = reference_loss(states, weight, labels, label_smoothing, r_drop)
    doubled = torch.autograd.grad(2 * expected, (states, weight))
    loss = translation_loss(states, weight, labels, label_smoothing, r_drop)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(2 * loss, (states, weight)), doubled)


def test_padding_is_ignored() -> None:
    states, weight, labels = make_inputs(1, 9)
    real = labels != PAD_ID
    without = translation_loss(states[:, real], weight, labels[real], 0.1)
    torch.testing.assert_close(translation_loss(states, weight, labels, 0.1), without)
    (gradient,) = torch.autograd.grad(translation_loss(states, weight, labels, 0.1), states)
    assert not gradient[:, ~real].any()


def test_forbidden_tokens_take_no_part_and_frozen_weights_get_no_gradient() -> None:
    """Another token than usual is padding; the reference has no rows of forbidden tokens."""
    states, weight, labels = make_inputs(1, 2 * CPU_CHUNK_ROWS + 3)
    bias = torch.randn(VOCABULARY)
    bias[-2:] = FORBIDDEN
    labels %= VOCABULARY - 2
    labels[::4] = pad_id = 5
    logits = (states @ weight.T + bias)[0, :, :-2]
    expected = functional.cross_entropy(logits, labels, ignore_index=pad_id, label_smoothing=0.1)
    (gradient,) = torch.autograd.grad(expected, states)
    loss = translation_loss(states, weight.detach(), labels, 0.1, output_bias=bias, pad_id=pad_id)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, states)[0], gradient)


def test_a_batch_of_padding_has_no_loss() -> None:
    states, weight, labels = make_inputs(1, 4)
    assert translation_loss(states, weight, torch.full_like(labels, PAD_ID)).item() == 0.0


def test_under_autocast_the_projection_is_computed_in_bfloat16() -> None:
    states, weight, labels = make_inputs(1, 40)
    exact = translation_loss(states, weight, labels)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = translation_loss(states, weight, labels)
        (gradient,) = torch.autograd.grad(rounded, weight)
    assert rounded.item() != exact.item()
    assert rounded.item() == pytest.approx(exact.item(), rel=0.01)
    assert gradient.dtype == torch.float32


def test_the_alignment_loss_is_the_mean_cross_entropy_of_linked_tokens() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [1.0, 0.0, 0.0]]], requires_grad=True)
    alignments = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    logarithms = torch.tensor([0.5, 0.25, 0.8]).log().tolist()
    loss = alignment_loss(weights, alignments)
    assert loss.item() == pytest.approx(-((logarithms[0] + logarithms[1]) / 2 + logarithms[2]) / 2)
    (gradient,) = torch.autograd.grad(loss, weights)
    assert gradient.isfinite().all()
    assert not gradient[0, 2].any()


def test_without_links_there_is_no_alignment_loss() -> None:
    assert alignment_loss(torch.full((1, 2, 2), 0.5), torch.zeros(1, 2, 2)).item() == 0.0
