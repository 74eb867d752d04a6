"""The weights of a Transformer in the order and layout in which the native operators take them, and back.

A weight has the name of its parameter. The query, key and value matrices of an attention are one matrix, `qkv` or
`key_value`, as are the `gates` of a recurrent unit; the matrix that makes logits is `output`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dragoman.export.graphs.graph_files import WeightFile
from dragoman.export.graphs.native.layout import (
    LANES,
    TABLES,
    offsets,
    pack_floats,
    pack_integers,
    padded,
    quantize,
    rounded_up,
    unpack_floats,
    unpack_integers,
)
from dragoman.model.weights import DISTANCE_TABLES, TransformerWeights
from dragoman.serve.bundle.manifest import Precision

# Arrays by name; their order is that of the operator's inputs.
Weights = dict[str, NDArray[Any]]
# The same, with the tensors of those that the file of weights has.
WrittenWeights = dict[str, NDArray[Any] | TensorProto]
# Rows of a matrix that memory holds in the precision of the bundle: a multiple of `LANES`.
BLOCK_ROWS = 16 * LANES
# The parts of a packed matrix.
PARTS = {"qkv": ("query", "key", "value"), "key_value": ("key", "value"), "gates": ("input", "forget")}


class WeightWriter:
    """Writes the matrices of a model in one precision to the file of weights, and collects its vectors."""

    def __init__(self, model: TransformerWeights, precision: Precision, file: WeightFile) -> None:
        self.weights: WrittenWeights = {}
        self._config = model.config
        self._parameters = model.parameters
        self._precision = precision
        self._file = file

    def table(self, name: str, weight: NDArray[np.float32]) -> None:
        """Adds an embedding table, [V, d_model], in the layout of a matrix."""
        self._matrix(name, weight, with_offset=False)

    def positions(self, name: str) -> None:
        """Adds position vectors, [P, d_model]."""
        self._whole(f"{name}.table")

    def embedding_norm(self, name: str) -> None:
        """Adds the normalization of embeddings with their positions."""
        if self._config.norm_embeddings:
            self.norm(name)

    def linear(
        self, name: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None, filler: float = 0
    ) -> None:
        """Adds a matrix [N, K] and its bias [N]; padded outputs have the bias `filler`."""
        self._matrix(name, weight, with_offset=True)
        values = np.zeros(len(weight), np.float32) if bias is None else bias
        self.weights[f"{name}.bias"] = padded(values, rounded_up(len(values), LANES), filler)

    def packed(self, name: str, kind: str) -> None:
        """Adds matrices of a sub-layer with the same input as one matrix."""
        weight, bias = (
            np.concatenate([self._parameters[f"{name}.{part}.{text}"] for part in PARTS[kind]])
            for text in ("weight", "bias")
        )
        self.linear(f"{name}.{kind}", weight, bias)

    def norm(self, name: str) -> None:
        """Adds a gain and, for layer normalization, a bias."""
        for part in ("weight", "bias") if self._config.norm == "layer" else ("weight",):
            self.weights[f"{name}.{part}"] = self._parameters[f"{name}.{part}"]

    def final_norm(self, name: str) -> None:
        """Adds the normalization after a pre-norm stack."""
        if self._config.norm_position == "pre":
            self.norm(name)

    def module(self, name: str) -> None:
        """Adds a linear layer."""
        self.linear(name, self._parameters[f"{name}.weight"], self._parameters.get(f"{name}.bias"))

    def feed_forward(self, layer: str) -> None:
        """Adds the feed-forward network of a layer, the gate first, and its normalization."""
        for part in ("gate", "inner", "outer") if self._config.gated else ("inner", "outer"):
            self.module(f"{layer}.feed_forward.{part}")
        self.norm(f"{layer}.feed_forward_residual.norm")

    def self_attention(self, layer: str) -> None:
        """Adds the projections of queries, keys and values as one, that of the result, and the normalization.

        Then follow the tables of distances, if there are any.
        """
        self.packed(f"{layer}.self_attention", "qkv")
        self.module(f"{layer}.self_attention.output")
        self.norm(f"{layer}.self_attention_residual.norm")
        for part in DISTANCE_TABLES[self._config.distances]:
            self._whole(f"{layer}.self_attention.distances.{part}")

    def ssru(self, layer: str) -> None:
        """Adds the projections of a recurrent unit as one, and the normalization."""
        self.packed(f"{layer}.ssru", "gates")
        self.norm(f"{layer}.ssru_residual.norm")

    def _whole(self, name: str) -> None:
        self.weights[name] = self._file.write_whole(name, self._parameters[name])

    def _matrix(self, name: str, matrix: NDArray[np.float32], *, with_offset: bool) -> None:
        if self._config.needs_standard_graphs and name not in TABLES:
            self._transposed(name, matrix)
            return
        blocks, stored = _blocks(matrix), f"{name}.weight"
        if self._precision == "fp32":
            self.weights[stored] = self._file.write(stored, map(pack_floats, blocks))
            return
        scales: list[NDArray[np.float32]] = []
        sums: list[NDArray[np.int32]] = []

        def packed() -> Iterator[NDArray[np.int8]]:
            for block in blocks:
                quantized = quantize(block)
                integers = pack_integers(quantized.values)
                scales.append(quantized.scales)
                sums.append(offsets(integers))
                yield integers

        self.weights[stored] = self._file.write(stored, packed())
        self.weights[f"{name}.scale"] = padded(np.concatenate(scales), rounded_up(len(matrix), LANES))
        if with_offset:
            self.weights[f"{name}.offset"] = np.concatenate(sums)

    def _transposed(self, name: str, matrix: NDArray[np.float32]) -> None:
        """Writes a matrix as standard operators read it, [K, N]."""
        stored = f"{name}.weight"
        if self._precision == "fp32":
            self.weights[stored] = self._file.write(stored, _blocks(matrix.T))
            return
        quantized = [quantize(block) for block in _blocks(matrix)]
        values, scales = (np.concatenate(parts) for parts in zip(*quantized, strict=True))
        self.weights[stored] = self._file.write(stored, _blocks(values.T))
        self.weights[f"{name}.scale"] = padded(scales, rounded_up(len(matrix), LANES))


def _blocks(matrix: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yields a matrix in blocks of rows."""
    return (matrix[first : first + BLOCK_ROWS] for first in range(0, len(matrix), BLOCK_ROWS))


