"""Replaces the layers of a graph's module by 8-bit layers.

Linear layers, embeddings and the output projection are replaced. Normalization, attention and residual connections stay
float32. Products of the same activations share their quantization, because ONNX Runtime merges equal nodes.
"""

from copy import deepcopy

from torch import nn

from dragoman.export.graphs.quantized_layers import QuantizedEmbedding, QuantizedLinear
from dragoman.export.graphs.transformer import Embedding, Projection


def quantized(graph: nn.Module) -> nn.Module:
    """Returns a copy of a graph's module that computes in 8-bit integers; PyTorch can export it, but not run it."""
    copy = deepcopy(graph)
    _replace_children(copy)
    return copy


def _replace_children(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, Embedding):
            setattr(module, name, QuantizedEmbedding(child))
        elif isinstance(child, nn.Linear | Projection):
            setattr(module, name, QuantizedLinear(child))
        else:
            _replace_children(child)
