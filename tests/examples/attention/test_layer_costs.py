"""The measured costs of layers equal the known ones: Vaswani et al. 2017, Table 1, with factors."""

from itertools import count

import pytest
import torch

from examples.attention.costs import (
    HEADS,
    KERNEL,
    LAYER_KINDS,
    WINDOW,
    LayerCost,
    Recurrent,
    WayCounter,
    count_operations,
    count_sequential,
    growth,
    is_matrix_product,
    measure_layers,
    measure_paths,
)

KINDS = {kind.name: kind for kind in LAYER_KINDS}
LENGTHS = [1, 2, 3, 9, 10, 16, 17, 31, 32, 40]
WIDTH = 2 * HEADS


def operations(kind: str, length: int, width: int) -> tuple[int, int]:
    with torch.inference_mode():
        return count_operations(KINDS[kind].build(width, 0), torch.randn(1, length, width))


@pytest.mark.parametrize(("kind", "products"), [("self-attention", 4), ("local self-attention", 4), ("convolution", 1)])
def test_the_sequential_operations_of_a_layer_that_reads_at_once_do_not_grow(kind: str, products: int) -> None:
    """Attention: projection, scores, weighted sum, projection."""
    assert [count_sequential(KINDS[kind], length) for length in (2, 17, 40)] == [products] * 3


def test_the_sequential_operations_of_a_recurrent_layer_are_one_a_position() -> None:
    assert [count_sequential(KINDS["recurrent"], length) for length in LENGTHS] == LENGTHS


def test_self_attention_connects_all_positions_in_one_step() -> None:
    assert measure_paths(KINDS["self-attention"], LENGTHS) == dict.fromkeys(LENGTHS, 1)


def test_a_recurrent_layer_takes_as_many_steps_as_there_are_positions() -> None:
    assert measure_paths(KINDS["recurrent"], LENGTHS) == {length: length for length in LENGTHS}


@pytest.mark.parametrize(("kind", "reach"), [("convolution", KERNEL - 1), ("local self-attention", WINDOW - 1)])
def test_stacked_layers_take_a_step_for_every_reach(kind: str, reach: int) -> None:
    expected = {length: max(1, -(-(length - 1) // reach)) for length in LENGTHS}
    assert measure_paths(KINDS[kind], LENGTHS) == expected


def test_dilated_convolutions_take_a_logarithm_of_steps() -> None:
    """The least power of KERNEL that reaches the length, computed without floating point."""
    expected = {length: next(layers for layers in count(1) if KERNEL**layers >= length) for length in LENGTHS}
    assert measure_paths(KINDS["dilated convolution"], LENGTHS) == expected


def test_a_gated_recurrent_unit_carries_its_state_past_all_matrices() -> None:
    """Paths are therefore counted in steps: by products, a recurrent layer would connect all positions in one."""
    states = [torch.randn(WIDTH, requires_grad=True) for _ in range(20)]
    last = Recurrent(WIDTH).unroll(states)[-1]
    assert WayCounter(states[:1], is_matrix_product, min).count(last) == 1


@pytest.mark.parametrize(("length", "width"), [(8, 16), (64, 16), (32, 64)])
def test_operations_are_those_of_the_formulas(length: int, width: int) -> None:
    """A multiplication and an addition are two operations. Attention has four projections, a recurrent step six."""
    n, d = length, width
    assert operations("self-attention", n, d) == (8 * n * d**2 + 4 * n**2 * d, 4 * n**2 * d)
    assert operations("local self-attention", n, d) == (8 * n * d**2 + 4 * WINDOW * n * d, 4 * WINDOW * n * d)
    assert operations("recurrent", n, d) == (12 * n * d**2, 12 * n * d**2)
    assert operations("convolution", n, d) == (2 * KERNEL * n * d**2, 2 * KERNEL * n * d**2)
    assert operations("dilated convolution", n, d) == operations("convolution", n, d)


def test_self_attention_and_a_recurrent_layer_take_as_many_operations_where_length_is_width() -> None:
    assert operations("self-attention", 32, 32)[0] == operations("recurrent", 32, 32)[0]


def test_operations_grow_with_the_power_of_the_paper() -> None:
    costs = list(measure_layers([16, 32], 8))
    powers = {kind: growth([cost for cost in costs if cost.kind == kind], _tabled) for kind in KINDS}
    assert powers.pop("self-attention") == pytest.approx(2)
    assert powers == {kind: pytest.approx(1) for kind in powers}


def test_every_kind_is_measured_at_every_length() -> None:
    costs = list(measure_layers([4, 8], 8))
    assert [(cost.kind, cost.length) for cost in costs] == [(kind, length) for kind in KINDS for length in (4, 8)]
    assert all(cost.seconds > 0 and cost.width == 8 for cost in costs)


def _tabled(cost: LayerCost) -> float:
    return cost.tabled_operations
