"""Writes the graphs of a bundle and their common file of weights: equal weights once, each at a multiple of 64 bytes.

The memory of a weight begins at a cache line when a server maps the file.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx.external_data_helper import ExternalDataInfo, set_external_data, uses_external_data

from serve.bundle.bundle import ALIGNED_DECODER_FILE, DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE
from serve.bundle.manifest import CacheSpec, GraphSignature, SharedWeight, StateSpec, WeightType

# Smaller weights stay in the graph, where ONNX Runtime's optimizer can fold them.
SMALLEST_EXTERNAL_BYTES = 1024
# Mapping a smaller weight twice costs less than one page of memory.
SMALLEST_SHARED_BYTES = 4096
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


class _Place(NamedTuple):
    """Offset, type and shape of a weight in the file of weights."""

    offset_bytes: int
    type: WeightType
    shape: tuple[int, ...]


def write_graphs(
    graphs: Mapping[str, onnx.ModelProto],
    folder: Path,
    *,
    states: tuple[StateSpec, ...] = (),
    cache: CacheSpec | None = None,
) -> ExportedGraphs:
    """Writes graphs by file name, among them encoder and decoder, and their weights."""
    offsets: dict[bytes, int] = {}
    with (folder / WEIGHTS_FILE).open("wb") as file:
        for tensor in _weights(graphs.values()):
            digest = hashlib.sha256(tensor.raw_data).digest()
            if digest not in offsets:
                file.write(bytes(-file.tell() % ALIGNMENT_BYTES))
                offsets[digest] = file.tell()
                file.write(tensor.raw_data)
            set_external_data(tensor, WEIGHTS_FILE, offset=offsets[digest], length=len(tensor.raw_data))
            tensor.ClearField("raw_data")
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


def _weights(graphs: Iterable[onnx.ModelProto]) -> Iterator[onnx.TensorProto]:
    for graph in graphs:
        for tensor in graph.graph.initializer:
            if len(tensor.raw_data) >= SMALLEST_EXTERNAL_BYTES:
                yield tensor


def _shared_weights(graphs: Mapping[str, onnx.ModelProto]) -> tuple[SharedWeight, ...]:
    """Returns the large weights that the encoder and every decoder read from the same place in the file."""
    encoder, decoder, *aligned = (_places(graphs[name]) for name in WEIGHT_READERS if name in graphs)
    return tuple(
        SharedWeight(encoder_name=encoder[place], decoder_name=name, **place._asdict())
        for place, name in sorted(decoder.items())
        if place in encoder and all(places.get(place) == name for places in aligned)
    )


def _places(graph: onnx.ModelProto) -> dict[_Place, str]:
    """Returns the names of a graph's large weights by their place in the file."""
    places = {}
    for tensor in graph.graph.initializer:
        if uses_external_data(tensor) and tensor.data_type in WEIGHT_TYPES:
            stored = ExternalDataInfo(tensor)
            place = _Place(stored.offset or 0, WEIGHT_TYPES[tensor.data_type], tuple(tensor.dims))
            if (stored.length or 0) >= SMALLEST_SHARED_BYTES:
                places[place] = tensor.name
    return places
