"""Graphs without weights, which fit every model: those next to the decoder in a bundle, and those of the server's GPU.

The search graphs of bundles run between decoder steps; ONNX Runtime computes them several times faster than NumPy. The
device graphs select tokens and move rows of memory as 32-bit words, whatever its type. They are part of the server, not
of bundles: `python -m dragoman.export.graphs.weightless` writes them to `serve/runtime/cuda/device_graphs`.

Shapes: R rows of a step, V vocabulary, K best tokens; N and P rows of two memory blocks with W words each; M copied
rows.
"""

from pathlib import Path

import onnx
from onnx import helper, parser

FOLDER = Path(__file__).parent.parent.parent / "serve" / "runtime" / "cuda" / "device_graphs"
# The version that ONNX 1.19 and later write for opset 24.
IR_VERSION = 11
# Every operator has a CUDA kernel at this version, which is not the newest.
DEVICE_OPSET = 20
# NaN, +inf or only -inf in a row give NaN.
LOG_PROBABILITIES_GRAPH = """
log_probabilities (float[R, V] logits) => (float[R, V] log_probabilities)
{
    log_probabilities = LogSoftmax <axis = -1> (logits)
}"""
# The best tokens come first; in a tie the lower id comes first.
TOPK_GRAPH = """
topk (float[R, V] scores, int64[1] count) => (float[R, K] best_scores, int64[R, K] token_ids)
{
    best_scores, token_ids = TopK <axis = -1> (scores, count)
}"""
DEVICE_GRAPHS = (
    TOPK_GRAPH,
    # The best token of each row, the lower id in a tie, and its log-probability. `last_id` is that of the vocabulary. A
    # row with NaN, with +inf or with only -inf gets NaN log-probabilities but a valid id: an index out of bounds would
    # destroy the CUDA context.
    """
choose (float[R, V] logits, int64[1, 1] last_id)
    => (float[R, V] log_probabilities, int64[R, 1] token_ids, float[R, 1] token_scores)
    <int64[1] one = {1}, int64[1, 1] zero = {0}>
{
    log_probabilities = LogSoftmax <axis = -1> (logits)
    _, ranked_ids = TopK <axis = -1> (logits, one)
    positive_ids = Max (ranked_ids, zero)
    token_ids = Min (positive_ids, last_id)
    token_scores = GatherElements <axis = 1> (log_probabilities, token_ids)
}""",
    """
token_scores (float[R, V] log_probabilities, int64[R, 1] token_ids) => (float[R, 1] token_scores)
{
    token_scores = GatherElements <axis = 1> (log_probabilities, token_ids)
}""",
    # The output is the target; bound to the same memory, it is updated in place. The source may share that memory: all
    # reads precede the writes.
    """
copy_rows (float[N, W] source, float[P, W] target, int64[M] source_rows, int64[M, 1] target_rows)
    => (float[P, W] copied)
{
    rows = Gather <axis = 0> (source, source_rows)
    copied = ScatterND (target, target_rows, rows)
}""",
    """
gather_rows (float[N, W] source, int64[M] source_rows) => (float[M, W] rows)
{
    rows = Gather <axis = 0> (source, source_rows)
}""",
    # The old positions of another capacity of caches.
    """
resize (float[R, H, C, D] source, int64[P] positions) => (float[R, H, P, D] resized)
{
    resized = Gather <axis = 2> (source, positions)
}""",
    # Memory that a device allocates.
    """
zeros (int64[1] words) => (float[W] zeros)
{
    zeros = ConstantOfShape (words)
}""",
)


def read_graph(text: str, opset: int) -> onnx.ModelProto:
    """Returns the model of a graph in ONNX's text format."""
    graph = parser.parse_graph(text)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def device_graphs() -> dict[str, onnx.ModelProto]:
    """Returns the device graphs by file name."""
    models = (read_graph(text, DEVICE_OPSET) for text in DEVICE_GRAPHS)
    return {f"{model.graph.name}.onnx": model for model in models}


if __name__ == "__main__":
    for file, model in device_graphs().items():
        onnx.save(model, FOLDER / file)
