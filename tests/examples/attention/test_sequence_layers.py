"""Both forms of a layer compute the same, and each position depends on the inputs of its kind of layer."""

import pytest
import torch
from torch import Tensor

from examples.attention.costs import HEADS, KERNEL, LAYER_KINDS, WINDOW, LayerKind, SequenceLayer

WIDTH = 2 * HEADS
LENGTH = 2 * WINDOW + 3
KINDS = {kind.name: kind for kind in LAYER_KINDS}
DEPTH = 1  # below which a dilated convolution is like any other


def seen_by_the_last_position(layer: SequenceLayer) -> list[int]:
    """Returns which inputs change the last output."""
    states = torch.randn(1, LENGTH, WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(states)[0, -1].sum(), states)
    seen: Tensor = gradient[0].abs().sum(dim=1) > 0
    return seen.nonzero()[:, 0].tolist()


@pytest.mark.parametrize("kind", LAYER_KINDS, ids=lambda kind: kind.name)
def test_unrolled_a_layer_computes_the_same(kind: LayerKind) -> None:
    layer = kind.build(WIDTH, DEPTH)
    states = torch.randn(LENGTH, WIDTH)
    torch.testing.assert_close(torch.stack(layer.unroll(list(states))), layer(states[None])[0])


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("self-attention", list(range(LENGTH))),
        ("recurrent", list(range(LENGTH))),
        ("local self-attention", list(range(LENGTH - WINDOW, LENGTH))),
        ("convolution", list(range(LENGTH - KERNEL, LENGTH))),
        ("dilated convolution", [LENGTH - 1 - 2 * KERNEL, LENGTH - 1 - KERNEL, LENGTH - 1]),
    ],
)
def test_the_last_position_depends_on_the_inputs_in_reach(kind: str, seen: list[int]) -> None:
    assert seen_by_the_last_position(KINDS[kind].build(WIDTH, DEPTH)) == seen
