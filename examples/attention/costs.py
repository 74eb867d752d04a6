"""The measured costs of the layers in Vaswani et al. 2017, Table 1: operations, time, sequential operations, paths.

PyTorch counts the operations; the last two come from the graph that autograd records. Two operations can run
concurrently unless one needs the result of the other, so the longest path bounds the time on any hardware. The shortest
path is that of a signal or its gradient. Layers that see only some positions look back, as a decoder must. The orders
of the paper leave a factor open: a drawn order passes through the last measurement.

Shapes: B rows, N positions, D width, H heads, W positions in a window.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model.network.attention import MultiHeadAttention
from model.provenance import drawing

_PRODUCTS = frozenset(f"{name}Backward0" for name in ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution"))


def node_of(tensor: Tensor) -> Node:
    """Returns the autograd node of a tensor that requires a gradient."""
    return get_gradient_edge(tensor).node


def is_matrix_product(node: Node) -> bool:
    """Returns whether a node multiplies matrices; a convolution does too."""
    return node.name() in _PRODUCTS


class WayCounter:
    """Counts nodes on the shortest or longest path from some inputs to any tensor computed from them.

    It caches the nodes it has visited: a later count visits only new ones.
    """

    def __init__(
        self, inputs: Iterable[Tensor], is_counted: Callable[[Node], bool], choose: Callable[[list[int]], int]
    ) -> None:
        """Starts at inputs that require a gradient; `choose` is `min` for the shortest path, `max` for the longest."""
        self._is_counted = is_counted
        self._choose = choose
        self._counts: dict[Node, int | None] = {node_of(tensor): 0 for tensor in inputs}

    def count(self, output: Tensor) -> int | None:
        """Returns the number of counted nodes on the path, that of the output included; None if there is no path."""
        root = node_of(output)
        # Iterative: the graph of a recurrent layer is deeper than Python's stack.
        waiting = [root]
        while waiting:
            node = waiting[-1]
            operands = [operand for operand, _ in node.next_functions if operand is not None]
            unknown = [] if node in self._counts else [operand for operand in operands if operand not in self._counts]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            if node not in self._counts:
                self._counts[node] = self._count_at(node, operands)
        return self._counts[root]

    def _count_at(self, node: Node, operands: list[Node]) -> int | None:
        counts = [count for operand in operands if (count := self._counts[operand]) is not None]
        return self._choose(counts) + self._is_counted(node) if counts else None


HEADS = 4
KERNEL = 3
WINDOW = 16


class SequenceLayer(nn.Module, ABC):
    """A layer in two equivalent forms."""

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D] at full speed."""

    @abstractmethod
    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D], each computed only from the inputs it depends on."""


class SelfAttention(SequenceLayer):
    """Every position attends to all positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, HEADS)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        heads = functional.scaled_dot_product_attention(*self.project(states))
        return self.merge(heads)

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]; each depends on all."""
        return list(self(torch.stack(list(states))[None])[0].unbind())

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries, keys and values of states [B, N, D], each [B, H, N, D / H]."""
        attention = self.attention
        queries, keys, values = attention.query(states), attention.key(states), attention.value(states)
        return attention.split_heads(queries), attention.split_heads(keys), attention.split_heads(values)

    def merge(self, heads: Tensor) -> Tensor:
        """Maps the outputs of the heads, [B, H, N, D / H], to [B, N, D]."""
        merged: Tensor = self.attention.output(heads.transpose(1, 2).flatten(start_dim=2))
        return merged


