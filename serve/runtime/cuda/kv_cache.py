"""The KV cache of one engine in device memory: written, copied and resized there.

States of one shape form a block [N, rows, *shape] without gaps. A step binds the first rows of each state as a view,
and a row is copied in all N states at once. CUDA's cross-attention reads the whole source capacity, which therefore
follows the longest running source. `dragoman.serve.runtime.decoder_state` is the counterpart on the host.

Shapes: H, W and so on are a state's own; C source capacity, E rows that are encoded together.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.manifest import StateSpec
from dragoman.serve.runtime.cuda.device import ELEMENT_BYTES, FLOAT, WORD_BYTES, DeviceTools, Memory, View

# Rows per copy run. A run buffers its rows, so this bounds its memory.
COPIED_ROWS = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """Memory layout of N contiguous states, each of some rows of one shape, with an ONNX element type."""

    specs: tuple[StateSpec, ...]
    element: int
    rows: int
    shape: tuple[int, ...]

    @property
    def row_words(self) -> int:
        """Size of one row of one state, in words."""
        return prod(self.shape) * ELEMENT_BYTES[self.element] // WORD_BYTES

    @property
    def words(self) -> int:
        """Size of all states, in words."""
        return len(self.specs) * self.rows * self.row_words

    def state(self, memory: Memory, number: int, rows: int) -> View:
        """Returns the first rows of one state."""
        return memory.view(self.element, (rows, *self.shape), number * self.rows * self.row_words)

    def matrix(self, memory: Memory) -> View:
        """Returns the rows of all states as a matrix, [N * rows, words]."""
        return memory.view(FLOAT, (len(self.specs) * self.rows, self.row_words))

    def matrix_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the matrix rows of some rows, int64 [M], in all states, int64 [N * M]."""
        return (np.arange(len(self.specs))[:, np.newaxis] * self.rows + rows).ravel()

    def with_capacity(self, capacity: int) -> "Layout":
        """Returns the layout with another capacity in place of the named length."""
        shape = tuple(
            capacity if isinstance(name, str) else size
            for name, size in zip(self.specs[0].shape, self.shape, strict=True)
        )
        return Layout(self.specs, self.element, self.rows, shape)

    def with_rows(self, rows: int) -> "Layout":
        """Returns the layout with another number of rows."""
        return Layout(self.specs, self.element, rows, self.shape)


@dataclass(slots=True)
class _Block:
    """Memory and its current layout."""

    memory: Memory
    layout: Layout


@dataclass(slots=True)
class _SourceBlock(_Block):
    """Memory of source states, with buffers for the encoder's output and, to resize, for one state."""

    encoded: Memory
    spare: Memory


class DeviceState:
    """The state of one engine's rows; `source_capacity`: source tokens that each row has room for now."""

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
        """Allocates the state with the largest source capacity.

        `element` is the ONNX type of the bundle's states, of which none is recurrent. `encoder_rows` is the most rows
        encoded together; both lengths are those of the longest row.
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
        """Returns the decoder's state inputs for the first rows, by input name."""
        blocks = (*self._source, *self._target)
        return {spec.decoder_input: view for block in blocks for spec, view in _states(block, rows)}

    def outputs(self, rows: int) -> dict[str, View]:
        """Returns the decoder's state outputs, by output name; they share memory with the inputs."""
        return {
            spec.decoder_output: view
            for block in self._target
            for spec, view in _states(block, rows)
            if spec.decoder_output is not None
        }

    def encoded(self, rows: int) -> dict[str, View]:
        """Returns the encoder's outputs for E rows, by output name, each [E, *shape]."""
        return {
            spec.name: view
            for block in self._source
            for spec, view in _states(_Block(block.encoded, block.layout.with_rows(rows)), rows)
        }

    def write(self, rows: Sequence[Sequence[int]], encoded_rows: int) -> None:
        """Copies encoded sources, of E rows that the encoder wrote, to the rows of each."""
        sources, targets = np.repeat(np.arange(len(rows)), list(map(len, rows))), np.concatenate(rows)
        for block in self._source:
            encoded = _Block(block.encoded, block.layout.with_rows(encoded_rows))
            self._copy(encoded, block, sources, targets)

    def branch(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies the target states between rows of the same source."""
        for block in self._target:
            self._copy(block, block, sources, targets)

    def resize(self, capacity: int) -> None:
        """Changes the source capacity, which must hold every row's source.

        Old and new rows overlap: states move from the end at which no state overwrites one that has not moved yet.
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

    def _copy(self, given: _Block, block: _Block, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies rows of one block over those of another, or of itself."""
        for first in range(0, len(sources), COPIED_ROWS):
            part = slice(first, first + COPIED_ROWS)
            self._tools.copy(
                given.layout.matrix(given.memory),
                block.layout.matrix(block.memory),
                given.layout.matrix_rows(sources[part]),
                block.layout.matrix_rows(targets[part]),
            )


def layouts(specs: Sequence[StateSpec], element: int, rows: int, lengths: dict[str, int]) -> list[Layout]:
    """Returns a layout for each distinct shape; `lengths` maps the named lengths to positions."""
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
    """Returns a view of [R, H, C, D] elements as [R, H, C, words]."""
    size = view.shape[-1] * ELEMENT_BYTES[view.element] // WORD_BYTES
    return View(view.pointer, FLOAT, (*view.shape[:-1], size))
