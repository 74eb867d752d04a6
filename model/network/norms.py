"""The two normalisations of a position's states. Residual connections use them, and the ends of pre-norm stacks."""

from typing import Literal

from torch import nn

# Added under the square root. The papers have none, and a state of zeros would divide by zero.
EPSILON = 1e-5

Norm = nn.LayerNorm | nn.RMSNorm


def build_norm(kind: Literal["layer", "rms"], d_model: int) -> Norm:
    """Returns a normalisation over the last axis, with a learned gain g for each unit.

    layer: (x - mean(x)) / sqrt(var(x) + EPSILON) * g + b (Ba et al. 2016, arXiv:1607.06450, section 3).
    rms: x / sqrt(mean(x^2) + EPSILON) * g (Zhang and Sennrich 2019, arXiv:1910.07467, equation 4).
    """
    if kind == "rms":
        return nn.RMSNorm(d_model, eps=EPSILON)
    return nn.LayerNorm(d_model, eps=EPSILON)
