"""Vectors that tell positions apart: attention alone does not know in which order its memory stands."""

import math
from typing import Literal

import torch
from torch import Tensor, nn


class Positions(nn.Module):
    """A vector for each position from 0 on, to be added to the embedding of the token there.

    sinusoidal: given by a formula (Vaswani et al. 2017, section 3.5); no parameter, in no checkpoint.
    learned: a parameter (Gehring et al. 2017, arXiv:1705.03122, section 3.1).
    """

    table: Tensor

    def __init__(self, kind: Literal["sinusoidal", "learned"], length: int, d_model: int) -> None:
        super().__init__()
        if kind == "learned":
            # As small as embeddings begin: it is for training to say how much a position counts.
            self.table = nn.Parameter(nn.init.normal_(torch.empty(length, d_model), std=d_model**-0.5))
        else:
            self.register_buffer("table", sinusoidal_positions(length, d_model), persistent=False)

    def forward(self, length: int, first: int = 0) -> Tensor:
        """Returns the vectors of positions first, first + 1, ..., [length, d_model]."""
        return self.table[first : first + length]


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Returns the position encodings, float32 [length, d_model] (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).
    """
    wavelengths = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = torch.arange(length)[:, None] * wavelengths  # [length, d_model / 2]
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(start_dim=1)
