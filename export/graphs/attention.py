"""Attention operators of graphs with states, which run on GPUs.

GroupQueryAttention takes packed projections and writes caches in place; in fp16 with a shared buffer it reaches the
fastest kernel. The CUDA kernel of MultiHeadAttention takes row lengths.

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, W = H * D, C cache capacity.
"""

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out


class CudaAttention:
    """The three kinds of attention, in operators of ONNX Runtime.

    Every row has its own valid length and reads nothing beyond it. A row's result therefore depends neither on padding
    nor on other rows.
    """

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Computes the encoder's self-attention.

        MultiHeadAttention with lengths requires separate inputs, so the packed projections are split.

        Args:
            qkv: concatenated queries, keys and values, [B, S, 3 * W].
            lengths: valid positions per row, int32 [B].

        Returns:
            States [B, S, W]; undefined beyond a row's length.
        """
        query, key, value = qkv.chunk(3, dim=-1)
        return self._attend(query, key, value, lengths)

    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the decoder's self-attention of one new position per row.

        Args:
            qkv: concatenated queries, keys and values of the new position, [R, 1, 3 * W].
            past_key: cached keys, [R, H, C, D].
            past_value: cached values, [R, H, C, D].
            positions: valid positions per row before this one, int32 [R].

        Returns:
            States [R, 1, W], and both caches including the new position.
        """
        rows, _, packed = qkv.shape
        capacity = torch.scalar_tensor(past_key.shape[2], dtype=torch.int32)
        output, present_key, present_value = symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            [qkv, None, None, past_key, past_value, positions, capacity],
            {"num_heads": self.heads, "kv_num_heads": self.heads},
            dtypes=(qkv.dtype, qkv.dtype, qkv.dtype),
            shapes=((rows, 1, packed // 3), past_key.shape, past_value.shape),
            version=1,
        )
        return output, present_key, present_value

    def attend_to_source(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        """Computes the cross-attention of one position per row.

        Args:
            query: [R, 1, W].
            key: source keys, [R, H, C, D].
            value: source values, [R, H, C, D].
            lengths: valid source tokens per row, int32 [R].

        Returns:
            States [R, 1, W].
        """
        return self._attend(query, key, value, lengths)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        output: Tensor = symbolic(
            "com.microsoft::MultiHeadAttention",
            [query, key, value, None, lengths],
            {"num_heads": self.heads},
            dtype=query.dtype,
            shape=query.shape,
            version=1,
        )
        return output
