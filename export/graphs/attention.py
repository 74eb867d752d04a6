"""Attention operators of graphs with states, one class per graph variant.

`CudaAttention` uses operators of ONNX Runtime. GroupQueryAttention takes packed projections and writes caches in place;
in fp16 with a shared buffer it reaches the fastest kernel. The CUDA kernel of MultiHeadAttention takes row lengths.
`StandardAttention` uses only ONNX opset 24: TensorScatter writes the caches and Attention reads them up to each row's
length.

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, W = H * D, C cache capacity.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out


class AttentionOperators(ABC):
    """The operators for the three kinds of attention.

    Every row has its own valid length and reads nothing beyond it. A row's result therefore depends neither on padding
    nor on other rows.
    """

    def __init__(self, heads: int) -> None:
        self.heads = heads

    @abstractmethod
    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Computes the encoder's self-attention.

        Args:
            qkv: concatenated queries, keys and values, [B, S, 3 * W].
            lengths: valid positions per row, int32 [B].

        Returns:
            States [B, S, W]; undefined beyond a row's length.
        """

    @abstractmethod
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

    @abstractmethod
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


class CudaAttention(AttentionOperators):
    """Attention for NVIDIA GPUs."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Splits the packed projections, because MultiHeadAttention with lengths requires separate inputs."""
        query, key, value = qkv.chunk(3, dim=-1)
        return self._attend(query, key, value, lengths)

    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Appends the new position to the caches and attends."""
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
        """Reads the caches as [R, H, C, D]."""
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


OPSET = 24


class StandardAttention(AttentionOperators):
    """Attention by the operators TensorScatter and Attention of the ONNX standard."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Passes [B, S, W]; the operator splits the heads."""
        query, key, value = qkv.chunk(3, dim=-1)
        heads = {"q_num_heads": self.heads, "kv_num_heads": self.heads}
        return _attention(query, key, value, lengths, heads)

    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Writes the new position into the caches, then reads them."""
        query, key, value = (part[:, :, None] for part in self._split(qkv, 3).unbind(1))  # [R, H, 1, D] each
        present_key, present_value = _scatter(past_key, key, positions), _scatter(past_value, value, positions)
        attended = _attention(query, present_key, present_value, positions + 1)
        return attended.flatten(start_dim=2).view(-1, 1, qkv.shape[2] // 3), present_key, present_value

    def attend_to_source(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        """Reads the caches; writes nothing."""
        heads = self._split(query, 1).transpose(1, 2)  # [R, H, 1, D]
        return _attention(heads, key, value, lengths).reshape(query.shape)

    def _split(self, states: Tensor, parts: int) -> Tensor:
        """Splits one position into heads: [R, 1, parts * W] -> [R, parts, H, D]."""
        return states.view(-1, parts, self.heads, states.shape[2] // parts // self.heads)


def _scatter(cache: Tensor, new: Tensor, positions: Tensor) -> Tensor:
    inputs = [cache, new, positions.to(torch.int64)]
    written: Tensor = symbolic(
        "::TensorScatter", inputs, {"axis": 2}, dtype=cache.dtype, shape=cache.shape, version=OPSET
    )
    return written


def _attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, attributes: Mapping[str, int] | None = None
) -> Tensor:
    inputs = [query, key, value, None, None, None, lengths.to(torch.int64)]
    attended: Tensor = symbolic(
        "::Attention", inputs, {**(attributes or {})}, dtype=query.dtype, shape=query.shape, version=OPSET
    )
    return attended
