"""The body of `Encode`: encodes sources that follow one another without padding.

Products run over all N tokens. Attention runs over padded rows: B sources, n blocks of 16 positions.
"""

from functools import partial

import numpy as np
from onnx import TensorProto

from dragoman.export.graphs.native.attention import FloatAttention, attention_of
from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.cache import Cache, block_numbers
from dragoman.export.graphs.native.distances import Distances
from dragoman.export.graphs.native.layers import layers_of
from dragoman.export.graphs.native.layout import LANES
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.manifest import CacheSpec


def encode_body(model: TransformerWeights, spec: CacheSpec) -> Body:
    """Returns the body of `Encode`."""
    encoder = _Encoder(Body(), model, spec)
    encoder.write(encoder.encode())
    return encoder.body


class _Encoder:
    """The encoder, and the projection of its result to keys and values of every decoder layer."""

    def __init__(self, body: Body, model: TransformerWeights, spec: CacheSpec) -> None:
        self.body = body
        self._model = model
        self._config = model.config
        self._spec = spec
        self._layers = layers_of(body, model.config, spec)
        self._attention = FloatAttention(body, model.config)
        self._packing = _Packing(body)
        positions = self._packing.padded_positions
        self._distances = Distances(body, model.config, positions, positions, (1, 1, -1, 1))

    def encode(self) -> str:
        """Returns the memory, float [N, d_model]."""
        layers, scale = self._layers, self._model.embedding_scale
        states = layers.embed("source_ids", self._packing.positions, "source", "embedding", scale)
        for number in range(self._config.encoder_layers):
            name = f"encoder.{number}"
            states = layers.residual(states, f"{name}.self_attention", partial(self._attend, f"{name}.self_attention"))
            states = layers.residual(
                states, f"{name}.feed_forward", partial(layers.feed_forward, f"{name}.feed_forward")
            )
        return layers.final_norm(states, "encoder_norm")

    def _attend(self, name: str, states: str) -> str:
        body, width, heads_width = self.body, self._config.d_model, self._config.attention_width
        qkv = self._layers.linear(states, f"{name}.qkv", width, 3 * heads_width)
        query, key, value = body.split(self._packing.pad(qkv), 3, 2)
        heads = body.reshape(query, 0, 0, 1, self._config.heads, self._config.head_size)
        blocks = self._attention.new_blocks(key, value)
        queries = body.transpose(heads, 0, 2, 3, 1, 4)  # [B, 1, H, 16 n, D]
        attended = self._attention.attend(queries, blocks, self._packing.valid, self._distances.of(name)).states
        rows = body.reshape(body.transpose(attended, 0, 3, 1, 2, 4), 0, 0, heads_width)
        return self._layers.linear(self._packing.pack(rows), f"{name}.output", heads_width, width)

    def write(self, memory: str) -> None:
        """Writes keys and values of the memory to the source cache."""
        body, config = self.body, self._config
        attention = attention_of(body, self._config, self._spec)
        cache = Cache(body, self._spec, "source")
        locations = cache.locations(body.cast("source_slots", TensorProto.INT64), self._packing.blocks)
        for number in range(self._config.decoder_layers):
            name = f"decoder.{number}.cross_attention.key_value"
            projected = self._layers.linear(memory, name, config.d_model, 2 * config.attention_width)
            key, value = body.split(self._packing.pad(projected), 2, 2)
            cache.write(locations, number, attention.round(attention.new_blocks(key, value)))
        cache.end()


class _Packing:
    """Where the N tokens of B sources are in padded rows of 16 n positions.

    Attributes:
        positions: position of each token in its source, int64 [N].
        padded_positions: int64 [16 n].
        blocks: numbers of the blocks, int64 [n].
        valid: bool [B, n, 1, 1, 16].
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        zero, one, lanes = (body.constant(np.array(number)) for number in (0, 1, LANES))
        lengths = body.unsqueeze(body.cast("source_lengths", TensorProto.INT64), 1)  # [B, 1]
        self.blocks = block_numbers(body, lengths)
        position = body.add("Range", zero, body.add("Mul", body.add("Size", self.blocks), lanes), one)  # [16 n]
        self.padded_positions = position
        valid = body.add("Less", position, lengths)  # [B, 16 n]
        self.valid = body.reshape(valid, 0, -1, 1, 1, LANES)
        # Padding repeats the last token of its own source: another one could hold NaN.
        own = body.add("Min", position, body.add("Sub", lengths, body.integers(1)))
        self._padded = body.add("Add", body.add("CumSum", lengths, zero, exclusive=1), own)  # [B, 16 n]
        self._locations = body.transpose(body.add("NonZero", valid), 1, 0)  # [N, 2]
        self.positions = body.add("Gather", self._locations, one, axis=1)

    def pad(self, states: str) -> str:
        """Returns float [N, width] as [B, 16 n, width]."""
        return self._body.add("Gather", states, self._padded)

    def pack(self, rows: str) -> str:
        """Returns float [B, 16 n, width] as [N, width]."""
        return self._body.add("GatherND", rows, self._locations)
