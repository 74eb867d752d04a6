"""Writes a trained model as two ONNX graphs that share one file of weights."""

import hashlib
import logging
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx.external_data_helper import set_external_data
from torch import nn
from torch.export import Dim

from export.bundle import DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE, GraphSignature
from export.graphs import DecoderGraph, EncoderGraph
from model.transformer import Transformer

OPSET = 23
# Weights below this stay in the graph, where ONNX Runtime's optimiser can fold them.
SMALLEST_EXTERNAL_BYTES = 1024


@dataclass(frozen=True, slots=True)
class GraphNames:
    """Names of the inputs and outputs of both graphs, for a number of decoder layers."""

    encoder: GraphSignature
    decoder: GraphSignature

    @classmethod
    def of(cls, layers: int) -> "GraphNames":
        """Returns the names for a decoder of so many layers."""
        cross = [f"cross_{part}_{layer}" for layer in range(layers) for part in ("key", "value")]
        caches = []
        for layer in range(layers):
            caches += [f"past_self_key_{layer}", f"past_self_value_{layer}"]
            caches += [f"cross_key_{layer}", f"cross_value_{layer}"]
        presents = [f"present_self_{part}_{layer}" for layer in range(layers) for part in ("key", "value")]
        return cls(
            GraphSignature(inputs=("source_ids", "source_lengths"), outputs=tuple(cross)),
            GraphSignature(inputs=("token_ids", "positions", "source_lengths", *caches), outputs=("logits", *presents)),
        )


def export_graphs(transformer: Transformer, folder: Path) -> GraphNames:
    """Writes `encoder.onnx`, `decoder.onnx` and `weights.bin` into a folder and returns their names."""
    config = transformer.config
    names = GraphNames.of(config.decoder_layers)
    rows, source, self_capacity, cross_capacity = (Dim.DYNAMIC for _ in range(4))
    encoder = _to_onnx(
        EncoderGraph(transformer),
        (torch.ones(2, 3, dtype=torch.int64), torch.full((2,), 3, dtype=torch.int32)),
        ({0: rows, 1: source}, {0: rows}),
        names.encoder,
    )
    # A tensor of its own for each input: the exporter takes the same tensor for the same input.
    caches = [
        torch.zeros(2, config.heads, capacity, config.head_size)
        for _ in range(config.decoder_layers)
        for capacity in (5, 5, 7, 7)
    ]
    cache_dims = [{0: rows, 2: self_capacity}] * 2 + [{0: rows, 2: cross_capacity}] * 2
    decoder = _to_onnx(
        DecoderGraph(transformer),
        (
            torch.ones(2, dtype=torch.int64),
            torch.zeros(2, dtype=torch.int32),
            torch.full((2,), 3, dtype=torch.int32),
            caches,
        ),
        ({0: rows}, {0: rows}, {0: rows}, cache_dims * config.decoder_layers),
        names.decoder,
    )
    _share_weights({ENCODER_FILE: encoder, DECODER_FILE: decoder}, folder)
    return names


def _to_onnx(
    module: nn.Module, inputs: tuple[object, ...], dynamic: tuple[object, ...], names: GraphSignature
) -> onnx.ModelProto:
    # The exporter's notes are about packages that it can do without.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(
            module.eval(),
            inputs,
            dynamo=True,
            dynamic_shapes=dynamic,
            input_names=names.inputs,
            output_names=names.outputs,
            opset_version=OPSET,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    model: onnx.ModelProto = program.model_proto
    # Stack traces of this machine are of no use to whoever gets the bundle.
    del model.metadata_props[:], model.graph.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
    return model


def _share_weights(graphs: dict[str, onnx.ModelProto], folder: Path) -> None:
    """Writes the weights of all graphs into one file, equal ones once, and the graphs beside it."""
    offsets: dict[bytes, int] = {}
    with (folder / WEIGHTS_FILE).open("wb") as file:
        for tensor in _weights(graphs.values()):
            digest = hashlib.sha256(tensor.raw_data).digest()
            if digest not in offsets:
                offsets[digest] = file.tell()
                file.write(tensor.raw_data)
            set_external_data(tensor, WEIGHTS_FILE, offset=offsets[digest], length=len(tensor.raw_data))
            tensor.ClearField("raw_data")
    for name, graph in graphs.items():
        onnx.save(graph, folder / name)
        onnx.checker.check_model(folder / name)


def _weights(graphs: Iterable[onnx.ModelProto]) -> Iterator[onnx.TensorProto]:
    for graph in graphs:
        for tensor in graph.graph.initializer:
            if len(tensor.raw_data) >= SMALLEST_EXTERNAL_BYTES:
                yield tensor
