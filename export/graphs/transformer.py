"""ONNX graphs of a Transformer: PyTorch modules whose forward has the signature of its graph.

They hold the parameters of a trained `dragoman.model.network.transformer.Transformer`, arranged for one decoder step
per call. Attention is an ONNX operator (see `dragoman.export.graphs.attention`), so PyTorch can export these modules
but not run them. Dropout is omitted.

Shapes: B rows of a prefill, S source length, R rows of a step, H heads, D head size, V vocabulary, A alignment heads,
and the cache capacities C_self in target tokens and C_cross in source tokens.
"""

import math
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragoman.export.graphs.attention import CudaAttention
from dragoman.model.network.attention import MultiHeadAttention
from dragoman.model.network.layers import DecoderLayer, EncoderLayer
from dragoman.model.network.transformer import Transformer
from dragoman.serve.bundle.manifest import AttentionHead


class Embedding(nn.Module):
    """Scaled embeddings; the factor is usually sqrt(d_model) (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, weight: nn.Parameter, scale: float) -> None:
        super().__init__()
        self.weight = weight
        self.scale = scale

    def forward(self, ids: Tensor) -> Tensor:
        """Maps ids [...] to embeddings [..., d_model]."""
        return functional.embedding(ids, self.weight) * self.scale


class Projection(nn.Module):
    """The output projection: one logit per token of the vocabulary."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, states: Tensor) -> Tensor:
        """Maps states [..., d_model] to logits [..., V]."""
        return functional.linear(states, self.weight, self.bias)


def frozen(weight: Tensor) -> nn.Parameter:
    """Returns a parameter without gradient, so that the exporter stores it as a weight."""
    return nn.Parameter(weight.detach(), requires_grad=False)


