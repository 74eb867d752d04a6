"""ONNX graphs of a Transformer for GPUs: PyTorch modules whose forward has the signature of its graph.

They run the layers of a trained `dragoman.model.network.transformer.Transformer` one decoder step per call. Attention
is an operator of ONNX Runtime, so PyTorch can export these modules but not run them. In every operator a row has its
own valid length and reads nothing beyond it: its result depends neither on padding nor on other rows.

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, W = H * D, V vocabulary, A
alignment heads, and the cache capacities C_self in target tokens and C_cross in source tokens.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.ops import symbolic, symbolic_multi_out

from dragoman.model.network.attention import MultiHeadAttention
from dragoman.model.network.layers import DecoderLayer, EncoderLayer
from dragoman.model.network.transformer import Transformer
from dragoman.serve.bundle.manifest import AttentionHead


class EncoderGraph(nn.Module):
    """Maps source tokens to the cross-attention keys and values of every decoder layer. Runs once per sequence."""

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        self.transformer = transformer
        self.packed = pack(transformer.encoder_layers)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Encodes padded sources, int64 [B, S], with the valid tokens per row, int32 [B].

        Returns cross_key_0, cross_value_0, cross_key_1, ...: float [B, H, S, D], undefined beyond a row's length.
        """
        states = self.transformer.embed_source(source_ids)
        for layer, packed in zip(self.transformer.encoder_layers, self.packed, strict=True):
            attention, residual = layer.self_attention, layer.self_attention_residual
            # MultiHeadAttention with lengths requires separate inputs, so the packed projections are split.
            query, key, value = packed(residual.before(states)).chunk(3, dim=-1)
            attended = attend_to_source(query, key, value, source_lengths, attention.heads)
            states = residual.after(states, attention.output(attended))
            states = layer.feed_forward_residual(states, layer.feed_forward)
        memory = self.transformer.encoder_norm(states)
        projected = (layer.cross_attention.project(memory) for layer in self.transformer.decoder_layers)
        return [tensor for keys_values in projected for tensor in keys_values]


class DecoderGraph(nn.Module):
    """One decoder step for R rows, each at its own position, with caches written in place."""

    def __init__(self, transformer: Transformer, alignment_heads: Sequence[AttentionHead] = ()) -> None:
        super().__init__()
        self.transformer = transformer
        self.packed = pack(transformer.decoder_layers)
        self.alignment_heads = alignment_heads

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, states: Sequence[Tensor]
    ) -> list[Tensor]:
        """Predicts the next token of every row.

        Args:
            token_ids: last token of each row, int64 [R].
            positions: tokens in each row's self-attention cache, int32 [R].
            source_lengths: valid source tokens per row, int32 [R].
            states: per layer past_self_key and past_self_value, [R, H, C_self, D], then cross_key and cross_value, [R,
                H, C_cross, D].

        Returns:
            Logits, float [R, V], then per layer present_self_key and present_self_value: the past caches including this
            step, for binding to the same memory. With alignment heads also their cross-attention weights, float [R, A,
            C_cross].
        """
        model = self.transformer
        vectors = functional.embedding(positions, model.target_positions.table)
        hidden = model.embed_target(token_ids, vectors)[:, None]  # [R, 1, W]
        presents: list[Tensor] = []
        queries: list[Tensor] = []
        for number, (layer, packed) in enumerate(zip(model.decoder_layers, self.packed, strict=True)):
            past_key, past_value, key, value = states[4 * number : 4 * number + 4]
            attention, residual = layer.self_attention, layer.self_attention_residual
            qkv = packed(residual.before(hidden))
            attended, *written = attend_in_target(qkv, past_key, past_value, positions, attention.heads)
            hidden = residual.after(hidden, attention.output(attended))
            attention, residual = layer.cross_attention, layer.cross_attention_residual
            query = attention.query(residual.before(hidden))
            attended = attend_to_source(query, key, value, source_lengths, attention.heads)
            hidden = residual.after(hidden, attention.output(attended))
            hidden = layer.feed_forward_residual(hidden, layer.feed_forward)
            presents += written
            queries.append(query)
        # Search uses float32 in every precision.
        outputs = [model.project(model.decoder_norm(hidden[:, 0])).float(), *presents]
        if self.alignment_heads:
            outputs.append(self._align(queries, states[2::4], source_lengths))
        return outputs

    def _align(self, queries: Sequence[Tensor], keys: Sequence[Tensor], source_lengths: Tensor) -> Tensor:
        """Recomputes the cross-attention weights of the alignment heads (Vaswani et al. 2017, equation 1).

        Maps queries of cross-attention per layer, [R, 1, W], cached source keys per layer, [R, H, C_cross, D], and
        valid source tokens per row, int32 [R], to float [R, A, C_cross].
        """
        chosen = [keys[head.layer][:, head.head] for head in self.alignment_heads]  # [R, C_cross, D] each
        size = chosen[0].shape[2]
        parts = [queries[head.layer][:, 0, head.head * size :][:, :size] for head in self.alignment_heads]
        key, query = torch.stack(chosen, dim=1), torch.stack(parts, dim=1)  # [R, A, C_cross, D], [R, A, D]
        scores = (key @ query[..., None])[..., 0].float() / math.sqrt(size)  # [R, A, C_cross]
        valid = torch.arange(key.shape[2], dtype=torch.int32) < source_lengths[:, None, None]
        return scores.masked_fill(~valid, -math.inf).softmax(dim=-1)


def pack(layers: Iterable[EncoderLayer | DecoderLayer]) -> nn.ModuleList:
    """Returns the query, key and value projections of each layer's self-attention as one matrix product."""
    return nn.ModuleList(_pack(layer.self_attention) for layer in layers)


def _pack(attention: MultiHeadAttention) -> nn.Linear:
    parts = (attention.query, attention.key, attention.value)
    packed = nn.Linear(attention.query.in_features, sum(part.out_features for part in parts))
    packed.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
    packed.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
    return packed


def attend_to_source(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Attends to a source with the operator whose CUDA kernel takes row lengths.

    Maps queries [B, S, W] to [B, S, W], undefined beyond a row's length. Keys and values are [B, S, W], or cached, [B,
    H, C_cross, D]; `lengths` are valid source tokens per row, int32 [B].
    """
    output: Tensor = symbolic(
        "com.microsoft::MultiHeadAttention",
        [query, key, value, None, lengths],
        {"num_heads": heads},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
    return output


def attend_in_target(
    qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor, heads: int
) -> Sequence[Tensor]:
    """Computes the decoder's self-attention of one new position per row, and writes it into the caches.

    GroupQueryAttention takes packed projections; in fp16 with a shared buffer it reaches the fastest kernel.

    Args:
        qkv: concatenated queries, keys and values of the new position, [R, 1, 3 * W].
        past_key: cached keys, [R, H, C_self, D].
        past_value: cached values, [R, H, C_self, D].
        positions: valid positions per row before this one, int32 [R].
        heads: H.

    Returns:
        States [R, 1, W], and both caches including the new position.
    """
    rows, _, packed = qkv.shape
    capacity = torch.scalar_tensor(past_key.shape[2], dtype=torch.int32)
    return symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        [qkv, None, None, past_key, past_value, positions, capacity],
        {"num_heads": heads, "kv_num_heads": heads},
        dtypes=(qkv.dtype, qkv.dtype, qkv.dtype),
        shapes=((rows, 1, packed // 3), past_key.shape, past_value.shape),
        version=1,
    )
