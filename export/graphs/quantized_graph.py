"""Replaces the layers of a graph's module by 8-bit layers.

Linear layers, embeddings and the output projection are replaced. Normalization, attention and residual connections stay
float32. Products of the same activations share their quantization, because ONNX Runtime merges equal nodes.
"""

from collections.abc import Mapping
from copy import deepcopy

from torch import Tensor, nn
from torch.nn import functional

from export.graphs.calibration import StaticLinear
from export.graphs.quantized_layers import QuantizedEmbedding, QuantizedLinear
from export.graphs.transformer import Embedding, PackedProjection, Projection
from model.network.layers import FeedForward
from serve.bundle.manifest import ActivationRange, GraphVariant

Ranges = Mapping[nn.Module, ActivationRange]


def quantized(graph: nn.Module, variant: GraphVariant, ranges: Ranges) -> nn.Module:
    """Returns a copy of a graph's module that computes in 8-bit integers. It can be exported, but not run by PyTorch.

    Linear layers without a range in `ranges` get one scale per row.
    """
    copy = deepcopy(graph)
    _replace_children(graph, copy, variant, ranges)
    return copy


def _replace_children(module: nn.Module, copy: nn.Module, variant: GraphVariant, ranges: Ranges) -> None:
    for name, child in module.named_children():
        replacement = _replacement(child, variant, ranges)
        if replacement is None:
            _replace_children(child, copy.get_submodule(name), variant, ranges)
        else:
            setattr(copy, name, replacement)
    if isinstance(copy, FeedForward) and copy.activation is functional.relu:
        outer: nn.Module = copy.outer
        if isinstance(outer, StaticLinear) and outer.rectifies:
            copy.activation = _unchanged


def _replacement(child: nn.Module, variant: GraphVariant, ranges: Ranges) -> nn.Module | None:
    if isinstance(child, Embedding):
        return QuantizedEmbedding(child, variant)
    if isinstance(child, Projection):
        return QuantizedLinear(child, variant)
    if not isinstance(child, nn.Linear):
        return None
    # A packed projection reads the same input as its parts.
    activations = ranges.get(child.parts[0] if isinstance(child, PackedProjection) else child)
    return QuantizedLinear(child, variant) if activations is None else StaticLinear(child, variant, activations)


def _unchanged(states: Tensor) -> Tensor:
    return states
