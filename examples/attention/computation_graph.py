"""How far apart two tensors are in the graph that autograd has recorded: what lies on the ways from one to the other.

Two operations can run at once unless one needs the other's result, so the longest way is what no hardware can shorten.
The shortest way is the one that a signal, or its gradient, has to travel. Knows no layers;
`examples.attention.costs` measures with it.
"""

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

_PRODUCTS = frozenset(f"{name}Backward0" for name in ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution"))


def node_of(tensor: Tensor) -> Node:
    """Returns the node that computed a tensor, or that stands for it if nothing did. It requires a gradient."""
    return get_gradient_edge(tensor).node


def is_matrix_product(node: Node) -> bool:
    """Tells whether a node multiplies matrices; a convolution is such a product too."""
    return node.name() in _PRODUCTS


class WayCounter:
    """Counts nodes on the shortest or longest way from any of some inputs to whatever has been computed of them.

    It remembers the nodes that it has seen: counting again, after more has been computed, visits the new ones alone.
    """

    def __init__(
        self, inputs: Iterable[Tensor], is_counted: Callable[[Node], bool], choose: Callable[[list[int]], int]
    ) -> None:
        """Starts at the inputs.

        Args:
            inputs: each requires a gradient.
            is_counted: tells which nodes on a way count.
            choose: `min` for the shortest way, `max` for the longest.
        """
        self._is_counted = is_counted
        self._choose = choose
        self._counts: dict[Node, int | None] = {node_of(tensor): 0 for tensor in inputs}

    def count(self, output: Tensor) -> int | None:
        """Returns how many nodes count on the way to an output, its own included; None if no way leads there."""
        root = node_of(output)
        # Not recursive, because the graph of a recurrent layer is deeper than Python's stack.
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
