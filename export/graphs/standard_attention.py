"""Attention by the operators of the ONNX standard, opset 24: graphs that any runtime of that opset can compute.

TensorScatter writes the caches, Attention reads them up to each row's length.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.onnx.ops import symbolic

from export.graphs.attention import AttentionOperators

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
