"""The layers of a Transformer's encoder and decoder (Vaswani et al. 2017, section 3.1 and figure 1).

Shapes: B rows, S source length, T target length.
"""

from torch import Tensor, nn

from model.config import TransformerConfig
from model.network.attention import KeysValues, MultiHeadAttention
from model.network.feed_forward import build_feed_forward
from model.network.residual import Residual


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads)
        self.self_attention_residual = Residual(config)
        self.feed_forward = build_feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """Maps source states [B, S, d_model] under a mask [B, 1, 1, S] to [B, S, d_model]."""
        queries = self.self_attention_residual.before(states)
        attended = self.self_attention(queries, self.self_attention.project(queries), source_mask)
        states = self.self_attention_residual.after(states, attended)
        output: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention to the source, then the feed-forward network.

    A whole target and one more token are the same to it: the positions before those at hand are `past`, or none.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config.d_model, config.heads)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = build_feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        states: Tensor,
        source: KeysValues,
        source_mask: Tensor,
        target_mask: Tensor | None,
        past: KeysValues | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Maps target states [B, T, d_model] to [B, T, d_model].

        Args:
            states: target states. Shape [B, T, d_model].
            source: the memory as `cross_attention.project` gives it.
            source_mask: hides the source's padding. Shape [B, 1, 1, S].
            target_mask: hides later target positions. Shape [1, 1, T, T]; None if there are none.
            past: self-attention's keys and values of earlier positions.

        Returns:
            The states, and self-attention's keys and values of all positions up to the last one.
        """
        states, target = self.attend_to_target(states, target_mask, past)
        queries = self.cross_attention_residual.before(states)
        attended = self.cross_attention(queries, source, source_mask)
        states = self.cross_attention_residual.after(states, attended)
        return self.feed_forward_residual(states, self.feed_forward), target

    def attend_to_target(
        self, states: Tensor, target_mask: Tensor | None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Runs self-attention; arguments and results as those of `forward`."""
        queries = self.self_attention_residual.before(states)
        target = self.self_attention.project(queries)
        if past is not None:
            target = past.followed_by(target)
        attended = self.self_attention(queries, target, target_mask)
        return self.self_attention_residual.after(states, attended), target

    def source_weights(self, states: Tensor, source: KeysValues, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """Returns the weights of cross-attention in `forward`, [B, H, T, S]."""
        states, _ = self.attend_to_target(states, target_mask)
        return self.cross_attention.weights(self.cross_attention_residual.before(states), source, source_mask)
