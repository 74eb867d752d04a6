"""The measured costs of the layers in Vaswani et al. 2017, Table 1: operations, time, sequential operations, paths.

Layers that see only some positions look back, as a decoder must. The orders of the paper leave a factor open: a drawn
order passes through the last measurement. Shapes: N positions, D width, H heads, W positions in a window.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.lines import Line2D
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from dragoman.model.markup_table import markup_table
from dragoman.model.network.attention import MultiHeadAttention
from dragoman.model.provenance import drawing

HEADS = 4
KERNEL = 3
WINDOW = 16
# Dependencies do not depend on the width.
GRAPH_WIDTH = 2 * HEADS
TIMED_SECONDS = 0.2
TIMED_CALLS = 5
PRODUCTS = frozenset(f"{name}Backward0" for name in ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution"))


class SelfAttention(nn.Module):
    """Every position attends to all positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, HEADS)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [1, N, D] to [1, N, D]."""
        queries, keys, values = self.project(states)
        return self.merge(functional.scaled_dot_product_attention(queries, keys, values))

    def project(self, states: Tensor) -> list[Tensor]:
        """Returns queries, keys and values, each [1, H, N, D / H]."""
        parts = (self.attention.query, self.attention.key, self.attention.value)
        return [self.attention.split_heads(part(states)) for part in parts]

    def merge(self, heads: Tensor) -> Tensor:
        """Maps the outputs of the heads, [1, H, N, D / H], to [1, N, D]."""
        merged: Tensor = self.attention.output(heads.transpose(1, 2).flatten(start_dim=2))
        return merged


class LocalSelfAttention(SelfAttention):
    """Every position attends to a window: itself and the positions just before it."""

    def forward(self, states: Tensor) -> Tensor:
        """Maps [1, N, D] to [1, N, D]."""
        queries, *others = self.project(states)
        # [1, H, N, D / H] -> [1, H, N, W, D / H], zeros before the first position
        keys, values = (functional.pad(other, (0, 0, WINDOW - 1, 0)).unfold(2, WINDOW, 1).mT for other in others)
        exists = torch.arange(states.shape[1])[:, None] + torch.arange(WINDOW) >= WINDOW - 1  # [N, W]
        heads = functional.scaled_dot_product_attention(queries[:, :, :, None], keys, values, exists[:, None])
        return self.merge(heads[:, :, :, 0])


class Recurrent(nn.Module):
    """Gated recurrent units: every position depends on its input and the previous position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [1, N, D] to [1, N, D]."""
        outputs: Tensor = self.gru(states)[0]
        return outputs


class Convolution(nn.Module):
    """Every position depends on KERNEL positions, `dilation` apart."""

    def __init__(self, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.reach = (KERNEL - 1) * dilation
        self.convolution = nn.Conv1d(width, width, KERNEL, dilation=dilation)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [1, N, D] to [1, N, D]."""
        outputs: Tensor = self.convolution(functional.pad(states.mT, (self.reach, 0)))
        return outputs.mT


class Order(NamedTuple):
    """An order of growth with its value for a length and a width; n positions, width d, kernel k, window r."""

    formula: str
    at: Callable[[int, int], float]

    def __str__(self) -> str:
        return f"O({self.formula})"


class LayerKind(NamedTuple):
    """A row of Table 1: orders per layer; `build` returns a layer of a width on top of a number of layers."""

    name: str
    build: Callable[[int, int], nn.Module]
    operations: Order
    sequential: Order
    path: Order


