"""Writes a Transformer for GPUs: an encoder and a decoder step, with states between them, in one file of weights.

`dragoman.export.graphs.native` has the graphs for CPUs.
"""

import logging
import warnings
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.export import Dim

from dragoman.export.graphs.graph_files import ExportedGraphs, write_graphs
from dragoman.export.graphs.transformer import DecoderGraph, EncoderGraph
from dragoman.model.config import TransformerConfig
from dragoman.model.network.transformer import Transformer
from dragoman.serve.bundle.bundle import ALIGNED_DECODER_FILE, DECODER_FILE, ENCODER_FILE
from dragoman.serve.bundle.manifest import (
    ALIGNMENTS,
    DECODER_INPUTS,
    ENCODER_INPUTS,
    LOGITS,
    AttentionHead,
    GraphSignature,
    Precision,
    StateSpec,
)

OPSET = 24
# Sizes of the traced example. All differ: the exporter treats equal sizes as one dimension.
EXAMPLE_ROWS = 2
EXAMPLE_PREFILL_LENGTH = 3
EXAMPLE_LENGTHS = {"source": 7, "target": 5}
TRANSPOSITION = (1, 0)
# One symbol per dimension that is always equal: the graph then reads its size once, not once per state.
ROWS = Dim("rows")
PREFILL_LENGTH = Dim("source_length")
CAPACITIES = {"source": Dim("source_capacity"), "target": Dim("target_capacity")}


def export_graphs(
    model: Transformer, precision: Precision, alignment_heads: Sequence[AttentionHead], folder: Path
) -> ExportedGraphs:
    """Writes the graphs and `weights.bin` into a folder, with alignment heads also the aligned decoder."""
    if precision == "fp16":
        model = deepcopy(model).half()
    states = states_of(model.config)
    files = {
        ENCODER_FILE: _export_encoder(EncoderGraph(model), states),
        DECODER_FILE: _export_decoder(DecoderGraph(model), states),
    }
    if alignment_heads:
        files[ALIGNED_DECODER_FILE] = _export_decoder(DecoderGraph(model, alignment_heads), states, ALIGNMENTS)
    return write_graphs(files, folder, states=states)


def states_of(config: TransformerConfig) -> tuple[StateSpec, ...]:
    """Returns the key and value states of every decoder layer, in the input order of `DecoderGraph`."""
    return tuple(
        StateSpec(name=f"{attention}_{part}_{layer}", shape=(config.heads, length, config.head_size))
        for layer in range(config.decoder_layers)
        for attention, length in (("self", "target"), ("cross", "source"))
        for part in ("key", "value")
    )


def _export_encoder(module: EncoderGraph, states: Sequence[StateSpec]) -> onnx.ModelProto:
    """Maps source_ids [B, S] and source_lengths [B] to the source states, in the order of `states`."""
    return _to_onnx(
        module,
        (
            torch.ones(EXAMPLE_ROWS, EXAMPLE_PREFILL_LENGTH, dtype=torch.int64),
            torch.full((EXAMPLE_ROWS,), EXAMPLE_PREFILL_LENGTH, dtype=torch.int32),
        ),
        ({0: ROWS, 1: PREFILL_LENGTH}, {0: ROWS}),
        GraphSignature(inputs=ENCODER_INPUTS, outputs=tuple(item.name for item in states if item.kind != "target")),
    )


def _export_decoder(module: DecoderGraph, states: Sequence[StateSpec], *more: str) -> onnx.ModelProto:
    """Maps token_ids, positions and source_lengths, each [R], and all states to logits, the next states and `more`."""
    dtype = module.transformer.source_weight.dtype
    stepped = (state.decoder_output for state in states if state.decoder_output is not None)
    return _to_onnx(
        module,
        (
            torch.ones(EXAMPLE_ROWS, dtype=torch.int64),
            torch.zeros(EXAMPLE_ROWS, dtype=torch.int32),
            torch.full((EXAMPLE_ROWS,), EXAMPLE_PREFILL_LENGTH, dtype=torch.int32),
            # One tensor per state: the exporter treats one tensor object as one input.
            [_example(state, dtype) for state in states],
        ),
        ({0: ROWS}, {0: ROWS}, {0: ROWS}, [_dynamic_dimensions(state) for state in states]),
        GraphSignature(
            inputs=(*DECODER_INPUTS, *(state.decoder_input for state in states)), outputs=(LOGITS, *stepped, *more)
        ),
    )


def _example(state: StateSpec, dtype: torch.dtype) -> Tensor:
    lengths = (EXAMPLE_LENGTHS[size] if isinstance(size, str) else size for size in state.shape)
    return torch.zeros(EXAMPLE_ROWS, *lengths, dtype=dtype)


def _dynamic_dimensions(state: StateSpec) -> dict[int, object]:
    named = {axis: CAPACITIES[size] for axis, size in enumerate(state.shape, start=1) if isinstance(size, str)}
    return {0: ROWS, **named}


def _to_onnx(
    module: nn.Module, inputs: tuple[object, ...], dynamic: tuple[object, ...], names: GraphSignature
) -> onnx.ModelProto:
    # The exporter logs notes about optional packages.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", "# The axis name")
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
    # The exporter stores local stack traces; a bundle does not need them.
    del model.metadata_props[:], model.graph.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
    _transpose_embeddings(model.graph)
    return model


def _transpose_embeddings(graph: onnx.GraphProto) -> None:
    """Stores tied embeddings once: replaces a stored transpose by a node, which ONNX Runtime folds on loading."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for name in {node.input[0] for node in graph.node if node.op_type == "Gather"} & initializers.keys():
        embeddings = numpy_helper.to_array(initializers[name])
        for tensor in initializers.values():
            shape = tuple(tensor.dims)
            if len(shape) != len(TRANSPOSITION) or shape != embeddings.shape[::-1]:
                continue
            if np.array_equal(numpy_helper.to_array(tensor), embeddings.T):
                graph.initializer.remove(tensor)
                graph.node.insert(0, onnx.helper.make_node("Transpose", [name], [tensor.name], perm=TRANSPOSITION))
