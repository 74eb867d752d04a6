"""One decoder step as a chain of blocks, found in the graph: attention, feed-forward and recurrent updates.

What depends on the last token is the spine of the graph. A block ends where a single tensor of the spine carries all
that follows, as it does between the residual connections of a Transformer, or where the next value of a recurrent state
is known. All else, such as masks made of lengths, belongs to the first block that uses it. No architecture is known
here. `dragoman inspect` tells and draws the blocks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from export.inspect.stored_graph import Node, StoredGraph, TensorType, Weight
from serve.bundle.manifest import DECODER_INPUTS, LOGITS, StateSpec

TOKENS = DECODER_INPUTS[0]
# Without one of these, nodes are no block of their own: they normalise or rearrange what the block before has computed.
PRODUCTS = ("MatMul", "Gemm", "MatMulInteger", "com.microsoft.MatMulIntegerToFloat")
# They read no values: sizes are known before the last token is, and a block that asks a state for its size has no use
# for the state.
SIZES = ("Shape", "Size")
TITLES = {"target": "self-attention", "source": "cross-attention", "recurrent": "recurrent update"}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the step.

    Attributes:
        title: what it does.
        nodes: how many operators it is made of.
        matrices: the weights of two axes and more that it reads.
        reads: states that it takes.
        writes: states of which it computes the next value.
        carries: what goes on to the following blocks, or out as logits.
    """

    title: str
    nodes: int
    matrices: tuple[Weight, ...]
    reads: tuple[StateSpec, ...]
    writes: tuple[StateSpec, ...]
    carries: tuple[TensorType, ...]

    @property
    def form(self) -> tuple[object, ...]:
        """Equal for blocks that do the same with other weights and other states."""
        return (
            self.title,
            sorted((matrix.dtype, matrix.shape) for matrix in self.matrices),
            [state.shape for state in self.reads],
            [state.shape for state in self.writes],
            [(tensor.dtype, tensor.row_bytes) for tensor in self.carries],
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """Blocks that follow one another in the same form, as layers do.

    Attributes:
        rounds: the blocks of every round; one round if nothing is repeated.
    """

    rounds: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Nodes of a block that is being found, and the tensors that leave it."""

    nodes: list[Node]
    leaving: tuple[str, ...]

    @property
    def read(self) -> set[str]:
        return {name for node in self.nodes if node.operator not in SIZES for name in node.inputs}

    @property
    def written(self) -> set[str]:
        return {name for node in self.nodes for name in node.outputs}

    def followed_by(self, other: "_Span") -> "_Span":
        return _Span(self.nodes + other.nodes, other.leaving)


def find_blocks(graph: StoredGraph, states: Sequence[StateSpec]) -> tuple[Block, ...]:
    """Returns the blocks of a decoder graph in the order in which they are computed.

    Args:
        graph: the decoder.
        states: those of its manifest.
    """
    spans = _cut_spine(graph, {state.decoder_output for state in states if state.kind == "recurrent"})
    _attach_others(graph, spans)
    spans = _join_preparations(_join_finishes(spans, states), states)
    return tuple(_describe(span, graph, states) for span in spans)


def fold_blocks(blocks: Sequence[Block]) -> tuple[Repetition, ...]:
    """Returns blocks with those that repeat one another put together, the longest such stretch at each place."""
    folded = []
    start = 0
    while start < len(blocks):
        period, rounds = _longest_repetition(blocks[start:])
        end = start + period * rounds
        folded.append(Repetition(tuple(tuple(blocks[at : at + period]) for at in range(start, end, period))))
        start = end
    return tuple(folded)


def _longest_repetition(blocks: Sequence[Block]) -> tuple[int, int]:
    """Returns how many blocks from the first one on are repeated, and how often they are there."""
    best = (1, 1)
    for period in range(1, len(blocks) // 2 + 1):
        rounds = 1
        while _is_repeated(blocks, period, rounds):
            rounds += 1
        if rounds > 1 and period * rounds > best[0] * best[1]:
            best = (period, rounds)
    return best


def _is_repeated(blocks: Sequence[Block], period: int, rounds: int) -> bool:
    following = blocks[period * rounds : period * (rounds + 1)]
    return len(following) == period and all(
        one.form == other.form for one, other in zip(blocks, following, strict=False)
    )


def _cut_spine(graph: StoredGraph, recurrent_outputs: set[str | None]) -> list[_Span]:
    """Returns the nodes that depend on the last token, cut into spans."""
    dependent = {TOKENS}
    spine: list[Node] = []
    for node in graph.nodes:
        if node.operator not in SIZES and not dependent.isdisjoint(node.inputs):
            spine.append(node)
            dependent.update(node.outputs)
    last_use = {name: place for place, node in enumerate(spine) for name in node.inputs}
    spans: list[_Span] = []
    nodes: list[Node] = []
    live: dict[str, None] = {TOKENS: None}
    for place, node in enumerate(spine):
        nodes.append(node)
        live |= dict.fromkeys(node.outputs)
        live = {name: None for name in live if last_use.get(name, -1) > place}
        if len(live) <= 1 or not recurrent_outputs.isdisjoint(node.outputs):
            spans.append(_Span(nodes, tuple(live)))
            nodes = []
    return spans


def _attach_others(graph: StoredGraph, spans: Sequence[_Span]) -> None:
    """Gives every node beside the spine to the first span that uses its result; to the last one if none does."""
    first_use: dict[str, int] = {}
    for number, span in reversed(list(enumerate(spans))):
        first_use |= dict.fromkeys(span.read, number)
    on_spine = {name for span in spans for name in span.written}
    for node in reversed(graph.nodes):
        if on_spine.isdisjoint(node.outputs):
            number = min(first_use.get(name, len(spans) - 1) for name in node.outputs)
            spans[number].nodes.insert(0, node)
            for name in node.inputs:
                first_use[name] = min(number, first_use.get(name, number))


def _join_finishes(spans: Iterable[_Span], states: Sequence[StateSpec]) -> list[_Span]:
    """Joins what has neither a product nor a state, such as a normalisation, to what it comes after."""
    inputs = {state.decoder_input for state in states}
    joined: list[_Span] = []
    for span in spans:
        stands_alone = not inputs.isdisjoint(span.read) or any(node.operator in PRODUCTS for node in span.nodes)
        joined.append(span if stands_alone or not joined else joined.pop().followed_by(span))
    return joined


def _join_preparations(spans: Iterable[_Span], states: Sequence[StateSpec]) -> list[_Span]:
    """Joins a recurrent update to the products that prepare it."""
    recurrent = {state.decoder_input for state in states if state.kind == "recurrent"}
    more_than_preparation = {TOKENS, *(state.decoder_input for state in states if state.kind != "recurrent")}
    outputs = {state.decoder_output for state in states}
    joined: list[_Span] = []
    for span in spans:
        whole = span
        while joined and not recurrent.isdisjoint(whole.read):
            if not more_than_preparation.isdisjoint(joined[-1].read) or not outputs.isdisjoint(joined[-1].written):
                break
            whole = joined.pop().followed_by(whole)
        joined.append(whole)
    return joined


def _describe(span: _Span, graph: StoredGraph, states: Sequence[StateSpec]) -> Block:
    read, written = span.read, span.written
    reads = tuple(state for state in states if state.decoder_input in read)
    # A source that an operator gives back has not changed.
    writes = tuple(state for state in states if state.decoder_output in written and state.kind != "source")
    leaving = (*span.leaving, *(name for name in (LOGITS,) if name in written))
    weights = [weight for name, weight in graph.weights.items() if name in read and weight.is_parameter]
    return Block(
        title=_title(reads, writes, has_tokens=TOKENS in read, has_logits=LOGITS in written),
        nodes=len(span.nodes),
        matrices=tuple(weight for weight in weights if len(weight.shape) > 1),
        reads=reads,
        writes=writes,
        carries=tuple(graph.tensors[name] for name in leaving if name in graph.tensors),
    )


def _title(reads: Sequence[StateSpec], writes: Sequence[StateSpec], *, has_tokens: bool, has_logits: bool) -> str:
    kinds = dict.fromkeys([*(s.kind for s in reads if s.kind != "recurrent"), *(s.kind for s in writes)])
    titles = [TITLES[kind] for kind in kinds]
    if has_tokens:
        titles.insert(0, "embedding")
    if has_logits:
        titles.append("projection")
    return ", ".join(titles) or "feed-forward"