CONSTANT = Order("1", lambda _n, _d: 1)
LINEAR = Order("n", lambda n, _d: n)
CONVOLVED = Order("k n d²", lambda n, d: KERNEL * n * d**2)
LAYER_KINDS = (
    LayerKind(
        "self-attention", lambda d, _: SelfAttention(d), Order("n² d", lambda n, d: n**2 * d), CONSTANT, CONSTANT
    ),
    LayerKind("recurrent", lambda d, _: Recurrent(d), Order("n d²", lambda n, d: n * d**2), LINEAR, LINEAR),
    LayerKind(
        "convolution", lambda d, _: Convolution(d), CONVOLVED, CONSTANT, Order("n / k", lambda n, _d: n / KERNEL)
    ),
    LayerKind(
        "dilated convolution",
        lambda d, depth: Convolution(d, dilation=KERNEL**depth),
        CONVOLVED,
        CONSTANT,
        Order("log_k n", lambda n, _d: math.log(n, KERNEL)),
    ),
    LayerKind(
        "local self-attention",
        lambda d, _: LocalSelfAttention(d),
        Order("r n d", lambda n, d: WINDOW * n * d),
        CONSTANT,
        Order("n / r", lambda n, _d: n / WINDOW),
    ),
)


@dataclass(frozen=True, slots=True)
class LayerCost:
    """The cost of one layer for one sequence.

    Attributes:
        operations: floating-point operations in matrix products; a multiplication and an addition are two.
        tabled_operations: those that Table 1 counts: for attention, the products between positions, without the
            projections of each position.
        seconds: fastest of many forward passes.
        sequential: matrix products on the longest chain of dependent operations.
        path: states between the first input and the last output, through as many layers as needed.
    """

    kind: str
    length: int
    width: int
    operations: int
    tabled_operations: int
    seconds: float
    sequential: int
    path: int


def measure_layers(lengths: Sequence[int], width: int) -> Iterator[LayerCost]:
    """Yields the cost of every kind of layer at every length."""
    for kind in LAYER_KINDS:
        layer = kind.build(width, 0).requires_grad_(requires_grad=False)
        for length in lengths:
            states = torch.randn(1, length, width)
            operations, tabled = count_operations(layer, states)
            seconds = fastest_seconds(layer, states)
            chain, path = count_sequential(kind, length), count_path(kind, length)
            yield LayerCost(kind.name, length, width, operations, tabled, seconds, chain, path)


def count_operations(layer: nn.Module, states: Tensor) -> tuple[int, int]:
    """Returns the operations of a layer for states [1, N, D], and those of them that Table 1 counts."""
    # The counter does not see the two products of fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(states)
    total = counter.get_total_flops()
    # Only attention multiplies positions by positions, in batched products.
    between_positions = counter.get_flop_counts()["Global"].get(torch.ops.aten.bmm, 0)
    return total, between_positions or total


def count_sequential(kind: LayerKind, length: int) -> int:
    """Returns the matrix products on the longest chain from any input to the outputs of one layer.

    The chain bounds the time on any hardware: two operations can run concurrently unless one needs the other's result.
    """
    layer = kind.build(GRAPH_WIDTH, 0).requires_grad_(requires_grad=False)
    with sdpa_kernel(SDPBackend.MATH):
        outputs = layer(torch.randn(1, length, GRAPH_WIDTH, requires_grad=True))
    root = get_gradient_edge(outputs).node
    chains: dict[Node, int] = {}
    # Iterative: the graph of a recurrent layer is deeper than Python's stack.
    waiting = [root]
    while waiting:
        operands = [operand for operand, _ in waiting[-1].next_functions if operand is not None]
        if unknown := [operand for operand in operands if operand not in chains]:
            waiting += unknown
            continue
        node = waiting.pop()
        chains[node] = max((chains[operand] for operand in operands), default=0) + (node.name() in PRODUCTS)
    return chains[root]


def count_path(kind: LayerKind, length: int) -> int:
    """Returns the number of states between the first input and the last output.

    A NaN as the first input spreads to exactly the outputs that depend on it. A layer that connects all positions by
    dependent steps, each a matrix product, has one state per step.
    """
    if kind.sequential is LINEAR:
        return count_sequential(kind, length)
    states = torch.randn(1, length, GRAPH_WIDTH)
    states[:, 0] = math.nan
    for layers in count(1):
        states = kind.build(GRAPH_WIDTH, layers - 1).requires_grad_(requires_grad=False)(states)
        if states[0, -1].isnan().any():
            return layers
    raise AssertionError("unreachable: the number of layers is infinite")


