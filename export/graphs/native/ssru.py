"""The simpler simple recurrent unit as nodes of a function body (Kim et al. 2019).

c[t] = f * c[t - 1] + (1 - f) * W x[t] with f = sigmoid(W_f x[t] + b_f), and c[-1] = 0. The result is ReLU(c[t]).

The target cache keeps the state of every position in the place of its key. In 8 bits the place of the value keeps what
rounding lost: the error of one state would otherwise stay in all later ones.

Shapes: R rows, H heads, D head size, d_model = H * D.
"""

import numpy as np
from onnx import TensorProto

from dragoman.export.graphs.native.attention import Attention, KeysValues
from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.cache import Cache
from dragoman.export.graphs.native.layers import Layers
from dragoman.export.graphs.native.layout import LANES
from dragoman.model.config import TransformerConfig
from dragoman.serve.bundle.manifest import CacheSpec

# Axis of the positions in keys, and the axes of values in the order of keys.
POSITIONS, VALUE_ORDER = 4, (0, 1, 2, 4, 3)


class Ssru:
    """The recurrent units of all layers, for one new position per row."""

    def __init__(
        self, body: Body, config: TransformerConfig, spec: CacheSpec, attention: Attention, positions: str
    ) -> None:
        self._body, self._attention, self._cache = body, attention, Cache(body, spec, "target")
        self._width = config.d_model
        slots, rows = body.cast("target_slots", TensorProto.INT64), body.unsqueeze(positions, 1)  # [R, 1]
        earlier = body.add("Max", body.add("Sub", rows, body.integers(1)), body.integers(0))
        self._written, self._new = self._location(slots, rows)
        self._read, self._last = self._location(slots, earlier)
        self._started = body.add("Greater", rows, body.integers(0))  # [R, 1]

    def _location(self, slots: str, positions: str) -> tuple[str, str]:
        """Returns the locations of the blocks that hold positions, and where in them, bool [R, 1, 1, 1, 16]."""
        body, lanes = self._body, self._body.integers(LANES)
        lane = body.unsqueeze(body.add("Mod", positions, lanes), 2, 3, 4)
        chosen = body.add("Equal", lane, body.constant(np.arange(LANES)))
        return self._cache.locations(slots, body.add("Div", positions, lanes)), chosen

    def read(self, layers: Layers, layer: int, states: str) -> str:
        """Applies the unit of a layer, float [R, d_model] -> [R, d_model]."""
        body, name = self._body, f"decoder.{layer}.ssru.gates"
        new, forget = body.split(layers.linear(states, name, self._width, 2 * self._width), 2, 1)
        share = body.add("Sigmoid", forget)
        kept = body.add("Mul", share, self._earlier(layer))
        state = body.add("Add", kept, body.add("Mul", body.add("Sub", body.number(1), share), new))
        self._write(layer, state)
        return body.add("Relu", state)

    def _earlier(self, layer: int) -> str:
        """Returns the state before this position, float [R, d_model]."""
        body, stored = self._body, self._cache.read(self._read, layer)
        state = stored.keys
        if stored.scales:
            state = self._scaled(stored)
        last = body.add("Where", self._last, state, body.number(0))
        # Other positions of the block may hold NaN: they are removed before the sum.
        row = body.reshape(body.add("ReduceSum", last, body.integers(POSITIONS), keepdims=0), -1, self._width)
        return body.add("Where", self._started, row, body.number(0))

    def _scaled(self, stored: KeysValues) -> str:
        body, (key_scales, value_scales) = self._body, stored.scales
        coarse = body.add("Mul", stored.keys, key_scales)
        return body.add("Add", coarse, body.add("Mul", body.transpose(stored.values, *VALUE_ORDER), value_scales))

    def _write(self, layer: int, state: str) -> None:
        body, new = self._body, self._attention.new_position(state, state)
        if new.scales:
            rounded = body.reshape(body.add("Mul", new.keys, new.scales[0]), -1, self._width)
            new = self._attention.new_position(state, body.add("Sub", state, rounded))
        blocks = self._cache.read(self._written, layer)
        is_value = body.transpose(self._new, *VALUE_ORDER)
        self._cache.write(
            self._written,
            layer,
            KeysValues(
                body.add("Where", self._new, new.keys, blocks.keys),
                body.add("Where", is_value, new.values, blocks.values),
                tuple(body.add("Where", self._new, *pair) for pair in zip(new.scales, blocks.scales, strict=True)),
            ),
        )

    def end(self) -> None:
        """Makes the outputs."""
        self._cache.end()
