"""Linear layers in 8-bit integers whose activations have one scale each, fixed at export: static quantization.

`export.graphs.quantized_layers` computes a scale for every row in every step; here a step only rounds. Activations are
unsigned, and the integer that means zero is chosen so that none of the 256 is wasted: rectified ones begin at 0. What
lies outside of the range that was observed becomes the nearest value in it. A row's result depends on no other row.
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
# Of activations that were all zero: any scale will do that is no zero.
SMALLEST_RANGE = 1e-12


class StaticLinear(nn.Module):
    """`nn.Linear` with 8-bit weights, and 8-bit activations of a known range."""

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
        """Whether rounding makes every negative activation zero, so that nothing else has to."""
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
    """Between which values lay what the linear layers of a model read and wrote, by the name of each layer.

    Attributes:
        activations: what they read. The projection to the vocabulary is not among them: it decides the tokens, and
            keeps a scale for each row.
        caches: what those wrote that compute the keys and values of decoder layers.
    """

    activations: dict[str, ActivationRange]
    caches: dict[str, ActivationRange]


@torch.inference_mode()
def observe(model: Transformer, translations: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> Observed:
    """Has a model translate, and returns what was seen.

    Args:
        model: in evaluation mode.
        translations: source and target ids; one at a time, as padding would be observed as well.
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
    """Returns the names of the linear layers whose output a decoder layer caches, in the order of `CacheScales`."""
    attentions = "self_attention", "cross_attention"
    return tuple(f"decoder.{layer}.{attention}.{part}" for attention in attentions for part in ("key", "value"))


def cache_scale(known: ActivationRange) -> float:
    """Returns what the integer 1 stands for in a cache: the scale is symmetric, as the operator has no zero point."""
    return max(-known.smallest, known.largest, SMALLEST_RANGE) / LARGEST


def _widen(ranges: dict[str, ActivationRange], name: str, states: Tensor) -> None:
    before = ranges.get(name, ActivationRange(smallest=0, largest=0))
    smallest, largest = states.aminmax()
    ranges[name] = ActivationRange(
        smallest=min(before.smallest, smallest.item()), largest=max(before.largest, largest.item())
    )