class EncoderGraph(nn.Module):
    """Maps source tokens to the cross-attention keys and values of every decoder layer. Runs once per sequence."""

    def __init__(self, transformer: Transformer, attention: CudaAttention) -> None:
        super().__init__()
        self.embedding = Embedding(frozen(transformer.source_weight), transformer.embedding_scale)
        self.positions = frozen(transformer.source_positions.table)
        self.layers = nn.ModuleList(EncoderLayerGraph(layer, attention) for layer in transformer.encoder_layers)
        self.embedding_norm = transformer.source_embedding_norm
        self.norm = transformer.encoder_norm
        self.cross = nn.ModuleList(layer.cross_attention for layer in transformer.decoder_layers)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Encodes padded sources.

        Args:
            source_ids: int64 [B, S], right-padded.
            source_lengths: valid tokens per row, int32 [B].

        Returns:
            cross_key_0, cross_value_0, cross_key_1, ...: float [B, H, S, D], undefined beyond a row's length.
        """
        states = self.embedding_norm(self.embedding(source_ids) + self.positions[: source_ids.shape[1]])
        for layer in self.layers:
            states = layer(states, source_lengths)
        memory = self.norm(states)
        outputs: list[Tensor] = []
        for cross in cast("Iterable[MultiHeadAttention]", self.cross):
            outputs += cross.project(memory)
        return outputs


class EncoderLayerGraph(nn.Module):
    """One encoder layer; its attention takes lengths instead of a mask."""

    def __init__(self, layer: EncoderLayer, attention: CudaAttention) -> None:
        super().__init__()
        self.layer = layer
        self.attention = attention
        self.qkv = PackedProjection(layer.self_attention)

    def forward(self, states: Tensor, source_lengths: Tensor) -> Tensor:
        """Maps source states [B, S, d_model] to [B, S, d_model]."""
        layer, residual = self.layer, self.layer.self_attention_residual
        attended = self.attention.attend_in_source(self.qkv(residual.before(states)), source_lengths)
        states = residual.after(states, layer.self_attention.output(attended))
        output: Tensor = layer.feed_forward_residual(states, layer.feed_forward)
        return output


class DecoderGraph(nn.Module):
    """One decoder step for R rows, each at its own position, with caches written in place."""

    def __init__(
        self, transformer: Transformer, attention: CudaAttention, alignment_heads: Sequence[AttentionHead] = ()
    ) -> None:
        super().__init__()
        self.alignment_heads = alignment_heads
        weight = frozen(transformer.target_weight)
        self.embedding = Embedding(weight, transformer.embedding_scale)
        self.positions = frozen(transformer.target_positions.table)
        self.layers = nn.ModuleList(DecoderLayerGraph(layer, attention) for layer in transformer.decoder_layers)
        self.embedding_norm = transformer.target_embedding_norm
        self.norm = transformer.decoder_norm
        # Tied embeddings are one parameter object; two would be stored twice.
        output_weight = weight if transformer.output is None else frozen(transformer.output_weight)
        bias = None if transformer.output_bias is None else frozen(transformer.output_bias)
        self.projection = Projection(output_weight, bias)

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
        embedded = self.embedding(token_ids) + functional.embedding(positions, self.positions)
        hidden = self.embedding_norm(embedded)[:, None]  # [R, 1, d_model]
        presents: list[Tensor] = []
        queries: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            hidden, query, written = layer(hidden, positions, source_lengths, states[4 * number : 4 * number + 4])
            presents += written
            queries.append(query)
        # Search uses float32 in every precision.
        outputs = [self.projection(self.norm(hidden[:, 0])).float(), *presents]
        if self.alignment_heads:
            outputs.append(self._align(queries, states[2::4], source_lengths))
        return outputs

    def _align(self, queries: Sequence[Tensor], keys: Sequence[Tensor], source_lengths: Tensor) -> Tensor:
        """Recomputes the cross-attention weights of the alignment heads (Vaswani et al. 2017, equation 1).

        Args:
            queries: of cross-attention per layer, [R, 1, d_model].
            keys: cached source keys per layer, [R, H, C_cross, D].
            source_lengths: valid source tokens per row, int32 [R].

        Returns:
            Float [R, A, C_cross].
        """
        chosen = [keys[head.layer][:, head.head] for head in self.alignment_heads]  # [R, C_cross, D] each
        size = chosen[0].shape[2]
        parts = [queries[head.layer][:, 0, head.head * size :][:, :size] for head in self.alignment_heads]
        key, query = torch.stack(chosen, dim=1), torch.stack(parts, dim=1)  # [R, A, C_cross, D], [R, A, D]
        scores = (key @ query[..., None])[..., 0].float() / math.sqrt(size)  # [R, A, C_cross]
        valid = torch.arange(key.shape[2], dtype=torch.int32) < source_lengths[:, None, None]
        return scores.masked_fill(~valid, -math.inf).softmax(dim=-1)


class DecoderLayerGraph(nn.Module):
    """One decoder layer for one new position per row."""

    def __init__(self, layer: DecoderLayer, attention: CudaAttention) -> None:
        super().__init__()
        self.layer = layer
        self.attention = attention
        self.qkv = PackedProjection(layer.self_attention)

    def forward(
        self, states: Tensor, positions: Tensor, source_lengths: Tensor, caches: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Maps states [R, 1, d_model] to the next states, the cross-attention queries, and the written caches."""
        past_key, past_value, cross_key, cross_value = caches
        layer = self.layer
        residual = layer.self_attention_residual
        qkv = self.qkv(residual.before(states))
        attended, present_key, present_value = self.attention.attend_in_target(qkv, past_key, past_value, positions)
        states = residual.after(states, layer.self_attention.output(attended))
        residual = layer.cross_attention_residual
        query = layer.cross_attention.query(residual.before(states))
        attended = self.attention.attend_to_source(query, cross_key, cross_value, source_lengths)
        states = residual.after(states, layer.cross_attention.output(attended))
        states = layer.feed_forward_residual(states, layer.feed_forward)
        return states, query, (present_key, present_value)


class PackedProjection(nn.Linear):
    """The query, key and value projections as one matrix product; `parts` are the original projections."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        parts = (attention.query, attention.key, attention.value)
        super().__init__(attention.query.in_features, sum(part.out_features for part in parts))
        self.parts = parts
        self.weight = frozen(torch.cat([part.weight for part in parts]))
        self.bias = frozen(torch.cat([part.bias for part in parts]))
