"""Attention by ONNX Runtime's own GroupQueryAttention, which on a CPU is faster than the standard operators.

It takes packed projections as they come from one matrix product, writes caches in place, and works as long as the real
lengths are, whatever the capacity.
"""

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out

from export.graphs.attention import AttentionOperators

OPERATOR = "com.microsoft::GroupQueryAttention"


class ContribAttention(AttentionOperators):
    """One operator in three uses."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Has no past and is not causal: it does no work for padding."""
        rows, length, packed = qkv.shape
        cache_shape = (rows, self.heads, length, packed // 3 // self.heads)
        output, _, _ = symbolic_multi_out(
            OPERATOR,
            [qkv, None, None, None, None, lengths - 1, int32_scalar(length)],
            {"num_heads": self.heads, "kv_num_heads": self.heads, "causal": 0},
            dtypes=(qkv.dtype, qkv.dtype, qkv.dtype),
            shapes=((rows, length, packed // 3), cache_shape, cache_shape),
            version=1,
        )
        return output

    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Is what the operator was made for."""
        rows, _, packed = qkv.shape
        output, present_key, present_value = symbolic_multi_out(
            OPERATOR,
            [qkv, None, None, past_key, past_value, positions, int32_scalar(past_key.shape[2])],
            {"num_heads": self.heads, "kv_num_heads": self.heads},
            dtypes=(qkv.dtype, qkv.dtype, qkv.dtype),
            shapes=((rows, 1, packed // 3), past_key.shape, past_value.shape),
            version=1,
        )
        return output, present_key, present_value

    def attend_to_source(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Borrows the operator made for self-attention: the source is the past, and nothing new is appended."""
        nothing = nothing_new(query)
        output: Tensor = symbolic(
            OPERATOR,
            [query, nothing, nothing, key, value, lengths - 1, int32_scalar(key.shape[2])],
            {"num_heads": self.heads, "kv_num_heads": self.heads},
            dtype=query.dtype,
            shape=query.shape,
            version=1,
        )
        return output, ()


def nothing_new(query: Tensor) -> Tensor:
    """Returns keys or values of no position; the same in all layers, so that they are computed once."""
    return query.new_zeros(query.shape[0], 0, query.shape[2])


def int32_scalar(value: int) -> Tensor:
    """Returns a size as the int32 tensor that the operator wants."""
    return torch.scalar_tensor(value, dtype=torch.int32)
