"""The graph of the server's GPU that selects tokens. It has no weights and fits every model.

It is part of the server, not of bundles: `python -m dragoman.export.graphs.weightless` writes it to
`serve/runtime/device_graphs`.

Shapes: R rows of a step, V vocabulary, K best tokens.
"""

from pathlib import Path

import onnx
from onnx import helper, parser

FILE = Path(__file__).parent.parent.parent / "serve" / "runtime" / "device_graphs" / "choose.onnx"
# The version that ONNX 1.19 and later write for opset 24.
IR_VERSION = 11
# Every operator has a CUDA kernel at this version, which is not the newest.
DEVICE_OPSET = 20


def choose_graph() -> onnx.ModelProto:
    """Returns the graph, which another file holds in ONNX's text format."""
    graph = parser.parse_graph(Path(__file__).with_suffix(".onnxtxt").read_text(encoding="utf-8"))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", DEVICE_OPSET)], ir_version=IR_VERSION)


if __name__ == "__main__":
    onnx.save(choose_graph(), FILE)
