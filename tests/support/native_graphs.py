"""Graphs of one native operator each, for the models of `tests.support.native_reference`."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dragoman.serve.bundle.manifest import CANDIDATE_INPUTS, STEP_INPUTS
from tests.support.native_reference import Array, Shape, Transformer

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def _infos(rank: int, **kinds: int) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, [None] * rank) for name, kind in kinds.items()]


def _caches(shape: Shape, side: str, suffix: str = "") -> list[onnx.ValueInfoProto]:
    """Returns the tensors of a cache as inputs, or as outputs with a suffix."""
    rank = 4 if is_recurrent(shape, side) else 6
    is_int8 = shape.int8 and not is_recurrent(shape, side)
    kinds = (TensorProto.INT8 if is_int8 else FLOAT, FLOAT)
    return [
        helper.make_tensor_value_info(name + suffix, kind, [None] * rank)
        for name, kind in zip(cache_names(shape, side), kinds, strict=False)
    ]


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


def is_recurrent(shape: Shape, side: str) -> bool:
    """Returns whether a cache has states of recurrent units."""
    return shape.recurrent and side == "target"


def cache_names(shape: Shape, side: str) -> list[str]:
    has_scales = shape.int8 and not is_recurrent(shape, side)
    return [f"{side}_cache", f"{side}_scales"] if has_scales else [f"{side}_cache"]


def encode_graph(model: Transformer, **changes: Any) -> bytes:
    """Returns a graph of Encode; `changes` replace attributes, or `tensors`."""
    names = {"source_ids": INT64, "source_lengths": INT32, "source_slots": INT32}
    tensors = changes.pop("tensors", model.encoder_tensors())
    inputs = _infos(1, **names) + _caches(model.shape, "source")
    outputs = _caches(model.shape, "source", "_out")
    return _model("Encode", inputs, outputs, tensors, model.shape.attributes() | changes)


def step_graph(model: Transformer, **changes: Any) -> bytes:
    """Returns a graph of Step; `changes` replace attributes, or `tensors`."""
    shape = model.shape
    names = {name: INT64 if name == "token_ids" else INT32 for name in STEP_INPUTS}
    lists = [info for rank, name in enumerate(CANDIDATE_INPUTS, 1) for info in _infos(rank, **{name: INT32})]
    candidates = lists if changes.get("shortlists") else []
    inputs = [*_infos(1, **names), *candidates, *_caches(shape, "target"), *_caches(shape, "source")]
    outputs = [*_infos(2, logits=FLOAT), *_chosen(), *_infos(3, alignments=FLOAT), *_caches(shape, "target", "_out")]
    attributes = shape.attributes() | {"vocabulary": shape.vocabulary}
    if shape.alignment_heads:
        attributes["alignment_heads"] = [number for head in shape.alignment_heads for number in head]
    return _model("Step", inputs, outputs, changes.pop("tensors", model.decoder_tensors()), attributes | changes)


def _chosen() -> list[onnx.ValueInfoProto]:
    return _infos(1, log_sums=FLOAT) + _infos(2, best_scores=FLOAT, best_ids=INT64)


def choose_graph() -> bytes:
    return _model("Choose", _infos(2, logits=FLOAT) + _infos(1, best_count=INT32), _chosen(), [], {})
