"""The measured costs of layers equal the known ones: Vaswani et al. 2017, Table 1, with factors."""

from itertools import count
from pathlib import Path

import pytest
import torch

from examples.attention.layers import (
    HEADS,
    KERNEL,
    LAYER_KINDS,
    WINDOW,
    LayerCost,
    count_operations,
    count_path,
    count_sequential,
    draw_costs,
    format_costs,
    growth,
    measure_layers,
)

KINDS = {kind.name: kind for kind in LAYER_KINDS}
LENGTHS = (1, 2, 3, 9, 10, 16, 17, 31, 32, 40)
WIDTH = 2 * HEADS
# All kinds have the same: operations grow with the square, time with the length, and the two counts differ.
COSTS = [
    LayerCost(kind.name, n, 16, 100 * n**3, n**2, n * 1e-6, sequential=n, path=2 * n)
    for kind in LAYER_KINDS
    for n in (8, 16, 32)
]


def operations(kind: str, length: int, width: int) -> tuple[int, int]:
    with torch.inference_mode():
        return count_operations(KINDS[kind].build(width, 0), torch.randn(1, length, width))


def paths(kind: str) -> list[int]:
    return [count_path(KINDS[kind], length) for length in LENGTHS]


@pytest.mark.parametrize(
    ("kind", "products"),
    [("self-attention", 4), ("local self-attention", 4), ("convolution", 1), ("dilated convolution", 1)],
)
def test_the_chain_of_a_parallel_layer_does_not_grow(kind: str, products: int) -> None:
    """Attention: projection, scores, weighted sum, projection."""
    assert [count_sequential(KINDS[kind], length) for length in (2, 17, 40)] == [products] * 3


def test_the_chain_of_a_recurrent_layer_has_a_product_per_position() -> None:
    assert [count_sequential(KINDS["recurrent"], length) for length in (*LENGTHS, 1000)] == [*LENGTHS, 1000]


def test_self_attention_connects_all_positions_in_one_state() -> None:
    assert paths("self-attention") == [1] * len(LENGTHS)


def test_a_recurrent_layer_connects_positions_through_all_states_between() -> None:
    assert paths("recurrent") == list(LENGTHS)


@pytest.mark.parametrize(("kind", "reach"), [("convolution", KERNEL - 1), ("local self-attention", WINDOW - 1)])
def test_stacked_layers_need_a_state_per_reach(kind: str, reach: int) -> None:
    assert paths(kind) == [max(1, -(-(length - 1) // reach)) for length in LENGTHS]


def test_dilated_convolutions_need_a_logarithm_of_states() -> None:
    """The least power of KERNEL that reaches the length, computed without floating point."""
    expected = [next(layers for layers in count(1) if KERNEL**layers >= length) for length in LENGTHS]
    assert paths("dilated convolution") == expected


@pytest.mark.parametrize(("length", "width"), [(8, 16), (64, 16), (32, 64)])
def test_operations_are_those_of_the_formulas(length: int, width: int) -> None:
    """A multiplication and an addition are two operations. Attention has four projections, a recurrent step six."""
    n, d = length, width
    assert operations("self-attention", n, d) == (8 * n * d**2 + 4 * n**2 * d, 4 * n**2 * d)
    assert operations("local self-attention", n, d) == (8 * n * d**2 + 4 * WINDOW * n * d, 4 * WINDOW * n * d)
    assert operations("recurrent", n, d) == (12 * n * d**2, 12 * n * d**2)
    assert operations("convolution", n, d) == (2 * KERNEL * n * d**2, 2 * KERNEL * n * d**2)
    assert operations("dilated convolution", n, d) == operations("convolution", n, d)


def test_every_kind_is_measured_at_every_length() -> None:
    costs = list(measure_layers((2, 8), WIDTH))
    assert [(cost.kind, cost.length) for cost in costs] == [(kind.name, n) for kind in LAYER_KINDS for n in (2, 8)]
    assert all(cost.seconds > 0 and cost.width == WIDTH for cost in costs)


def test_growth_is_the_power_between_the_two_greatest_lengths() -> None:
    assert growth(COSTS[:3], lambda cost: cost.operations) == pytest.approx(3)


def test_every_kind_is_drawn_with_the_same_bytes_for_the_same_costs(tmp_path: Path) -> None:
    for name in ("first.svg", "second.svg"):
        draw_costs(COSTS, tmp_path / name)
    drawn = (tmp_path / "first.svg").read_text(encoding="utf-8")
    assert drawn == (tmp_path / "second.svg").read_text(encoding="utf-8")
    assert [kind.name for kind in LAYER_KINDS if f">{kind.name}<" not in drawn] == []


def test_the_tables_have_powers_and_counts() -> None:
    lines = [" ".join(line.split()) for line in format_costs(COSTS).splitlines()]
    assert "| self-attention | O(n² d) | n^2.00 | n^3.00 | n^1.00 |" in lines
    assert "| self-attention | O(1) | 8 ... 32 | O(1) | 16 ... 64 |" in lines
