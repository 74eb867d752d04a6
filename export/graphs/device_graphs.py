"""Graphs without weights that the server runs on a GPU: they select tokens and move rows of memory.

They fit every model and are part of the server, not of bundles. `python -m dragoman.export.graphs.device_graphs` writes
them to `serve/runtime/cuda/device_graphs`. They copy memory as 32-bit words, whatever its type.

Shapes: R rows of a step, V vocabulary; N and P rows of two memory blocks, W words per row; M copied rows.
"""

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from dragoman.export.graphs.search import IR_VERSION

FOLDER = Path(__file__).parent.parent.parent / "serve" / "runtime" / "cuda" / "device_graphs"
# Every operator has a CUDA kernel at this version, which is not the newest.
OPSET = 20
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
# Name, type and dimensions of each input or output.
Signature = Sequence[tuple[str, int, Sequence[str | int]]]


def choose_graph() -> onnx.ModelProto:
    """Returns a graph that selects the best token of each row.

    Inputs: logits, float [R, V], and the last id of the vocabulary, int64 [1, 1]. Outputs: natural log-probabilities,
    float [R, V]; best token ids, int64 [R, 1], the lower id in a tie; their log-probabilities, float [R, 1]. A row with
    NaN, with +inf or with only -inf gets NaN log-probabilities but a valid id: an index out of bounds would destroy the
    CUDA context.
    """
    nodes = [
        helper.make_node("LogSoftmax", ["logits"], ["log_probabilities"], axis=-1),
        helper.make_node("TopK", ["logits", "one"], ["_", "ranked_ids"], axis=-1),
        helper.make_node("Max", ["ranked_ids", "zero"], ["positive_ids"]),
        helper.make_node("Min", ["positive_ids", "last_id"], ["token_ids"]),
        helper.make_node("GatherElements", ["log_probabilities", "token_ids"], ["token_scores"], axis=1),
    ]
    return _model(
        "choose",
        nodes,
        [("logits", FLOAT, ("R", "V")), ("last_id", INT64, (1, 1))],
        [("log_probabilities", FLOAT, ("R", "V")), ("token_ids", INT64, ("R", 1)), ("token_scores", FLOAT, ("R", 1))],
        [helper.make_tensor("one", INT64, [1], [1]), helper.make_tensor("zero", INT64, [1, 1], [0])],
    )


def token_scores_graph() -> onnx.ModelProto:
    """Returns a graph that gathers one log-probability per row.

    Maps log-probabilities, float [R, V], and token ids, int64 [R, 1], to float [R, 1].
    """
    node = helper.make_node("GatherElements", ["log_probabilities", "token_ids"], ["token_scores"], axis=1)
    inputs: Signature = [("log_probabilities", FLOAT, ("R", "V")), ("token_ids", INT64, ("R", 1))]
    return _model("token_scores", [node], inputs, [("token_scores", FLOAT, ("R", 1))])


def topk_graph() -> onnx.ModelProto:
    """Returns the graph of `dragoman.export.graphs.search.topk_graph` with an older opset."""
    node = helper.make_node("TopK", ["scores", "count"], ["best_scores", "token_ids"], axis=-1)
    inputs: Signature = [("scores", FLOAT, ("R", "V")), ("count", INT64, (1,))]
    return _model("topk", [node], inputs, [("best_scores", FLOAT, ("R", "K")), ("token_ids", INT64, ("R", "K"))])


def copy_rows_graph() -> onnx.ModelProto:
    """Returns a graph that copies M rows of a source, float [N, W], over rows of a target, float [P, W].

    `source_rows`, int64 [M], and `target_rows`, int64 [M, 1], select the rows. The output is the target; bound to the
    same memory, it is updated in place. The source may share that memory: all reads precede the writes.
    """
    nodes = [
        helper.make_node("Gather", ["source", "source_rows"], ["rows"], axis=0),
        helper.make_node("ScatterND", ["target", "target_rows", "rows"], ["copied"]),
    ]
    inputs: Signature = [
        ("source", FLOAT, ["N", "W"]),
        ("target", FLOAT, ["P", "W"]),
        ("source_rows", INT64, ["M"]),
        ("target_rows", INT64, ["M", 1]),
    ]
    return _model("copy_rows", nodes, inputs, [("copied", FLOAT, ["P", "W"])])


def gather_rows_graph() -> onnx.ModelProto:
    """Returns a graph that maps a source, float [N, W], and row numbers, int64 [M], to rows, float [M, W]."""
    node = helper.make_node("Gather", ["source", "source_rows"], ["rows"], axis=0)
    inputs = [("source", FLOAT, ["N", "W"]), ("source_rows", INT64, ["M"])]
    return _model("gather_rows", [node], inputs, [("rows", FLOAT, ["M", "W"])])


def resize_graph() -> onnx.ModelProto:
    """Returns a graph that changes the capacity of rows: float [R, H, C, D] and int64 [P] to float [R, H, P, D].

    `positions` holds the old position of each new one.
    """
    node = helper.make_node("Gather", ["source", "positions"], ["resized"], axis=2)
    inputs = [("source", FLOAT, ["R", "H", "C", "D"]), ("positions", INT64, ["P"])]
    return _model("resize", [node], inputs, [("resized", FLOAT, ["R", "H", "P", "D"])])


def zeros_graph() -> onnx.ModelProto:
    """Returns a graph that maps a number of words, int64 [1], to as many zeros: memory that a device allocates."""
    node = helper.make_node("ConstantOfShape", ["words"], ["zeros"])
    return _model("zeros", [node], [("words", INT64, [1])], [("zeros", FLOAT, ["W"])])


GRAPHS = {
    "choose.onnx": choose_graph,
    "copy_rows.onnx": copy_rows_graph,
    "gather_rows.onnx": gather_rows_graph,
    "resize.onnx": resize_graph,
    "token_scores.onnx": token_scores_graph,
    "topk.onnx": topk_graph,
    "zeros.onnx": zeros_graph,
}


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: Signature,
    outputs: Signature,
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    taken, given = ([helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs))
    graph = helper.make_graph(nodes, name, taken, given, initializer=constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


if __name__ == "__main__":
    for file, build in GRAPHS.items():
        onnx.save(build(), FOLDER / file)