@torch.inference_mode()
def fastest_seconds(layer: nn.Module, states: Tensor) -> float:
    """Returns the time of the fastest of many passes of states [1, N, D]: other load only slows a pass down."""
    seconds: list[float] = []
    while len(seconds) < TIMED_CALLS or sum(seconds) < TIMED_SECONDS:
        before = time.perf_counter()
        layer(states)
        seconds.append(time.perf_counter() - before)
    return min(seconds)


def growth(costs: Sequence[LayerCost], measure: Callable[[LayerCost], float]) -> float:
    """Returns the power of the length with which a measure grows between the two greatest lengths."""
    shorter, longer = sorted(costs, key=lambda cost: cost.length)[-2:]
    return math.log(measure(longer) / measure(shorter)) / math.log(longer.length / shorter.length)


# Color, marker and marker size of each kind: coinciding points stay visible.
_STYLES = (("C0", "o", 8), ("C3", "s", 5), ("C2", "^", 9), ("C1", "v", 4), ("C4", "D", 4))
# Title, measure, and order in Table 1.
_PANELS: tuple[tuple[str, Callable[[LayerCost], float], Callable[[LayerKind], Order] | None], ...] = (
    ("operations counted by Table 1", lambda cost: cost.tabled_operations, lambda kind: kind.operations),
    ("all operations, projections included", lambda cost: cost.operations, None),
    ("seconds of a forward pass", lambda cost: cost.seconds, None),
    ("sequential operations", lambda cost: cost.sequential, lambda kind: kind.sequential),
    ("path length, states", lambda cost: cost.path, lambda kind: kind.path),
)


def draw_costs(costs: Sequence[LayerCost], path: Path) -> None:
    """Draws operations, time, sequential operations and path length over the length of the sequence."""
    with drawing(path, (11.0, 6.4)) as figure:
        *panels, key = figure.subplots(2, 3).flat
        for axes, (title, measure, order) in zip(panels, _PANELS, strict=True):
            for kind, (color, marker, size) in zip(LAYER_KINDS, _STYLES, strict=True):
                own = [cost for cost in costs if cost.kind == kind.name]
                x, y, line = [cost.length for cost in own], [measure(cost) for cost in own], "none" if order else "-"
                axes.plot(x, y, color=color, marker=marker, markersize=size, linestyle=line, label=kind.name)
                if order:
                    expected = [order(kind).at(cost.length, cost.width) for cost in own]
                    axes.plot(x, [item * y[-1] / expected[-1] for item in expected], color=color, linestyle="--")
            lengths = sorted({cost.length for cost in costs})
            axes.set(title=title, xscale="log", yscale="log", xlabel="positions n")
            axes.set_xticks(lengths, [str(length) for length in lengths])
            axes.minorticks_off()
        handles, labels = panels[0].get_legend_handles_labels()
        handles.append(Line2D([], [], color="black", linestyle="--"))
        key.legend(handles, [*labels, "order in Table 1"], loc="center", title=f"one layer, width {costs[0].width}")
        key.set_axis_off()


def format_costs(costs: Sequence[LayerCost]) -> str:
    """Returns two Markdown tables with a row per kind of layer: operations and time, chains and paths.

    n^p is the power of growth between the two greatest lengths; a ... b are counts at the least and greatest length.
    """
    operations, chains = [], []
    for kind in LAYER_KINDS:
        own = sorted((cost for cost in costs if cost.kind == kind.name), key=lambda cost: cost.length)
        powers = [f"n^{growth(own, measure):.2f}" for _, measure, _ in _PANELS[:3]]
        operations.append([kind.name, str(kind.operations), *powers])
        sequential = f"{own[0].sequential} ... {own[-1].sequential}"
        path = f"{own[0].path} ... {own[-1].path}"
        chains.append([kind.name, str(kind.sequential), sequential, str(kind.path), path])
    return "\n\n".join(
        (
            markup_table(("layer", "operations, Table 1", "measured", "with projections", "time"), operations),
            markup_table(("layer", "sequential, Table 1", "measured", "path, Table 1", "measured"), chains),
        )
    )
