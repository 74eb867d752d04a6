"""Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2) and the two masks that it needs.

Shapes: B rows, T query positions, S memory positions, H heads, D head size. A mask is True where attending is allowed.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """Returns a mask that hides padding from every query: ids [B, S] -> bool [B, 1, 1, S]."""
    return (ids != pad_id)[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Returns a mask that hides later positions: bool [1, 1, length, length]; row t may see columns 0..t."""
    positions = torch.arange(length, device=device)
    return (positions[None, :] <= positions[:, None])[None, None]


class MultiHeadAttention(nn.Module):
    """Lets every query position gather values from the memory positions that resemble it, H times in parallel.

    MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O, head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i), with
    Attention(Q, K, V) = softmax(Q K^T / sqrt(D)) V (Vaswani et al. 2017, equation 1 and section 3.2.2).
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, queries: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attends from queries [B, T, d_model] to memory [B, S, d_model].

        Args:
            queries: the positions that ask. Shape [B, T, d_model].
            memory: the positions that answer; the queries themselves in self-attention. Shape [B, S, d_model].
            mask: bool, broadcastable to [B, H, T, S].

        Returns:
            Shape [B, T, d_model].
        """
        heads = functional.scaled_dot_product_attention(
            self.split_heads(self.query(queries)),
            self.split_heads(self.key(memory)),
            self.split_heads(self.value(memory)),
            attn_mask=mask,
        )
        concatenated = heads.transpose(1, 2).flatten(start_dim=2)  # [B, T, d_model]
        projected: Tensor = self.output(concatenated)
        return projected

    def split_heads(self, states: Tensor) -> Tensor:
        """Cuts the width into heads: [B, T, d_model] -> [B, H, T, D]."""
        rows, length, width = states.shape
        return states.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
