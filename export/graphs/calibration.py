"""Static quantization: 8-bit linear layers whose activation scales are fixed at export.

A step only rounds; `export.graphs.quantized_layers` computes one scale per row instead. Activations are uint8 with a
zero point that uses all 256 values: ReLU outputs start at 0. Values outside the observed range are clipped. A row's
result depends on no other row.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from export.graphs.quantized_layers import LARGEST, QuantizedMatrix, multiply_integers, multiply_to_float, quantize
from export.graphs.transformer import frozen
from model.network.transformer import Transformer
from serve.bundle.manifest import ActivationRange, GraphVariant

LEVELS = 255
# For activations that are all zero; any positive scale works.
SMALLEST_RANGE = 1e-12


class StaticLinear(nn.Module):
    """`nn.Linear` with 8-bit weights and 8-bit activations of a fixed range."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, linear: nn.Linear, variant: GraphVariant, activations: ActivationRange) -> None:
        super().__init__()
        self.matrix = QuantizedMatrix(linear.weight, variant)
        self.bias = None if linear.bias is None else frozen(linear.bias)
        scale = max(activations.largest - activations.smallest, SMALLEST_RANGE) / LEVELS
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("zero_point", torch.tensor(round(-activations.smallest / scale), dtype=torch.uint8))
        self._multiply = self._multiply_by_standard if variant == "portable" else self._multiply_by_contrib

    def forward(self, states: Tensor) -> Tensor:
        """Maps states [..., in] to [..., out]."""
        return self._multiply(quantize(states, self.scale, self.zero_point))

    @property
    def rectifies(self) -> bool:
        """True if quantization maps negative activations to zero, so that a ReLU is redundant."""
        return int(self.zero_point) == 0

    def _multiply_by_contrib(self, values: Tensor) -> Tensor:
        matrix = self.matrix
        return multiply_to_float(values, matrix.quantized.T, self.scale, matrix.scales, self.zero_point, bias=self.bias)

    def _multiply_by_standard(self, values: Tensor) -> Tensor:
        matrix = self.matrix
        product = multiply_integers(values, matrix.quantized.T, self.zero_point)
        scaled = product.to(matrix.scales.dtype) * (matrix.scales * self.scale)
        return scaled if self.bias is None else scaled + self.bias


class Observed(NamedTuple):
    """Observed value ranges by name of the linear layer.

    Attributes:
        activations: ranges of inputs. The output projection is not included: it keeps one scale per row, because it
            decides the tokens.
        caches: ranges of outputs that become cached keys and values.
    """

    activations: dict[str, ActivationRange]
    caches: dict[str, ActivationRange]


@torch.inference_mode()
def observe(model: Transformer, translations: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> Observed:
    """Runs a model in evaluation mode on pairs of source and target ids, and returns the observed ranges.

    The pairs run one by one, because padding would count as activations.
    """
    observed = Observed({}, {})
    cached = {name for layer in range(len(model.decoder_layers)) for name in cached_layers(layer)}

    def watch(name: str, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _widen(observed.activations, name, inputs[0])
        if name in cached:
            _widen(observed.caches, name, output)

    hooks = [
        module.register_forward_hook(lambda _, inputs, output, name=name: watch(name, inputs, output))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        for source_ids, target_ids in translations:
            model(torch.tensor([source_ids]), torch.tensor([[model.bos_id, *target_ids]]))
    finally:
        for hook in hooks:
            hook.remove()
    return observed


def cached_layers(layer: int) -> tuple[str, ...]:
    """Returns the linear layers whose outputs a decoder layer caches, in the order of `CacheScales`."""
    attentions = "self_attention", "cross_attention"
    return tuple(f"decoder.{layer}.{attention}.{part}" for attention in attentions for part in ("key", "value"))


def cache_scale(known: ActivationRange) -> float:
    """Returns the scale of a cache. It is symmetric, because the operator has no zero point."""
    return max(-known.smallest, known.largest, SMALLEST_RANGE) / LARGEST


def _widen(ranges: dict[str, ActivationRange], name: str, states: Tensor) -> None:
    before = ranges.get(name, ActivationRange(smallest=0, largest=0))
    smallest, largest = states.aminmax()
    ranges[name] = ActivationRange(
        smallest=min(before.smallest, smallest.item()), largest=max(before.largest, largest.item())
    )