def encoder_weights(model: TransformerWeights, precision: Precision, file: WeightFile) -> WrittenWeights:
    """Writes the weights of `Encode`: of the encoder and of the projections to keys and values of the decoder."""
    writer = WeightWriter(model, precision, file)
    writer.table("embedding", model.source_embedding)
    writer.positions("source_positions")
    writer.embedding_norm("source_embedding_norm")
    for number in range(model.config.encoder_layers):
        writer.self_attention(f"encoder.{number}")
        writer.feed_forward(f"encoder.{number}")
    writer.final_norm("encoder_norm")
    for number in range(model.config.decoder_layers):
        writer.packed(f"decoder.{number}.cross_attention", "key_value")
    return writer.weights


def decoder_weights(model: TransformerWeights, precision: Precision, file: WeightFile) -> WrittenWeights:
    """Writes the weights of `Step`."""
    writer = WeightWriter(model, precision, file)
    writer.table("target_embedding", model.target_embedding)
    writer.positions("target_positions")
    writer.embedding_norm("target_embedding_norm")
    for number in range(model.config.decoder_layers):
        layer = f"decoder.{number}"
        if model.config.decoder_memory == "ssru":
            writer.ssru(layer)
        else:
            writer.self_attention(layer)
        writer.module(f"{layer}.cross_attention.query")
        writer.module(f"{layer}.cross_attention.output")
        writer.norm(f"{layer}.cross_attention_residual.norm")
        writer.feed_forward(layer)
    writer.final_norm("decoder_norm")
    writer.linear("output", model.output, model.parameters.get("output_bias"), filler=-np.inf)
    return writer.weights


OUTPUT_BIAS = "output.bias"
# Axes of a packed matrix, in fp32 and in 8 bits.
FLOAT_AXES, INTEGER_AXES = 3, 4
# Vectors that belong to the integers of a matrix in 8 bits.
OF_INTEGERS = ("scale", "offset")


def float_parameters(weights: Weights, width: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields the parameters of weights in float32, named as in `Transformer`, with padded outputs and inputs.

    Each part of a packed matrix has `width` outputs. Matrices in 8 bits have the rounded values.
    """
    for name in weights:
        owner, _, kind = name.rpartition(".")
        module, _, packed = owner.rpartition(".")
        if kind in OF_INTEGERS:
            continue
        array = _unpacked(weights, name)
        if packed not in PARTS:
            yield ("output_bias" if name == OUTPUT_BIAS else name), array
            continue
        parts = PARTS[packed]
        for part, split in zip(parts, np.split(array[: width * len(parts)], len(parts)), strict=True):
            yield f"{module}.{part}.{kind}", split


def _unpacked(weights: Weights, name: str) -> NDArray[np.float32]:
    """Returns a weight in float32, in rows if it is a packed matrix."""
    value = weights[name]
    if value.ndim == FLOAT_AXES:
        return unpack_floats(value)
    if value.ndim == INTEGER_AXES:
        scales: NDArray[np.float32] = weights[f"{name.removesuffix('.weight')}.scale"]  # one per output
        return unpack_integers(value) * scales[:, np.newaxis]
    return value
