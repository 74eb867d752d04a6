"""What layers really cost: operations, time, operations in sequence and the path between two positions.

All four are measured, not derived: operations by PyTorch's counter, time by the clock, and the other two in the graph
that autograd records (Vaswani et al. 2017, section 4). Knows no plots; called by `dragoman attention`.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from examples.attention.computation_graph import WayCounter, is_matrix_product, node_of
from examples.attention.layer_kinds import LAYER_KINDS, LayerKind
from examples.attention.sequence_layers import HEADS, SequenceLayer

# What waits for what does not depend on the width.
GRAPH_WIDTH = 2 * HEADS
TIMED_SECONDS = 0.2
TIMED_CALLS = 5


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one layer costs for one sequence.

    Attributes:
        kind: name of the kind of layer.
        length: positions of the sequence.
        width: of a position's state.
        operations: floating-point operations in matrix products; a multiplication and an addition are two.
        tabled_operations: those of them that Table 1 of the paper counts: of attention, the products of positions with
            positions, without the projections of each position.
        seconds: the fastest of many forward passes.
        sequential: matrix products of which each needs the result of the one before: most on any way to an output.
        path: states computed one of another between the first position's input and the last position's output, through
            as many layers as it takes: fewest on any way.
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
    """Returns how many operations a layer takes for states [1, N, D], and how many of them Table 1 counts."""
    # Fused attention would hide its two products from the counter.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(states)
    total = counter.get_total_flops()
    # Attention alone multiplies positions with positions, which PyTorch does in batched products.
    between_positions = counter.get_flop_counts()["Global"].get(torch.ops.aten.bmm, 0)
    return total, between_positions or total


def count_sequential(kind: LayerKind, length: int) -> int:
    """Returns the longest chain of dependent matrix products from any input to the outputs of one layer."""
    inputs = _inputs(length)
    with sdpa_kernel(SDPBackend.MATH):
        outputs = _layer(kind, depth=0)(torch.stack(inputs)[None])
    products = WayCounter(inputs, is_matrix_product, max).count(outputs)
    if products is None:
        raise AssertionError(f"{kind.name}: no input leads to the output")
    return products


def measure_paths(kind: LayerKind, lengths: Sequence[int]) -> dict[int, int]:
    """Returns, for each of some different lengths, how many steps connect the first position with the last one.

    Layers are put on top of one another until the input of the first position reaches all the outputs asked for. A step
    leads from one state to another, be it of the layer above or of the position before.
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
    raise AssertionError("unreachable: depths do not end")


@torch.inference_mode()
def fastest_seconds(layer: SequenceLayer, states: Tensor) -> float:
    """Returns the time of the fastest of many passes of states [1, N, D]: what else runs can only slow a pass down."""
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
