"""What the decoder remembers of every row, in the memory of a device: written, copied and resized there.

States of one shape make a block [N, rows, *shape] without gaps, so that a step binds the first rows of each tensor as
a view, and a row is copied in all N at once. The source states are laid out for a capacity that is changed when longer
or only shorter sources run: CUDA's cross-attention reads all of it. Knows neither sequences nor sessions; on the host,
`serve.runtime.kv_cache` does this.

Shapes: H, W and so on are a state's own; C source capacity, E rows that are encoded together.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import StateSpec
from serve.runtime.cuda.device import ELEMENT_BYTES, FLOAT, WORD_BYTES, DeviceTools, Memory, View

# Rows that are copied by one run, which holds them in between: it bounds the memory that this takes.
COPIED_ROWS = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """How N states of one shape lie behind each other.

    Attributes:
        specs: the states.
        element: type of their elements, as ONNX numbers them.
        rows: of each state.
        shape: of one row of one state.
    """

    specs: tuple[StateSpec, ...]
    element: int
    rows: int
    shape: tuple[int, ...]

    @property
    def row_words(self) -> int:
        """Size of one row of one state."""
        return prod(self.shape) * ELEMENT_BYTES[self.element] // WORD_BYTES

    @property
    def words(self) -> int:
        """Size of all."""
        return len(self.specs) * self.rows * self.row_words

    def state(self, memory: Memory, number: int, rows: int) -> View:
        """Returns the first rows of one of the states."""
        return memory.view(self.element, (rows, *self.shape), number * self.rows * self.row_words)

    def matrix(self, memory: Memory) -> View:
        """Returns the rows of all states, one below the other, [N * rows, words]."""
        return memory.view(FLOAT, (len(self.specs) * self.rows, self.row_words))

    def matrix_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns where some rows, int64 [M], are in that matrix, for all states, int64 [N * M]."""
        return (np.arange(len(self.specs))[:, np.newaxis] * self.rows + rows).ravel()

    def with_capacity(self, capacity: int) -> "Layout":
        """Returns the layout with another number in place of the named length."""
        shape = tuple(
            capacity if isinstance(name, str) else size
            for name, size in zip(self.specs[0].shape, self.shape, strict=True)
        )
        return Layout(self.specs, self.element, self.rows, shape)

    def with_rows(self, rows: int) -> "Layout":
        """Returns the layout of so many rows."""
        return Layout(self.specs, self.element, rows, self.shape)


@dataclass(slots=True)
class _Block:
    """Memory and how it is laid out now."""

    memory: Memory
    layout: Layout


@dataclass(slots=True)
class _SourceBlock(_Block):
    """Memory of source states, and what it takes to fill and to resize them.

    Attributes:
        encoded: what the encoder writes.
        spare: room for one state.
    """

    encoded: Memory
    spare: Memory


