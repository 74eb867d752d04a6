"""The graph that beam search chooses its candidates with: the most probable tokens of each row.

It has no weights and fits every model. ONNX Runtime finds the best few of a large vocabulary many times faster than
NumPy does.
"""

import onnx
from onnx import TensorProto, helper

from export.manifest import LOGITS, TOPK_INPUTS, TOPK_OUTPUTS

# The one that ONNX 1.19 and later write for opset 24.
IR_VERSION = 11


def topk_graph(opset: int) -> onnx.ModelProto:
    """Returns a graph that maps logits, float [R, V], and a count, int64 [1], to the `count` best tokens of each row.

    Its outputs are natural log-probabilities, float [R, count], best first, and token ids, int64 [R, count]; the lower
    id comes first in a tie.
    """
    rows, vocabulary, count = "rows", "vocabulary", "count"
    inputs = [
        helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, [rows, vocabulary]),
        helper.make_tensor_value_info(TOPK_INPUTS[1], TensorProto.INT64, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, [rows, count])
        for name, kind in zip(TOPK_OUTPUTS, (TensorProto.FLOAT, TensorProto.INT64), strict=True)
    ]
    nodes = [
        helper.make_node("LogSoftmax", [LOGITS], ["all_log_probabilities"], axis=-1),
        helper.make_node("TopK", ["all_log_probabilities", TOPK_INPUTS[1]], list(TOPK_OUTPUTS), axis=-1),
    ]
    graph = helper.make_graph(nodes, "topk", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
