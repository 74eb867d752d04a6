"""What layers cost as a Markdown table: orders of Vaswani et al. 2017, Table 1, beside what was measured.

Called by `dragoman attention`.
"""

from collections.abc import Sequence

from examples.attention.costs import LayerCost, growth
from examples.attention.layer_kinds import LAYER_KINDS, LayerKind

HEADING = (
    "layer",
    "operations, Table 1",
    "measured ∝",
    "with projections ∝",
    "time ∝",
    "sequential, Table 1",
    "measured",
    "path, Table 1",
    "measured",
)


def format_costs(costs: Sequence[LayerCost]) -> str:
    """Returns a row for each kind of layer.

    What grows with a power of the length is given as that power, between the two greatest lengths; operations in
    sequence and paths as they were counted at the least and the greatest length.
    """
    rows = [HEADING, ("---",) * len(HEADING), *(_row(kind, costs) for kind in LAYER_KINDS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(kind: LayerKind, costs: Sequence[LayerCost]) -> tuple[str, ...]:
    own = sorted((cost for cost in costs if cost.kind == kind.name), key=lambda cost: cost.length)
    return (
        kind.name,
        str(kind.operations),
        f"n^{growth(own, lambda cost: cost.tabled_operations):.2f}",
        f"n^{growth(own, lambda cost: cost.operations):.2f}",
        f"n^{growth(own, lambda cost: cost.seconds):.2f}",
        str(kind.sequential),
        f"{own[0].sequential} … {own[-1].sequential}",
        str(kind.path),
        f"{own[0].path} … {own[-1].path}",
    )
