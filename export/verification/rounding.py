"""A Transformer that computes in PyTorch what an 8-bit graph does: in floats, rounded where the graph rounds.

Written apart from `export.graphs.quantisation`, which it helps to verify. Sums are exact in the graph and rounded here,
and one activation that falls to the other side of a half moves what follows: the two agree as far as rounding lets
them, not to the last bit.
"""

from copy import deepcopy

from torch import Tensor, nn

from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel

LEVELS = 127  # on either side of zero
SMALLEST_MAXIMUM = 1e-12  # of a row of zeros, for which any scale will do


def rounded(model: TranslationModel) -> Transformer:
    """Returns a copy of a Transformer whose weights are rounded, and activations before every product.

    Raises:
        TypeError: if it is no Transformer: there are no 8-bit graphs of others.
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"{type(model).__name__}: expected a Transformer")
    copy = deepcopy(model)
    products = [module for module in copy.modules() if isinstance(module, nn.Linear)]
    weights = (*(module.weight for module in products), copy.source_weight, copy.target_weight)
    for weight in dict.fromkeys(weights):  # tied ones once
        weight.data = rounded_rows(weight.data)
    for module in products:
        module.register_forward_pre_hook(_round_input)
    # The product that gives the logits is a function, no module: what it reads comes from here.
    copy.decoder_norm.register_forward_hook(_round_output)
    return copy


def rounded_rows(values: Tensor) -> Tensor:
    """Rounds each row, float [..., D], to whole multiples of a 127th of its largest magnitude."""
    scales = values.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST_MAXIMUM) / LEVELS
    return (values / scales).round() * scales


def _round_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return rounded_rows(inputs[0])


def _round_output(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return rounded_rows(output)
