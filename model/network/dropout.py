"""Dropout that does not wait for the CPU's random numbers.

The CPU draws a Bernoulli variable for each unit, which takes longer than the layers around it. One byte of a random
integer is as good: a 64-bit draw decides over eight units.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

_UNITS_PER_DRAW = 8  # bytes of an int64
_BYTE_VALUES = 256
# From here on, all 64 bits are random. Without a lower bound the sign is not, and the byte that holds it not uniform.
_LOWEST = torch.iinfo(torch.int64).min


class Dropout(nn.Module):
    """Sets units to zero in training and scales the others, so that the expectation stays (Srivastava et al. 2014).

    On the CPU the probability is rounded to a multiple of 1/256; the scale is that of the rounded one.

    Attributes:
        share: of the probability that is in force; a training may begin without dropout.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.share = 1.0

    def forward(self, states: Tensor) -> Tensor:
        """Drops units of a tensor of any shape, in training alone."""
        probability = self.share * self.probability
        if not self.training or probability == 0:
            return states
        if states.device.type != "cpu":
            return functional.dropout(states, probability)
        dropped_values = min(round(_BYTE_VALUES * probability), _BYTE_VALUES - 1)
        kept = random_bytes(states.numel()).view(states.shape) >= dropped_values
        return states * kept.to(states.dtype).mul_(_BYTE_VALUES / (_BYTE_VALUES - dropped_values))


def random_bytes(count: int) -> Tensor:
    """Returns independent, uniform bytes, uint8 [count], from PyTorch's global generator."""
    draws = torch.empty(-(-count // _UNITS_PER_DRAW), dtype=torch.int64).random_(_LOWEST, None)
    return draws.view(torch.uint8)[:count]
