"""The kinds of layers that Table 1 of Vaswani et al. 2017 compares: each maps a sequence of states to another one.

They are here to be measured by `examples.attention.costs`, not to translate. Where a layer sees some positions only, it
looks back, as a decoder has to and a recurrent layer does by nature.

Shapes: B rows, N positions, D width, H heads, W positions in a window.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.network.attention import MultiHeadAttention

HEADS = 4
KERNEL = 3
WINDOW = 16


class SequenceLayer(nn.Module, ABC):
    """A layer in two forms that compute the same."""

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D] as fast as it can."""

    @abstractmethod
    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D], computing each one of those inputs alone that it depends on."""


class SelfAttention(SequenceLayer):
    """Every position attends to all positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, HEADS)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        heads = functional.scaled_dot_product_attention(*self.project(states))
        return self.merge(heads)

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]: each one depends on all."""
        return list(self(torch.stack(list(states))[None])[0].unbind())

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries, keys and values of states [B, N, D], each [B, H, N, D / H]."""
        attention = self.attention
        queries, keys, values = attention.query(states), attention.key(states), attention.value(states)
        return attention.split_heads(queries), attention.split_heads(keys), attention.split_heads(values)

    def merge(self, heads: Tensor) -> Tensor:
        """Maps what the heads have gathered, [B, H, N, D / H], to [B, N, D]."""
        merged: Tensor = self.attention.output(heads.transpose(1, 2).flatten(start_dim=2))
        return merged


class LocalSelfAttention(SelfAttention):
    """Every position attends to itself and the ones just before it: self-attention restricted to a window."""

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        queries, keys, values = self.project(states)
        positions = torch.arange(states.shape[1], device=states.device)
        slots = torch.arange(WINDOW, device=states.device)
        exists = positions[:, None] + slots >= WINDOW - 1  # [N, W]: before the first position there is none
        heads = functional.scaled_dot_product_attention(
            queries[:, :, :, None], look_back(keys), look_back(values), attn_mask=exists[:, None]
        )
        return self.merge(heads[:, :, :, 0])

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]: each one depends on W."""
        windows = (torch.stack(list(states[max(0, end - WINDOW) : end])) for end in range(1, len(states) + 1))
        return [self(window[None])[0, -1] for window in windows]


def look_back(states: Tensor) -> Tensor:
    """Returns the window of each position: [B, H, N, D] -> [B, H, N, W, D], zeros where there is no position."""
    return functional.pad(states, (0, 0, WINDOW - 1, 0)).unfold(2, WINDOW, 1).transpose(-1, -2)


class Recurrent(SequenceLayer):
    """Gated recurrent units: every position is computed of its input and of the position before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        outputs: Tensor = self.gru(states)[0]
        return outputs

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]: each one depends on its input and on the one before."""
        input_weight, hidden_weight, input_bias, hidden_bias = self.gru.all_weights[0]
        outputs: list[Tensor] = []
        for state in states:
            before = outputs[-1] if outputs else torch.zeros_like(state)
            following = torch.gru_cell(state[None], before[None], input_weight, hidden_weight, input_bias, hidden_bias)
            outputs.append(following[0])
        return outputs


class Convolution(SequenceLayer):
    """Every position is computed of KERNEL positions, `dilation` apart."""

    def __init__(self, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.dilation = dilation
        self.convolution = nn.Conv1d(width, width, KERNEL, dilation=dilation)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [B, N, D] to [B, N, D]."""
        padded = functional.pad(states.transpose(1, 2), ((KERNEL - 1) * self.dilation, 0))
        outputs: Tensor = self.convolution(padded)
        return outputs.transpose(1, 2)

    def unroll(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps N states [D] to N states [D]: each one depends on KERNEL."""
        before = [torch.zeros_like(states[0])] * ((KERNEL - 1) * self.dilation)
        padded = [*before, *states]
        kernels = (padded[end - len(before) : end + 1 : self.dilation] for end in range(len(before), len(padded)))
        weight, bias = self.convolution.weight, self.convolution.bias
        return [functional.conv1d(torch.stack(kernel, dim=-1)[None], weight, bias)[0, :, 0] for kernel in kernels]
