"""Graphs of one native operator each, for the models of `tests.support.native_reference`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dragoman.serve.bundle.manifest import STEP_INPUTS
from tests.support.native_reference import Array, Shape, Transformer


def _inputs(names: Mapping[str, int], arrays: list[str], shape: Shape) -> list[onnx.ValueInfoProto]:
    value_type = TensorProto.INT8 if shape.int8 else TensorProto.FLOAT
    infos = [helper.make_tensor_value_info(name, kind, [None]) for name, kind in names.items()]
    for name in arrays:
        kind = TensorProto.FLOAT if name.endswith("scales") else value_type
        infos.append(helper.make_tensor_value_info(name, kind, [None] * 6))
    return infos


def _model(name: str, inputs: Any, outputs: Any, tensors: list[Array], attributes: dict[str, Any]) -> bytes:
    weights = [onnx.numpy_helper.from_array(tensor, f"w{i}") for i, tensor in enumerate(tensors)]
    names = [info.name for info in inputs] + [weight.name for weight in weights]
    node = helper.make_node(name, names, [info.name for info in outputs], domain="dragoman", **attributes)
    graph = helper.make_graph([node], name, inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("dragoman", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def packed(tensors: list[Array]) -> list[Array]:
    """Returns tensors with the vectors of each type as one, before the others; `packed_vectors` states it."""
    vectors = [
        [tensor for tensor in tensors if tensor.ndim == 1 and tensor.dtype == kind] for kind in (np.float32, np.int32)
    ]
    return [
        *(np.concatenate(vector) for vector in vectors if vector),
        *(tensor for tensor in tensors if tensor.ndim > 1),
    ]


def cache_names(shape: Shape, side: str) -> list[str]:
    return [f"{side}_cache", f"{side}_scales"] if shape.int8 else [f"{side}_cache"]


def encode_graph(model: Transformer, **changes: Any) -> bytes:
    """Returns a graph of Encode; `changes` replace attributes, or `tensors`."""
    names = {"source_ids": TensorProto.INT64, "source_lengths": TensorProto.INT32, "source_slots": TensorProto.INT32}
    tensors = changes.pop("tensors", model.encoder_tensors())
    source = cache_names(model.shape, "source")
    inputs = _inputs(names, source, model.shape)
    outputs = [
        helper.make_tensor_value_info(f"{info.name}_out", info.type.tensor_type.elem_type, [None] * 6)
        for info in inputs[3:]
    ]
    return _model("Encode", inputs, outputs, tensors, model.shape.attributes() | changes)


def step_graph(model: Transformer, **changes: Any) -> bytes:
    """Returns a graph of Step; `changes` replace attributes, or `tensors`."""
    shape = model.shape
    names = {name: TensorProto.INT64 if name == "token_ids" else TensorProto.INT32 for name in STEP_INPUTS}
    caches = [*cache_names(shape, "target"), *cache_names(shape, "source")]
    inputs = _inputs(names, caches, shape)
    results = {
        "logits": (TensorProto.FLOAT, 2),
        "log_sums": (TensorProto.FLOAT, 1),
        "best_scores": (TensorProto.FLOAT, 2),
        "best_ids": (TensorProto.INT64, 2),
        "alignments": (TensorProto.FLOAT, 3),
    }
    outputs = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, (kind, rank) in results.items()]
    outputs += [
        helper.make_tensor_value_info(f"{info.name}_out", info.type.tensor_type.elem_type, [None] * 6)
        for info in inputs[8 : 8 + len(cache_names(shape, "target"))]
    ]
    attributes = shape.attributes() | {"vocabulary": shape.vocabulary}
    if shape.alignment_heads:
        attributes["alignment_heads"] = [number for head in shape.alignment_heads for number in head]
    tensors = changes.pop("tensors", model.decoder_tensors())
    return _model("Step", inputs, outputs, tensors, attributes | changes)


def choose_graph() -> bytes:
    inputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, None]),
        helper.make_tensor_value_info("best_count", TensorProto.INT32, [None]),
    ]
    outputs = [
        helper.make_tensor_value_info("log_sums", TensorProto.FLOAT, [None]),
        helper.make_tensor_value_info("best_scores", TensorProto.FLOAT, [None, None]),
        helper.make_tensor_value_info("best_ids", TensorProto.INT64, [None, None]),
    ]
    return _model("Choose", inputs, outputs, [], {})
