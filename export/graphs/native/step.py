"""The body of `Step`: one token of R rows, each in its own slots at its own position."""

from collections.abc import Sequence
from functools import partial

from onnx import TensorProto

from dragoman.export.graphs.native.attention import Attention, KeysValues, attention_of
from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.cache import Cache, block_numbers, positions_of
from dragoman.export.graphs.native.choose import choose
from dragoman.export.graphs.native.distances import Distances
from dragoman.export.graphs.native.layers import Layers, layers_of
from dragoman.export.graphs.native.layout import LANES, rounded_up
from dragoman.export.graphs.native.shortlist import keep_candidates
from dragoman.export.graphs.native.ssru import Ssru
from dragoman.model.config import TransformerConfig
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.manifest import ALIGNMENTS, LOGITS, AttentionHead, CacheSpec


def step_body(
    model: TransformerWeights, spec: CacheSpec, heads: Sequence[AttentionHead], *, shortlists: bool = False
) -> Body:
    """Returns the body of `Step`, which returns alignments of the given heads, and may take shortlists."""
    decoder = _Decoder(Body(), model, spec)
    logits = decoder.decode()
    if shortlists:
        logits = keep_candidates(decoder.body, logits)
    decoder.body.add("Gather", logits, "scored_rows", into=LOGITS)
    choose(decoder.body, logits)
    decoder.align(heads, rounded_up(model.config.max_source_tokens, LANES))
    return decoder.body


class _Decoder:
    """The decoder for one position per row."""

    def __init__(self, body: Body, model: TransformerWeights, spec: CacheSpec) -> None:
        self.body = body
        self._model = model
        self._config = model.config
        self._layers = layers_of(body, model.config, spec)
        attention = attention_of(body, model.config, spec)
        self._positions = body.cast("positions", TensorProto.INT64)
        if model.config.decoder_memory == "ssru":
            self._target: Ssru | _Target = Ssru(body, model.config, spec, self._positions)
        else:
            self._target = _Target(body, model.config, spec, attention, self._positions)
        self._source = _CrossAttention(body, spec, attention)
        self._widths = model.config.d_model, model.config.attention_width

    def decode(self) -> str:
        """Returns the logits of all rows, float [R, V], and writes the target cache."""
        layers, width = self._layers, self._config.d_model
        states = layers.embed("token_ids", self._positions, "target", "target_embedding", self._model.embedding_scale)
        for number in range(self._config.decoder_layers):
            name = f"decoder.{number}"
            memory = f"{name}.{self._config.decoder_memory}"
            states = layers.residual(states, memory, partial(self._target.read, layers, number))
            states = layers.residual(states, f"{name}.cross_attention", partial(self._attend_to_source, number))
            states = layers.residual(
                states, f"{name}.feed_forward", partial(layers.feed_forward, f"{name}.feed_forward")
            )
        self._target.end()
        return layers.linear(layers.final_norm(states, "decoder_norm"), "output", width, self._model.vocabulary_size)

    def _attend_to_source(self, number: int, states: str) -> str:
        name, (width, heads_width) = f"decoder.{number}.cross_attention", self._widths
        query = self._layers.linear(states, f"{name}.query", width, heads_width)
        return self._layers.linear(self._source.attend(number, query), f"{name}.output", heads_width, width)

    def align(self, heads: Sequence[AttentionHead], capacity: int) -> None:
        """Makes the output of the alignments, float [R, A, capacity], without rows if they are not wanted."""
        body = self.body
        rows = body.add("Mul", body.add("Shape", "source_lengths"), body.cast("aligned", TensorProto.INT64))
        if not heads:
            body.add("ConstantOfShape", body.concat([rows, body.integers(0, capacity)], 0), into=ALIGNMENTS)
            return
        chosen = [
            body.reshape(
                body.add("Gather", self._source.weights[head.layer], body.integers(head.head), axis=2), 0, 1, -1
            )
            for head in heads
        ]
        aligned = body.concat(chosen, 1)  # [R, A, 16 n]
        missing = body.add("Sub", body.integers(capacity), body.add("Shape", aligned, start=2))
        padded = body.add("Pad", aligned, body.concat([body.integers(0, 0, 0, 0, 0), missing], 0))
        body.add("Slice", padded, body.integers(0), rows, body.integers(0), into=ALIGNMENTS)


