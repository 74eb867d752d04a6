"""Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2) and the two masks that it needs.

Shapes: B rows, T query positions, S memory positions, H heads, D head size. A mask is True where attending is allowed.

Vectors that tell positions apart: attention alone does not know in which order its memory stands.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


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


class KeysValues(NamedTuple):
    """A memory as attention reads it: keys to be compared with queries, and the values to be gathered.

    Attributes:
        keys: float [B, H, S, D].
        values: float [B, H, S, D].
    """

    keys: Tensor
    values: Tensor

    def followed_by(self, new: "KeysValues") -> "KeysValues":
        """Returns these positions and, behind them, the new ones."""
        return KeysValues(torch.cat((self.keys, new.keys), dim=2), torch.cat((self.values, new.values), dim=2))


def padding_mask(valid: Tensor) -> Tensor:
    """Returns a mask that hides padding from every query: bool [B, S], True at tokens, -> bool [B, 1, 1, S]."""
    return valid[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Returns a mask that hides later positions: bool [1, 1, length, length]; row t may see columns 0..t."""
    positions = torch.arange(length, device=device)
    return (positions[None, :] <= positions[:, None])[None, None]


class MultiHeadAttention(nn.Module):
    """Lets every query position gather values from the memory positions that resemble it, H times in parallel.

    MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O, head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i) (Vaswani et al.
    2017, section 3.2.2). The memory is projected apart from the attending, so that it can be kept between steps.
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def project(self, memory: Tensor) -> KeysValues:
        """Returns the keys and values of memory states [B, S, d_model]; of the queries' own, in self-attention."""
        return KeysValues(self.split_heads(self.key(memory)), self.split_heads(self.value(memory)))

    def forward(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Attends from states [B, T, d_model] to a memory.

        Args:
            queries: the positions that ask. Shape [B, T, d_model].
            memory: the positions that answer.
            mask: bool, broadcastable to [B, H, T, S]; None shows everything.

        Returns:
            Shape [B, T, d_model].
        """
        heads = attend(self.split_heads(self.query(queries)), memory, mask)
        concatenated = heads.transpose(1, 2).flatten(start_dim=2)  # [B, T, d_model]
        projected: Tensor = self.output(concatenated)
        return projected

    def weights(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Returns how much each query attends to each position, where `forward` returns what it gathers.

        Args:
            queries: as in `forward`.
            memory: as in `forward`.
            mask: as in `forward`.

        Returns:
            Shape [B, H, T, S]; each row sums to 1.
        """
        return attention_weights(self.split_heads(self.query(queries)), memory.keys, mask)

    def split_heads(self, states: Tensor) -> Tensor:
        """Cuts the width into heads: [B, T, d_model] -> [B, H, T, D]."""
        rows, length, width = states.shape
        return states.view(rows, length, self.heads, width // self.heads).transpose(1, 2)


def attend(queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V (Vaswani et al. 2017, equation 1).

    Args:
        queries: [B, H, T, D].
        memory: S positions.
        mask: bool, broadcastable to [B, H, T, S]; None shows everything.

    Returns:
        Shape [B, H, T, D].
    """
    if queries.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        # The CPU's backward pass through attention is ten times slower in bfloat16 than in float32.
        with torch.autocast("cpu", enabled=False):
            return functional.scaled_dot_product_attention(
                queries.float(), memory.keys.float(), memory.values.float(), attn_mask=mask
            )
    return functional.scaled_dot_product_attention(queries, memory.keys, memory.values, attn_mask=mask)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the factors of the values in `attend`, softmax(Q K^T / sqrt(D)) (Vaswani et al. 2017, equation 1).

    Args:
        queries: [B, H, T, D].
        keys: [B, H, S, D].
        mask: bool, broadcastable to [B, H, T, S]; None shows everything.

    Returns:
        Shape [B, H, T, S].
    """
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)