class DeviceState:
    """The state of one engine's rows.

    Attributes:
        source_capacity: the most source tokens of any row, as the state is laid out now.
    """

    def __init__(
        self,
        specs: Sequence[StateSpec],
        tools: DeviceTools,
        *,
        element: int,
        rows: int,
        encoder_rows: int,
        max_source_tokens: int,
        max_target_tokens: int,
    ) -> None:
        """Allocates it; the source capacity is the largest.

        Args:
            specs: of the bundle; none is recurrent.
            tools: of the device.
            element: type of the states, as ONNX numbers them.
            rows: how many have a state.
            encoder_rows: the most that are encoded together.
            max_source_tokens: the most source tokens of a row.
            max_target_tokens: the most target tokens of a row.
        """
        self._tools = tools
        self.source_capacity = max_source_tokens
        lengths = {"source": max_source_tokens, "target": max_target_tokens}
        self._source: list[_SourceBlock] = []
        self._target: list[_Block] = []
        for layout in layouts(specs, element, rows, lengths):
            memory = tools.allocate(layout.words)
            if layout.specs[0].kind == "source":
                encoded = tools.allocate(layout.with_rows(encoder_rows).words)
                spare = tools.allocate(layout.rows * layout.row_words)
                self._source.append(_SourceBlock(memory, layout, encoded, spare))
            else:
                self._target.append(_Block(memory, layout))

    def inputs(self, rows: int) -> dict[str, View]:
        """Returns what the decoder reads of the first rows, by the names of its inputs."""
        blocks = (*self._source, *self._target)
        return {spec.decoder_input: view for block in blocks for spec, view in _states(block, rows)}

    def outputs(self, rows: int) -> dict[str, View]:
        """Returns what the decoder writes, by the names of its outputs: in place."""
        return {
            spec.decoder_output: view
            for block in self._target
            for spec, view in _states(block, rows)
            if spec.decoder_output is not None
        }

    def encoded(self, rows: int) -> dict[str, View]:
        """Returns where the encoder writes so many rows, by the names of its outputs, each [E, *shape]."""
        return {
            spec.name: view
            for block in self._source
            for spec, view in _states(_Block(block.encoded, block.layout.with_rows(rows)), rows)
        }

    def write(self, rows: NDArray[np.int64], encoded_rows: int) -> None:
        """Copies what the encoder wrote to where it belongs.

        Args:
            rows: the row of each of the first M sources, int64 [M].
            encoded_rows: how many the encoder wrote, E.
        """
        for block in self._source:
            encoded = block.layout.with_rows(encoded_rows)
            self._tools.copy(
                encoded.matrix(block.encoded),
                block.layout.matrix(block.memory),
                encoded.matrix_rows(np.arange(len(rows))),
                block.layout.matrix_rows(rows),
            )

    def copy(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies rows over others, int64 [M] each; no row is a source and a target."""
        for block in (*self._source, *self._target):
            self._copy(block, sources, targets)

    def branch(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies what the decoder has written between rows of the same source."""
        for block in self._target:
            self._copy(block, sources, targets)

    def resize(self, capacity: int) -> None:
        """Lays the source states out for another capacity, which every row's source must fit into.

        State by state, from that end at which no state is overwritten before its turn.
        """
        for block in self._source:
            before, after = block.layout, block.layout.with_capacity(capacity)
            numbers = range(len(before.specs))
            room = _as_words(after.state(block.spare, 0, after.rows))
            for number in numbers if capacity < self.source_capacity else reversed(numbers):
                self._tools.change_capacity(_as_words(before.state(block.memory, number, before.rows)), room)
                self._tools.change_capacity(room, _as_words(after.state(block.memory, number, after.rows)))
            block.layout = after
        self.source_capacity = capacity

    def _copy(self, block: _Block, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        matrix, layout = block.layout.matrix(block.memory), block.layout
        for first in range(0, len(sources), COPIED_ROWS):
            part = slice(first, first + COPIED_ROWS)
            self._tools.copy(matrix, matrix, layout.matrix_rows(sources[part]), layout.matrix_rows(targets[part]))


def layouts(specs: Sequence[StateSpec], element: int, rows: int, lengths: dict[str, int]) -> list[Layout]:
    """Returns a layout for each shape among the states.

    Args:
        specs: the states.
        element: type of their elements.
        rows: how many have a state.
        lengths: the numbers of the named lengths.
    """
    alike = defaultdict[tuple[int | str, ...], list[StateSpec]](list)
    for spec in specs:
        alike[spec.shape].append(spec)
    return [
        Layout(tuple(members), element, rows, tuple(lengths[size] if isinstance(size, str) else size for size in shape))
        for shape, members in alike.items()
    ]


def _states(block: _Block, rows: int) -> Iterator[tuple[StateSpec, View]]:
    for number, spec in enumerate(block.layout.specs):
        yield spec, block.layout.state(block.memory, number, rows)


def _as_words(view: View) -> View:
    """Returns [R, H, C, D] as [R, H, C, words]."""
    size = view.shape[-1] * ELEMENT_BYTES[view.element] // WORD_BYTES
    return View(view.pointer, FLOAT, (*view.shape[:-1], size))