class _Target:
    """Self-attention: the cache with the new position of each row."""

    def __init__(
        self, body: Body, config: TransformerConfig, spec: CacheSpec, attention: Attention, positions: str
    ) -> None:
        self._body, self._attention, self._cache = body, attention, Cache(body, spec, "target")
        self._widths = config.d_model, config.attention_width
        slots = body.cast("target_slots", TensorProto.INT64)
        rows = body.unsqueeze(positions, 1)  # [R, 1]
        blocks = block_numbers(body, body.add("Add", rows, body.integers(1)))
        self._block = body.add("Div", rows, body.integers(LANES))
        self._locations = self._cache.locations(slots, blocks)
        self._written = self._cache.locations(slots, self._block)
        position, row = positions_of(body, blocks), body.unsqueeze(rows, 2, 3, 4)  # [n, 1, 1, 16], [R, 1, 1, 1, 1]
        self._valid = body.add("LessOrEqual", position, row)
        self._new = body.add("Equal", position, row)
        self._distances = Distances(body, config, position, rows, (-1, 1, 1, 1))

    def read(self, layers: Layers, layer: int, states: str) -> str:
        """Applies the self-attention of a layer."""
        name, (width, heads_width) = f"decoder.{layer}.self_attention", self._widths
        parts = self._body.split(layers.linear(states, f"{name}.qkv", width, 3 * heads_width), 3, 1)
        return layers.linear(self._attend(layer, *parts), f"{name}.output", heads_width, width)

    def _attend(self, layer: int, query: str, key: str, value: str) -> str:
        """Adds the new position and attends; float [R, H * D] each."""
        body = self._body
        new, blocks = self._attention.new_position(key, value), self._cache.read(self._locations, layer)
        is_value = body.transpose(self._new, 0, 1, 2, 4, 3)
        blocks = KeysValues(
            body.add("Where", self._new, new.keys, blocks.keys),
            body.add("Where", is_value, new.values, blocks.values),
            tuple(body.add("Where", self._new, *pair) for pair in zip(new.scales, blocks.scales, strict=True)),
        )
        self._cache.write(self._written, layer, self._current(blocks))
        distances = self._distances.of(f"decoder.{layer}.self_attention")
        attended = self._attention.attend(self._attention.query(query), blocks, self._valid, distances)
        return body.reshape(attended.states, -1, self._widths[1])

    def _current(self, blocks: KeysValues) -> KeysValues:
        """Returns the block that holds the new position of each row."""

        def pick(value: str) -> str:
            return self._body.unsqueeze(self._body.add("GatherND", value, self._block, batch_dims=1), 1)

        return KeysValues(pick(blocks.keys), pick(blocks.values), tuple(map(pick, blocks.scales)))

    def end(self) -> None:
        """Makes the outputs."""
        self._cache.end()


class _CrossAttention:
    """Cross-attention; `weights` are those of each layer so far, float [R, n, H, 1, 16]."""

    def __init__(self, body: Body, spec: CacheSpec, attention: Attention) -> None:
        self.weights: list[str] = []
        self._body, self._attention, self._cache = body, attention, Cache(body, spec, "source")
        self._width = spec.heads * spec.head_size
        lengths = body.unsqueeze(body.cast("source_lengths", TensorProto.INT64), 1)  # [R, 1]
        blocks = block_numbers(body, lengths)
        self._locations = self._cache.locations(body.cast("source_slots", TensorProto.INT64), blocks)
        self._valid = body.add("Less", positions_of(body, blocks), body.unsqueeze(lengths, 2, 3, 4))

    def attend(self, layer: int, query: str) -> str:
        """Attends to the source, float [R, H * D]."""
        blocks = self._cache.read(self._locations, layer)
        attended = self._attention.attend(self._attention.query(query), blocks, self._valid)
        self.weights.append(attended.weights)
        return self._body.reshape(attended.states, -1, self._width)
