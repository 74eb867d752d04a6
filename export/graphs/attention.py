"""Attention operators of the exported graphs, one class per graph variant.

`ContribAttention` (CPU) uses ONNX Runtime's GroupQueryAttention: packed projections, caches written in place, and time
proportional to valid lengths. `CudaAttention` adds MultiHeadAttention, whose CUDA kernel takes row lengths;
self-attention in fp16 with a shared buffer reaches the fastest kernel. `StandardAttention` uses only ONNX opset 24:
TensorScatter writes the caches and Attention reads them up to each row's length.

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, W = H * D, C cache capacity.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out

from model.network.attention import KeysValues
from serve.bundle.manifest import Element


class AttentionOperators(ABC):
    """The operators for the three kinds of attention.

    Every row has its own valid length and reads nothing beyond it. A row's result therefore depends neither on padding
    nor on other rows. `element` is the number type of the caches.
    """

    element: Element = "float"

    def __init__(self, heads: int) -> None:
        self.heads = heads

    # an operator may be the same in all layers
    def in_decoder_layer(self, number: int) -> "AttentionOperators":  # noqa: ARG002
        """Returns the operators of one decoder layer."""
        return self

    def keep(self, source: KeysValues) -> KeysValues:
        """Converts source keys and values, float [B, H, S, D], to the cache's number type."""
        return source

    def kept_keys(self, key: Tensor) -> Tensor:
        """Converts cached source keys of any shape to floats."""
        return key

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
    def attend_to_source(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Computes the cross-attention of one position per row.

        Args:
            query: [R, 1, W].
            key: source keys, [R, H, C, D].
            value: source values, [R, H, C, D].
            lengths: valid source tokens per row, int32 [R].

        Returns:
            States [R, 1, W], and both caches if the operator has them as outputs.
        """


OPERATOR = "com.microsoft::GroupQueryAttention"


class ContribAttention(AttentionOperators):
    """Attention by ONNX Runtime's GroupQueryAttention."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Runs without past and without a causal mask; padding costs no work."""
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
        """Appends the new position to the caches and attends."""
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
        """Passes the source as the past and appends nothing."""
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
    """Returns empty keys or values. All layers share them, so the graph computes them once."""
    return query.new_zeros(query.shape[0], 0, query.shape[2])


def int32_scalar(value: int) -> Tensor:
    """Returns an int32 scalar, the size type of the operator."""
    return torch.scalar_tensor(value, dtype=torch.int32)


class CudaAttention(ContribAttention):
    """Attention for NVIDIA GPUs; inherits the decoder's self-attention."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Splits the packed projections, because MultiHeadAttention with lengths requires separate inputs."""
        query, key, value = qkv.chunk(3, dim=-1)
        return self._attend(query, key, value, lengths)

    def attend_to_source(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[()]]:
        """Reads the caches as [R, H, C, D]."""
        return self._attend(query, key, value, lengths), ()

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

    def attend_to_source(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[()]]:
        """Reads the caches; writes nothing."""
        heads = self._split(query, 1).transpose(1, 2)  # [R, H, 1, D]
        return _attention(heads, key, value, lengths).reshape(query.shape), ()

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
