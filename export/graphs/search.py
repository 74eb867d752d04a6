"""Search graphs that run between decoder steps: log-probabilities and top-k tokens.

They have no weights and fit every model. ONNX Runtime computes them several times faster than NumPy.
"""

import onnx
from onnx import TensorProto, helper

from dragoman.serve.bundle.manifest import LOG_PROBABILITIES, LOGITS, TOPK_INPUTS, TOPK_OUTPUTS

# The version that ONNX 1.19 and later write for opset 24.
IR_VERSION = 11
ROWS, VOCABULARY, COUNT = "rows", "vocabulary", "count"


def log_probabilities_graph(opset: int) -> onnx.ModelProto:
    """Returns a graph from logits to natural log-probabilities, float [R, V]; NaN, +inf or only -inf give NaN."""
    node = helper.make_node("LogSoftmax", [LOGITS], [LOG_PROBABILITIES], axis=-1)
    inputs, outputs = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, VOCABULARY])
        for name in (LOGITS, LOG_PROBABILITIES)
    )
    return _model(helper.make_graph([node], LOG_PROBABILITIES, [inputs], [outputs]), opset)


def topk_graph(opset: int) -> onnx.ModelProto:
    """Returns a graph that selects the `count` best tokens of each row.

    Inputs: scores, float [R, V], and the count, int64 [1]. Outputs, best first: scores, float [R, count], and token
    ids, int64 [R, count]; in a tie the lower id comes first.
    """
    scores, count = TOPK_INPUTS
    inputs = [
        helper.make_tensor_value_info(scores, TensorProto.FLOAT, [ROWS, VOCABULARY]),
        helper.make_tensor_value_info(count, TensorProto.INT64, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, [ROWS, COUNT])
        for name, kind in zip(TOPK_OUTPUTS, (TensorProto.FLOAT, TensorProto.INT64), strict=True)
    ]
    node = helper.make_node("TopK", [scores, count], list(TOPK_OUTPUTS), axis=-1)
    return _model(helper.make_graph([node], "topk", inputs, outputs), opset)


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
