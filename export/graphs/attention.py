"""The seam between the graphs of a Transformer and the operators that attention is made of.

A graph is for ONNX Runtime's own operators (`contrib_attention`) or for the standard alone (`standard_attention`). What
they compute is the same; so are the caches, unless they are kept in 8-bit integers (`quantized_attention`).

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, W = H * D, C capacity of a cache.

Attention by ONNX Runtime's own GroupQueryAttention, which on a CPU is faster than the standard operators.

It takes packed projections as they come from one matrix product, writes caches in place, and works as long as the real
lengths are, whatever the capacity.

Attention for NVIDIA GPUs: the operators whose CUDA kernels take lengths of rows instead of masks.

Self-attention of the decoder is GroupQueryAttention as on the CPU: one new token, 16-bit numbers and a shared buffer
reach its fastest kernel. Elsewhere it is MultiHeadAttention, which reads lengths as a one-dimensional padding mask.

Attention by the operators of the ONNX standard, opset 24: graphs that any runtime of that opset can compute.

TensorScatter writes the caches, Attention reads them up to each row's length.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.onnx.ops import symbolic, symbolic_multi_out

from model.network.attention import KeysValues
from serve.bundle.manifest import Element


class AttentionOperators(ABC):
    """Attention in its three places. Every row has a length of its own, behind which nothing is read.

    So a row's result depends neither on padding nor on the rows beside it.

    Attributes:
        element: what the caches are made of.
    """

    element: Element = "float"

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def in_decoder_layer(self, number: int) -> "AttentionOperators":  # noqa: ARG002 - they may be the same everywhere
        """Returns the operators of one decoder layer."""
        return self

    def keep(self, source: KeysValues) -> KeysValues:
        """Returns the keys and values of a source, float [B, H, S, D], as a decoder layer's caches hold them."""
        return source

    def kept_keys(self, key: Tensor) -> Tensor:
        """Returns source keys of a layer's cache, of any shape, in floats."""
        return key

    @abstractmethod
    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Attends among the positions of a source.

        Args:
            qkv: queries, keys and values side by side. Shape [B, S, 3 * W].
            lengths: real positions of each row, int32 [B].

        Returns:
            Shape [B, S, W]; meaningless behind a row's length.
        """

    @abstractmethod
    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attends from one new position of each row to itself and the ones before it.

        Args:
            qkv: queries, keys and values of the new position. Shape [R, 1, 3 * W].
            past_key: keys so far. Shape [R, H, C, D].
            past_value: values so far. Shape [R, H, C, D].
            positions: valid positions of each row before this one, int32 [R].

        Returns:
            The attended states [R, 1, W], and the caches with the new position written.
        """

    @abstractmethod
    def attend_to_source(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Attends from one position of each row to its source.

        Args:
            query: shape [R, 1, W].
            key: source keys. Shape [R, H, C, D].
            value: source values. Shape [R, H, C, D].
            lengths: real source tokens, int32 [R].

        Returns:
            The attended states [R, 1, W], and the caches where the operator insists on giving them back.
        """


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


class CudaAttention(ContribAttention):
    """The target's attention is inherited; the source's is another operator."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Splits the packed projections: the operator wants them apart where it is given lengths."""
        query, key, value = qkv.chunk(3, dim=-1)
        return self._attend(query, key, value, lengths)

    def attend_to_source(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[()]]:
        """Reads the caches as they are, with the heads on an axis of their own."""
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
    """Two operators, with the heads on an axis of their own."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Gives the operator one axis for all heads, [B, S, W], which it splits itself."""
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
        """Reads the caches alone."""
        heads = self._split(query, 1).transpose(1, 2)  # [R, H, 1, D]
        return _attention(heads, key, value, lengths).reshape(query.shape), ()

    def _split(self, states: Tensor, parts: int) -> Tensor:
        """Cuts the width of one position into heads: [R, 1, parts * W] -> [R, parts, H, D]."""
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
