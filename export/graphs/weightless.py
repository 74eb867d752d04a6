"""Graphs without weights of the server's GPU, which fit every model.

They select tokens and move rows of memory as 32-bit words, whatever its type. They are part of the server, not of
bundles: `python -m dragoman.export.graphs.weightless` writes them to `serve/runtime/device_graphs`.

Shapes: R rows of a step, V vocabulary, K best tokens; N and P rows of two memory blocks with W words each; M copied
rows.
"""

from pathlib import Path

import onnx
from onnx import helper, parser

FOLDER = Path(__file__).parent.parent.parent / "serve" / "runtime" / "device_graphs"
# The version that ONNX 1.19 and later write for opset 24.
IR_VERSION = 11
# Every operator has a CUDA kernel at this version, which is not the newest.
DEVICE_OPSET = 20
# The file holds the graphs in ONNX's text format. A blank line separates them.
_TEXTS = Path(__file__).with_suffix(".onnxtxt").read_text(encoding="utf-8").split("\n\n")
GRAPHS: dict[str, onnx.GraphProto] = {graph.name: graph for graph in map(parser.parse_graph, _TEXTS)}


def weightless_graph(name: str, opset: int) -> onnx.ModelProto:
    """Returns the model of a graph of `weightless.onnxtxt`."""
    return helper.make_model(GRAPHS[name], opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def device_graphs() -> dict[str, onnx.ModelProto]:
    """Returns the device graphs by file name."""
    return {f"{name}.onnx": weightless_graph(name, DEVICE_OPSET) for name in GRAPHS}


if __name__ == "__main__":
    for file, model in device_graphs().items():
        onnx.save(model, FOLDER / file)
