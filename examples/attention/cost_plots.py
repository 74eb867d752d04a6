"""Curves of what layers cost: points that were measured, lines that grow as Vaswani et al. 2017 say in Table 1.

The orders of the paper leave a factor open: each line goes through its last point. `dragoman attention` draws it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from examples.attention.costs import LayerCost
from examples.attention.layer_kinds import LAYER_KINDS, LayerKind, Order
from model.drawing import drawing

# A colour, a marker and its size for each kind: points at the same place can be told apart.
_STYLES = (("C0", "o", 8), ("C3", "s", 5), ("C2", "^", 9), ("C1", "v", 4), ("C4", "D", 4))


@dataclass(frozen=True, slots=True)
class _Panel:
    """What is drawn over the length: a measure, and its order if Table 1 has one."""

    title: str
    measure: Callable[[LayerCost], float]
    order: Callable[[LayerKind], Order] | None


_PANELS = (
    _Panel("operations counted by Table 1", lambda cost: cost.tabled_operations, lambda kind: kind.operations),
    _Panel("all operations, projections included", lambda cost: cost.operations, None),
    _Panel("seconds of a forward pass", lambda cost: cost.seconds, None),
    _Panel("sequential operations", lambda cost: cost.sequential, lambda kind: kind.sequential),
    _Panel("path length, steps", lambda cost: cost.path, lambda kind: kind.path),
)


def draw_costs(costs: Sequence[LayerCost], path: Path) -> None:
    """Draws operations, time, operations in sequence and path length over the length of the sequence."""
    with drawing(path, (11.0, 6.4)) as figure:
        *panels, key = figure.subplots(2, 3).flat
        for axes, panel in zip(panels, _PANELS, strict=True):
            for kind, style in zip(LAYER_KINDS, _STYLES, strict=True):
                _draw(axes, panel, kind, [cost for cost in costs if cost.kind == kind.name], style)
            axes.set_title(panel.title)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            lengths = sorted({cost.length for cost in costs})
            axes.set_xticks(lengths, [str(length) for length in lengths])
            axes.set_xlabel("positions n")
        handles, labels = panels[0].get_legend_handles_labels()
        handles.append(Line2D([], [], color="black", linestyle="--"))
        key.legend(handles, [*labels, "order in Table 1"], loc="center", title=f"one layer, width {costs[0].width}")
        key.set_axis_off()


def _draw(axes: Axes, panel: _Panel, kind: LayerKind, costs: Sequence[LayerCost], style: tuple[str, str, int]) -> None:
    colour, marker, size = style
    lengths = [cost.length for cost in costs]
    measured = [panel.measure(cost) for cost in costs]
    line = "-" if panel.order is None else "none"
    axes.plot(lengths, measured, color=colour, marker=marker, markersize=size, linestyle=line, label=kind.name)
    if panel.order is not None:
        orders = [panel.order(kind).at(cost.length, cost.width) for cost in costs]
        axes.plot(lengths, [order * measured[-1] / orders[-1] for order in orders], color=colour, linestyle="--")
