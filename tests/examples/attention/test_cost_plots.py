"""The plots show every kind of layer, and the table the measured powers and counts."""

from pathlib import Path

from examples.attention.costs import LAYER_KINDS, LayerCost, draw_costs, format_costs

# Of each kind the same: operations grow with the square, time with the length, and the two counts differ.
COSTS = [
    LayerCost(kind.name, n, 16, 100 * n**3, n**2, n * 1e-6, sequential=n, path=2 * n)
    for kind in LAYER_KINDS
    for n in (8, 16, 32)
]


def test_every_kind_is_drawn_with_its_name(tmp_path: Path) -> None:
    draw_costs(COSTS, tmp_path / "layers.svg")
    drawn = (tmp_path / "layers.svg").read_text(encoding="utf-8")
    assert [kind.name for kind in LAYER_KINDS if f">{kind.name}<" not in drawn] == []


def test_the_same_costs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        draw_costs(COSTS, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_the_table_has_powers_and_counts() -> None:
    row = format_costs(COSTS).splitlines()[2]
    assert row == "| self-attention | O(n² d) | n^2.00 | n^3.00 | n^1.00 | O(1) | 8 … 32 | O(1) | 16 … 64 |"
