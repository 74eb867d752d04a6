"""The KV caches as a function reads and writes them: blocks of 16 positions, and their numbers."""

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from dragoman.export.graphs.native.attention import KeysValues
from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.layout import GROUP, LANES
from dragoman.serve.bundle.manifest import CacheSpec, Length, present


class Cache:
    """The cache of one length as a function reads and writes it: tensors [slots, layers, blocks, 2, H, 16 * D].

    A location is the number of slot, layer, block, and key (0) or value (1): int64 [B, n, 4].
    """

    def __init__(self, body: Body, spec: CacheSpec, length: Length) -> None:
        self._body = body
        self._spec = spec
        self._names = spec.names(length)
        self._writes: list[tuple[str, ...]] = []
        self._locations: list[str] = []

    def locations(self, slots: str, blocks: str) -> str:
        """Returns the locations of keys in layer 0: slots, int64 [B], and blocks, int64 [n] or [B, n]."""
        body = self._body
        slot = body.unsqueeze(slots, 1, 2)  # [B, 1, 1]
        block = body.unsqueeze(blocks, -1)  # [n, 1] or [B, n, 1]
        zeros = body.add("Mul", body.add("Add", slot, block), body.integers(0))  # [B, n, 1]
        return body.concat([body.add("Add", slot, zeros), zeros, body.add("Add", block, zeros), zeros], 2)

    def _at(self, locations: str, layer: int, part: int) -> str:
        return self._body.add("Add", locations, self._body.integers(0, layer, 0, part))

    def read(self, locations: str, layer: int) -> KeysValues:
        """Returns the blocks at some locations of a layer."""
        body = self._body
        keys, values = (body.add("GatherND", self._names[0], self._at(locations, layer, part)) for part in (0, 1))
        scales = [
            body.unsqueeze(body.add("GatherND", name, self._at(locations, layer, part)), 3)
            for name in self._names[1:]
            for part in (0, 1)
        ]
        return KeysValues(self._plain(keys, self._key_groups), self._plain(values, self._value_groups), tuple(scales))

    def write(self, locations: str, layer: int, blocks: KeysValues) -> None:
        """Writes blocks to some locations of a layer, when the function ends."""
        body = self._body
        self._locations += [self._at(locations, layer, part) for part in (0, 1)]
        stored = self._stored(blocks.keys, self._key_groups), self._stored(blocks.values, self._value_groups)
        scales = [body.reshape(scale, 0, 0, 0, LANES) for scale in blocks.scales]
        self._writes += zip(stored, *([scales] if scales else []), strict=True)

    def end(self) -> None:
        """Makes the outputs, in one node each, which writes in place if input and output share memory."""
        locations = self._body.concat(self._locations, 1)
        for name, parts in zip(self._names, zip(*self._writes, strict=True), strict=True):
            self._body.add("ScatterND", name, locations, self._body.concat(parts, 1), into=present(name))

    # In 8 bits, groups of four head dimensions (keys) or positions (values) are innermost.
    @property
    def _key_groups(self) -> Sequence[int]:
        return self._spec.head_size // GROUP, LANES

    @property
    def _value_groups(self) -> Sequence[int]:
        return LANES // GROUP, self._spec.head_size

    def _plain(self, stored: str, groups: Sequence[int]) -> str:
        """Returns blocks in the order of `KeysValues`, float, of blocks as they are stored, [B, n, H, 16 * D]."""
        body, (outer, inner) = self._body, groups
        if self._spec.element == "float":
            return body.reshape(stored, 0, 0, 0, outer * GROUP, inner)
        grouped = body.reshape(body.cast(stored, TensorProto.FLOAT), 0, 0, 0, outer, inner, GROUP)
        return body.reshape(body.transpose(grouped, 0, 1, 2, 3, 5, 4), 0, 0, 0, outer * GROUP, inner)

    def _stored(self, plain: str, groups: Sequence[int]) -> str:
        body, (outer, inner) = self._body, groups
        if self._spec.element == "float":
            return body.reshape(plain, 0, 0, 0, outer * GROUP * inner)
        grouped = body.transpose(body.reshape(plain, 0, 0, 0, outer, GROUP, inner), 0, 1, 2, 3, 5, 4)
        return body.cast(body.reshape(grouped, 0, 0, 0, outer * GROUP * inner), TensorProto.INT8)


def block_numbers(body: Body, lengths: str) -> str:
    """Returns the numbers of the blocks that the longest row fills, int64 [n]; lengths are int64 [B, 1]."""
    zero, one, most = (body.constant(np.array(number)) for number in (0, 1, LANES - 1))
    longest = body.add("ReduceMax", lengths, keepdims=0)  # []
    return body.add("Range", zero, body.add("Div", body.add("Add", longest, most), body.constant(np.array(LANES))), one)


def positions_of(body: Body, blocks: str) -> str:
    """Returns the positions in blocks, int64 [n, 1, 1, 16]."""
    first = body.add("Mul", body.unsqueeze(blocks, 1, 2, 3), body.integers(LANES))
    return body.add("Add", first, body.constant(np.arange(LANES)))
