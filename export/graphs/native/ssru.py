"""The simpler simple recurrent unit as nodes of a function body (Kim et al. 2019).

c[t] = f * c[t - 1] + (1 - f) * W x[t] with f = sigmoid(W_f x[t] + b_f), and c[-1] = 0. The result is ReLU(c[t]).

Shapes: R rows, L layers; the states are float [slots, L, 1, d_model].
"""

from onnx import TensorProto

from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.layers import Layers
from dragoman.model.config import TransformerConfig
from dragoman.serve.bundle.manifest import CacheSpec, present


class Ssru:
    """The recurrent units of all layers, for one new position per row."""

    def __init__(self, body: Body, config: TransformerConfig, spec: CacheSpec, positions: str) -> None:
        self._body, self._width = body, config.d_model
        (self._name,) = spec.names("target")
        slots = body.unsqueeze(body.cast("target_slots", TensorProto.INT64), 1)  # [R, 1]
        self._slots = body.add("Mul", slots, body.integers(1, 0, 0))  # [R, 3]: slot, layer 0, 0
        self._started = body.add("Greater", body.unsqueeze(positions, 1), body.integers(0))  # [R, 1]
        self._written: list[tuple[str, str]] = []

    def read(self, layers: Layers, layer: int, states: str) -> str:
        """Applies the unit of a layer, float [R, d_model] -> [R, d_model]."""
        body, name = self._body, f"decoder.{layer}.ssru.gates"
        new, forget = body.split(layers.linear(states, name, self._width, 2 * self._width), 2, 1)
        places = body.add("Add", self._slots, body.integers(0, layer, 0))
        # A former row may have left NaN, and 0 * NaN is NaN.
        earlier = body.add("Where", self._started, body.add("GatherND", self._name, places), body.number(0))
        share = body.add("Sigmoid", forget)
        added = body.add("Mul", body.add("Sub", body.number(1), share), new)
        state = body.add("Add", body.add("Mul", share, earlier), added)
        self._written.append((places, state))
        return body.add("Relu", state)

    def end(self) -> None:
        """Makes the output, in one node, which writes in place if input and output share memory."""
        places, states = (self._body.concat(parts, 0) for parts in zip(*self._written, strict=True))
        self._body.add("ScatterND", self._name, places, states, into=present(self._name))
