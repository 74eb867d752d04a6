"""Writes the graphs of a bundle and their common file of weights: equal weights once, each at a multiple of 64 bytes.

The memory of a weight begins at a cache line when a server maps the file.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data, uses_external_data

from dragoman.serve.bundle.bundle import ALIGNED_DECODER_FILE, DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE
from dragoman.serve.bundle.manifest import CacheSpec, GraphSignature, SharedWeight, StateSpec, WeightType

# Smaller weights stay in the graph, where ONNX Runtime's optimizer can fold them.
MIN_EXTERNAL_BYTES = 1024
# Mapping a smaller weight twice costs less than one page of memory.
MIN_SHARED_BYTES = 4096
ALIGNMENT_BYTES = 64
# Graphs that can share weights, and the types of shared weights.
WEIGHT_READERS = (ENCODER_FILE, DECODER_FILE, ALIGNED_DECODER_FILE)
WEIGHT_TYPES: dict[int, WeightType] = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.INT8: "int8"}


@dataclass(frozen=True, slots=True)
class ExportedGraphs:
    """The manifest's description of the graphs, with their actual inputs and outputs."""

    encoder: GraphSignature
    decoder: GraphSignature
    shared_weights: tuple[SharedWeight, ...]
    states: tuple[StateSpec, ...] = ()
    cache: CacheSpec | None = None


class _StoredTensor(NamedTuple):
    """Offset, type and shape of a weight in the file of weights."""

    offset_bytes: int
    type: WeightType
    shape: tuple[int, ...]


class WeightFile:
    """The file of weights of a new bundle. It writes one weight at a time, block by block."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / WEIGHTS_FILE
        self._path.write_bytes(b"")
        self._offsets: dict[bytes, int] = {}

    def write(self, name: str, blocks: Iterable[NDArray[Any]]) -> onnx.TensorProto:
        """Writes a weight, given in blocks along its first axis; returns the tensor of a graph that refers to it."""
        digest, rows = hashlib.sha256(), 0
        with self._path.open("ab") as file:
            end = file.tell()
            file.write(bytes(-end % ALIGNMENT_BYTES))
            offset = file.tell()
            for block in blocks:
                rows += len(block)
                content = np.ascontiguousarray(block).data
                digest.update(content)
                file.write(content)
            length = file.tell() - offset
            if digest.digest() in self._offsets:
                file.truncate(end)
        tensor = onnx.TensorProto(name=name, dims=(rows, *block.shape[1:]))
        tensor.data_type = helper.np_dtype_to_tensor_dtype(block.dtype)
        tensor.raw_data = b""  # set_external_data expects the field
        set_external_data(tensor, WEIGHTS_FILE, offset=self._offsets.setdefault(digest.digest(), offset), length=length)
        tensor.ClearField("raw_data")
        return tensor

    def write_whole(self, name: str, array: NDArray[Any]) -> onnx.TensorProto:
        """Writes a weight; a small one stays in the tensor."""
        if array.nbytes < MIN_EXTERNAL_BYTES:
            return numpy_helper.from_array(array, name)
        return self.write(name, [array])


def write_graphs(
    graphs: Mapping[str, onnx.ModelProto], folder: Path, *, states: tuple[StateSpec, ...]
) -> ExportedGraphs:
    """Writes graphs that hold their weights, by file name, among them encoder and decoder."""
    weights = WeightFile(folder)
    for graph in graphs.values():
        for tensor in graph.graph.initializer:
            if len(tensor.raw_data) >= MIN_EXTERNAL_BYTES:
                tensor.CopyFrom(weights.write(tensor.name, [numpy_helper.to_array(tensor)]))
    return save_graphs(graphs, folder, states=states)


def save_graphs(
    graphs: Mapping[str, onnx.ModelProto],
    folder: Path,
    *,
    states: tuple[StateSpec, ...] = (),
    cache: CacheSpec | None = None,
) -> ExportedGraphs:
    """Saves graphs by file name, among them encoder and decoder. Their weights must be in the file of weights."""
    for name, graph in graphs.items():
        onnx.save(graph, folder / name)
        onnx.checker.check_model(folder / name)
    encoder, decoder = (_signature(graphs[name]) for name in (ENCODER_FILE, DECODER_FILE))
    return ExportedGraphs(encoder, decoder, _shared_weights(graphs), states, cache)


def _signature(graph: onnx.ModelProto) -> GraphSignature:
    return GraphSignature(
        inputs=tuple(value.name for value in graph.graph.input),
        outputs=tuple(value.name for value in graph.graph.output),
    )


def _shared_weights(graphs: Mapping[str, onnx.ModelProto]) -> tuple[SharedWeight, ...]:
    """Returns the large weights that the encoder and every decoder read from the same offset in the file."""
    encoder, decoder, *aligned = (_stored_tensors(graphs[name]) for name in WEIGHT_READERS if name in graphs)
    return tuple(
        SharedWeight(encoder_name=encoder[stored_tensor], decoder_name=name, **stored_tensor._asdict())
        for stored_tensor, name in sorted(decoder.items())
        if stored_tensor in encoder and all(names.get(stored_tensor) == name for names in aligned)
    )


def _stored_tensors(graph: onnx.ModelProto) -> dict[_StoredTensor, str]:
    """Returns the names of a graph's large weights by their offset in the file."""
    names = {}
    for tensor in graph.graph.initializer:
        if uses_external_data(tensor) and tensor.data_type in WEIGHT_TYPES:
            stored = ExternalDataInfo(tensor)
            stored_tensor = _StoredTensor(stored.offset or 0, WEIGHT_TYPES[tensor.data_type], tuple(tensor.dims))
            if (stored.length or 0) >= MIN_SHARED_BYTES:
                names[stored_tensor] = tensor.name
    return names
