"""What Vaswani et al. 2017 say of each kind of layer, Table 1, as functions of the sequence length and the width.

`examples.attention.costs` measures the layers, `examples.attention.cost_plots` draws both. The orders leave a factor
open.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from examples.attention.sequence_layers import (
    KERNEL,
    WINDOW,
    Convolution,
    LocalSelfAttention,
    Recurrent,
    SelfAttention,
    SequenceLayer,
)


@dataclass(frozen=True, slots=True)
class Order:
    """An order of growth.

    Attributes:
        formula: as in the paper: n positions, width d, kernel k, window r.
        at: its value for a length and a width.
    """

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
        name: what it is called in plots and tables.
        build: makes the layer of a width that has so many layers below it.
        operations: per layer.
        sequential: operations that cannot run at once.
        path: from one position to another, through as many layers as it takes.
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
