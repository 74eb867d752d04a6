"""A graph of one layer, for a comparison with a plain reference."""

import warnings
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float32]


class Only(nn.Module):
    """A graph with one layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, states: Tensor) -> Tensor:
        output: Tensor = self.layer(states)
        return output


def session_of(layer: nn.Module, example: Tensor) -> Any:
    """Returns a session of the layer's graph, for any number of rows."""
    return session_of_module(Only(layer), example)


def session_of_module(module: nn.Module, *examples: Tensor) -> Any:
    """Returns a session of the graph of a module's forward, for any number of rows."""
    dynamic = tuple({0: torch.export.Dim.DYNAMIC} for _ in examples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        program = torch.onnx.export(module.eval(), examples, dynamo=True, dynamic_shapes=dynamic, verbose=False)
    assert program is not None
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


def run_layer(session: Any, states: NDArray[Any]) -> Array:
    (output,) = session.run(None, {session.get_inputs()[0].name: states})
    result: Array = output
    return result