class LocalSelfAttention(SelfAttention):
    """Every position attends to a window: itself and the positions just before it."""

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        queries, keys, values = self.project(states)
        positions = torch.arange(states.shape[1], device=states.device)
        slots = torch.arange(WINDOW, device=states.device)
        exists = positions[:, None] + slots >= WINDOW - 1  # [N, W]: False before the first position
        heads = functional.scaled_dot_product_attention(
            queries[:, :, :, None], look_back(keys), look_back(values), attn_mask=exists[:, None]
        )
        return self.merge(heads[:, :, :, 0])

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]; each depends on W."""
        windows = (torch.stack(list(states[max(0, end - WINDOW) : end])) for end in range(1, len(states) + 1))
        return [self(window[None])[0, -1] for window in windows]


def look_back(states: Tensor) -> Tensor:
    """Returns the window of each position, [B, H, N, D] -> [B, H, N, W, D], zeros before the first position."""
    return functional.pad(states, (0, 0, WINDOW - 1, 0)).unfold(2, WINDOW, 1).transpose(-1, -2)


class Recurrent(SequenceLayer):
    """Gated recurrent units: every position depends on its input and the previous position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        outputs: Tensor = self.gru(states)[0]
        return outputs

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]; each depends on its input and the previous state."""
        input_weight, hidden_weight, input_bias, hidden_bias = self.gru.all_weights[0]
        outputs: list[Tensor] = []
        for state in states:
            before = outputs[-1] if outputs else torch.zeros_like(state)
            following = torch.gru_cell(state[None], before[None], input_weight, hidden_weight, input_bias, hidden_bias)
            outputs.append(following[0])
        return outputs


class Convolution(SequenceLayer):
    """Every position depends on KERNEL positions, `dilation` apart."""

    def __init__(self, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.convolution = nn.Conv1d(width, width, KERNEL, dilation=dilation)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        padded = functional.pad(states.transpose(1, 2), ((KERNEL - 1) * self.dilation, 0))
        outputs: Tensor = self.convolution(padded)
        return outputs.transpose(1, 2)

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]; each depends on KERNEL."""
        before = [torch.zeros_like(states[0])] * ((KERNEL - 1) * self.dilation)
        padded = [*before, *states]
        kernels = (padded[end - len(before) : end + 1 : self.dilation] for end in range(len(before), len(padded)))
        weight, bias = self.convolution.weight, self.convolution.bias
        return [functional.conv1d(torch.stack(kernel, dim=-1)[None], weight, bias)[0, :, 0] for kernel in kernels]


@dataclass(frozen=True, slots=True)
class Order:
    """An order of growth with its value for a length and a width; n positions, width d, kernel k, window r."""

    formula: str
    at: Callable[[int, int], float]

    def __str__(self) -> str:
        return f"O({self.formula})"


CONSTANT = Order("1", lambda _length, _width: 1)
LINEAR = Order("n", lambda length, _width: length)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A row of Table 1.

    Attributes:
        build: builds a layer of a width on top of a number of layers.
        operations: per layer.
        sequential: operations that cannot run concurrently.
        path: between two positions, through as many layers as needed.
    """

    name: str
    build: Callable[[int, int], SequenceLayer]
    operations: Order
    sequential: Order
    path: Order


_CONVOLVED = Order("k n d²", lambda length, width: KERNEL * length * width**2)

LAYER_KINDS = (
    LayerKind(
        "self-attention",
        lambda width, _depth: SelfAttention(width),
        Order("n² d", lambda length, width: length**2 * width),
        CONSTANT,
        CONSTANT,
    ),
    LayerKind(
        "recurrent",
        lambda width, _depth: Recurrent(width),
        Order("n d²", lambda length, width: length * width**2),
        LINEAR,
        LINEAR,
    ),
    LayerKind(
        "convolution",
        lambda width, _depth: Convolution(width),
        _CONVOLVED,
        CONSTANT,
        Order("n / k", lambda length, _width: length / KERNEL),
    ),
    LayerKind(
        "dilated convolution",
        lambda width, depth: Convolution(width, dilation=KERNEL**depth),
        _CONVOLVED,
        CONSTANT,
        Order("log_k n", lambda length, _width: math.log(length, KERNEL)),
    ),
    LayerKind(
        "local self-attention",
        lambda width, _depth: LocalSelfAttention(width),
        Order("r n d", lambda length, width: WINDOW * length * width),
        CONSTANT,
        Order("n / r", lambda length, _width: length / WINDOW),
    ),
)


# Dependencies do not depend on the width.
GRAPH_WIDTH = 2 * HEADS
TIMED_SECONDS = 0.2
TIMED_CALLS = 5


@dataclass(frozen=True, slots=True)
class LayerCost:
    """The cost of one layer for one sequence.

    Attributes:
        operations: floating-point operations in matrix products; a multiplication and an addition are two.
        tabled_operations: those that Table 1 counts: for attention, the products between positions, without the
            projections of each position.
        seconds: fastest of many forward passes.
        sequential: dependent matrix products on the longest path from an input to an output.
        path: states on the shortest path from the first input to the last output, through as many layers as needed.
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
        paths = measure_paths(kind, lengths)
        layer = kind.build(width, 0).eval()
        for length in lengths:
            states = torch.randn(1, length, width)
            operations, tabled = count_operations(layer, states)
            seconds = fastest_seconds(layer, states)
            sequential = count_sequential(kind, length)
            yield LayerCost(kind.name, length, width, operations, tabled, seconds, sequential, paths[length])


