"""Multi-head scaled dot-product attention, its masks, and positions (Vaswani et al. 2017, sections 3.2 and 3.5).

Shapes: B rows, T query positions, S memory positions, H heads, D head size. A mask is True where attending is allowed.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Positions(nn.Module):
    """A vector per position from 0 on, added to the token embedding.

    sinusoidal: fixed by a formula (Vaswani et al. 2017, section 3.5) and not stored in checkpoints. learned: a
    parameter (Gehring et al. 2017, arXiv:1705.03122, section 3.1).
    """

    table: Tensor

    def __init__(self, kind: Literal["sinusoidal", "learned"], length: int, d_model: int) -> None:
        super().__init__()
        if kind == "learned":
            # Starts at the scale of unscaled embeddings; training determines how much a position counts.
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
    """Keys and values of a memory, each float [B, H, S, D]."""

    keys: Tensor
    values: Tensor

    def followed_by(self, new: "KeysValues") -> "KeysValues":
        """Returns these positions followed by the new ones."""
        return KeysValues(torch.cat((self.keys, new.keys), dim=2), torch.cat((self.values, new.values), dim=2))


def padding_mask(valid: Tensor) -> Tensor:
    """Hides padding from every query: bool [B, S], True at tokens, -> bool [B, 1, 1, S]."""
    return valid[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Hides later positions: bool [1, 1, length, length]; row t sees columns 0..t."""
    positions = torch.arange(length, device=device)
    return (positions[None, :] <= positions[:, None])[None, None]


class MultiHeadAttention(nn.Module):
    """Attention of every query position to the memory positions, in H parallel heads.

    MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O, head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i) (Vaswani et al.
    2017, section 3.2.2). `project` is separate from `forward`, so that decode steps can cache the projected memory.
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def project(self, memory: Tensor) -> KeysValues:
        """Returns the keys and values of memory states [B, S, d_model]."""
        return KeysValues(self.split_heads(self.key(memory)), self.split_heads(self.value(memory)))

    def forward(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Attends from queries [B, T, d_model]; `mask`, bool, broadcasts to [B, H, T, S], None shows all."""
        heads = attend(self.split_heads(self.query(queries)), memory, mask)
        concatenated = heads.transpose(1, 2).flatten(start_dim=2)  # [B, T, d_model]
        projected: Tensor = self.output(concatenated)
        return projected

    def weights(self, queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Returns the attention weights of `forward`, [B, H, T, S]; each row sums to 1."""
        return attention_weights(self.split_heads(self.query(queries)), memory.keys, mask)

    def split_heads(self, states: Tensor) -> Tensor:
        """Splits the width into heads: [B, T, d_model] -> [B, H, T, D]."""
        rows, length, width = states.shape
        return states.view(rows, length, self.heads, width // self.heads).transpose(1, 2)


def attend(queries: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V (Vaswani et al. 2017, equation 1).

    Maps queries [B, H, T, D] to [B, H, T, D]. `mask` is bool, broadcastable to [B, H, T, S]; None shows everything.
    """
    if queries.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        # The CPU's backward pass through attention is ten times slower in bfloat16 than in float32.
        with torch.autocast("cpu", enabled=False):
            return functional.scaled_dot_product_attention(
                queries.float(), memory.keys.float(), memory.values.float(), attn_mask=mask
            )
    return functional.scaled_dot_product_attention(queries, memory.keys, memory.values, attn_mask=mask)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the factors of the values in `attend`, softmax(Q K^T / sqrt(D)).

    Maps queries [B, H, T, D] and keys [B, H, S, D] to [B, H, T, S]. `mask` is as in `attend`.
    """
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)
