"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762).

Encoder and decoder stacks with residual connections and layer normalisation after each sub-layer, sinusoidal positions,
and one embedding matrix for source, target and output. Training calls `forward`; `model.generate` calls `encode` and
`decode`; `export.graphs` takes the same parameters apart. It knows no tokenizer, only ids.

Shapes: B rows, S source length, T target length, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.attention import MultiHeadAttention, causal_mask, padding_mask
from model.config import TransformerConfig


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Returns the position encodings, float32 [length, d_model] (Vaswani et al. 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).
    """
    wavelengths = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = torch.arange(length)[:, None] * wavelengths  # [length, d_model / 2]
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(start_dim=1)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, at each position alike (Vaswani et al. 2017, equation 2)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, states: Tensor) -> Tensor:
        """Maps [..., d_model] to [..., d_model]."""
        mapped: Tensor = self.outer(functional.relu(self.inner(states)))
        return mapped


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), around every sub-layer (Vaswani et al. 2017, sections 3.1 and 5.4)."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, sublayer_output: Tensor) -> Tensor:
        """Adds a sub-layer's output to its input, both [B, T, d_model], and normalises the sum."""
        normalised: Tensor = self.norm(states + self.dropout(sublayer_output))
        return normalised


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads)
        self.self_attention_residual = Residual(config.d_model, config.dropout)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_residual = Residual(config.d_model, config.dropout)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """Maps source states [B, S, d_model] under a mask [B, 1, 1, S] to [B, S, d_model]."""
        states = self.self_attention_residual(states, self.self_attention(states, states, source_mask))
        output: Tensor = self.feed_forward_residual(states, self.feed_forward(states))
        return output


class DecoderLayer(nn.Module):
    """Masked self-attention over the target so far, cross-attention to the source, then the feed-forward network."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads)
        self.self_attention_residual = Residual(config.d_model, config.dropout)
        self.cross_attention = MultiHeadAttention(config.d_model, config.heads)
        self.cross_attention_residual = Residual(config.d_model, config.dropout)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_residual = Residual(config.d_model, config.dropout)

    def forward(self, states: Tensor, memory: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """Maps target states [B, T, d_model] to [B, T, d_model].

        Args:
            states: target states. Shape [B, T, d_model].
            memory: output of the encoder. Shape [B, S, d_model].
            source_mask: hides the source's padding. Shape [B, 1, 1, S].
            target_mask: hides later target positions. Shape [1, 1, T, T].
        """
        states = self.self_attention_residual(states, self.self_attention(states, states, target_mask))
        states = self.cross_attention_residual(states, self.cross_attention(states, memory, source_mask))
        output: Tensor = self.feed_forward_residual(states, self.feed_forward(states))
        return output


class Transformer(nn.Module):
    """Encoder, decoder and the embedding matrix that they share with the output (Vaswani et al. 2017, figure 1)."""

    positions: Tensor

    def __init__(self, config: TransformerConfig, vocabulary_size: int, pad_id: int) -> None:
        super().__init__()
        self.config = config
        self.pad_id = pad_id
        self.embedding = nn.Embedding(vocabulary_size, config.d_model)
        self.embedding_dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # One position more than the longest target: the begin token has a position of its own.
        length = max(config.max_source_tokens, config.max_target_tokens + 1)
        self.register_buffer("positions", sinusoidal_positions(length, config.d_model), persistent=False)
        self._initialise()

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Predicts each next target token from the ones before it (teacher forcing).

        Args:
            source_ids: int64 [B, S], right-padded, each row ending in EOS.
            target_ids: int64 [B, T], right-padded, each row beginning with BOS.

        Returns:
            Logits, float [B, T, V]: row t predicts the token after target_ids[:, t].
        """
        memory, source_mask = self.encode(source_ids)
        return self.project(self.decode(target_ids, memory, source_mask))

    def encode(self, source_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Maps source ids [B, S] to the memory [B, S, d_model] and the mask [B, 1, 1, S] of its valid positions."""
        source_mask = padding_mask(source_ids, self.pad_id)
        states = self.embed(source_ids)
        for layer in self.encoder:
            states = layer(states, source_mask)
        return states, source_mask

    def decode(self, target_ids: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Maps target ids [B, T] to the states [B, T, d_model] that predict the token after each of them.

        No mask hides the target's padding: it is on the right, where no valid position looks.
        """
        target_mask = causal_mask(target_ids.shape[1], target_ids.device)
        states = self.embed(target_ids)
        for layer in self.decoder:
            states = layer(states, memory, source_mask, target_mask)
        return states

    def embed(self, ids: Tensor) -> Tensor:
        """Maps ids [B, T] to embeddings scaled by sqrt(d_model) plus positions, [B, T, d_model] (section 3.4)."""
        scaled = self.embedding(ids) * math.sqrt(self.config.d_model)
        embedded: Tensor = self.embedding_dropout(scaled + self.positions[: ids.shape[1]])
        return embedded

    def project(self, states: Tensor) -> Tensor:
        """Maps states [..., d_model] to logits [..., V] with the embedding matrix (section 3.4)."""
        return functional.linear(states, self.embedding.weight)

    def _initialise(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5)