def count_operations(layer: SequenceLayer, states: Tensor) -> tuple[int, int]:
    """Returns the operations of a layer for states [1, N, D], and those of them that Table 1 counts."""
    # The counter does not see the two products of fused attention.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(states)
    total = counter.get_total_flops()
    # Only attention multiplies positions by positions, in batched products.
    between_positions = counter.get_flop_counts()["Global"].get(torch.ops.aten.bmm, 0)
    return total, between_positions or total


def count_sequential(kind: LayerKind, length: int) -> int:
    """Returns the longest chain of dependent matrix products from any input to the outputs of one layer."""
    inputs = _inputs(length)
    with sdpa_kernel(SDPBackend.MATH):
        outputs = _layer(kind, depth=0)(torch.stack(inputs)[None])
    products = WayCounter(inputs, is_matrix_product, max).count(outputs)
    if products is None:
        raise AssertionError(f"{kind.name}: expected a path from an input to the output")
    return products


def measure_paths(kind: LayerKind, lengths: Sequence[int]) -> dict[int, int]:
    """Returns the number of steps from the first position to the last one, for each of some different lengths.

    Layers are stacked until the first input reaches all requested outputs. A step leads from one state to another, of
    the layer above or of the previous position.
    """
    states = _inputs(max(lengths))
    reached: set[Node] = set()
    counter = WayCounter(states[:1], reached.__contains__, min)
    paths: dict[int, int] = {}
    for depth in count():
        states = _layer(kind, depth).unroll(states)
        reached.update(map(node_of, states))
        for length in lengths:
            path = counter.count(states[length - 1])
            if length not in paths and path is not None:
                paths[length] = path
        if len(paths) == len(lengths):
            return paths
    raise AssertionError("unreachable: depths are infinite")


@torch.inference_mode()
def fastest_seconds(layer: SequenceLayer, states: Tensor) -> float:
    """Returns the time of the fastest of many passes of states [1, N, D]: other load only slows a pass down."""
    fastest = math.inf
    passes, started = 0, time.perf_counter()
    while passes < TIMED_CALLS or time.perf_counter() - started < TIMED_SECONDS:
        before = time.perf_counter()
        layer(states)
        fastest = min(fastest, time.perf_counter() - before)
        passes += 1
    return fastest


def growth(costs: Sequence[LayerCost], measure: Callable[[LayerCost], float]) -> float:
    """Returns the power of the length with which a measure grows between the two greatest lengths."""
    shorter, longer = sorted(costs, key=lambda cost: cost.length)[-2:]
    return math.log(measure(longer) / measure(shorter)) / math.log(longer.length / shorter.length)


def _inputs(length: int) -> list[Tensor]:
    return [torch.randn(GRAPH_WIDTH, requires_grad=True) for _ in range(length)]


def _layer(kind: LayerKind, depth: int) -> SequenceLayer:
    return kind.build(GRAPH_WIDTH, depth).requires_grad_(requires_grad=False)


# Color, marker and marker size of each kind: coinciding points stay visible.
_STYLES = (("C0", "o", 8), ("C3", "s", 5), ("C2", "^", 9), ("C1", "v", 4), ("C4", "D", 4))


@dataclass(frozen=True, slots=True)
class _Panel:
    """A measure over the length, and its order in Table 1 if any."""

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
    """Draws operations, time, sequential operations and path length over the length of the sequence."""
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
    color, marker, size = style
    lengths = [cost.length for cost in costs]
    measured = [panel.measure(cost) for cost in costs]
    line = "-" if panel.order is None else "none"
    axes.plot(lengths, measured, color=color, marker=marker, markersize=size, linestyle=line, label=kind.name)
    if panel.order is not None:
        orders = [panel.order(kind).at(cost.length, cost.width) for cost in costs]
        axes.plot(lengths, [order * measured[-1] / orders[-1] for order in orders], color=color, linestyle="--")


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
    """Returns a Markdown table with a row per kind of layer.

    Operations and time are given as a power of the length, between the two greatest lengths; sequential operations and
    paths as counted at the least and the greatest length.
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
