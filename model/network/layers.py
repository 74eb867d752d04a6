"""Transformer layers and their parts: dropout, norms, residual connections and feed-forward networks.

Vaswani et al. 2017, section 3.1 and figure 1. On the CPU, dropout compares one random byte per unit with a threshold: a
64-bit draw decides over eight units. PyTorch draws a Bernoulli variable per unit, which takes longer than the layers
around it.

Shapes: B rows, S source length, T target length.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from dragoman.model.config import TransformerConfig
from dragoman.model.network.attention import KeysValues, MultiHeadAttention

_UNITS_PER_DRAW = 8  # bytes of an int64
_BYTE_VALUES = 256
# The range from the lowest int64 makes all 64 bits random; else the sign bit is fixed, and its byte not uniform.
_LOWEST = torch.iinfo(torch.int64).min


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014): zeroes units in training and scales the others to keep the expectation.

    On the CPU the probability is rounded to a multiple of 1/256, and the scale follows the rounded value. `share` is a
    factor of the probability; it rises from 0 to 1 if training warms up dropout.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.share = 1.0

    def forward(self, states: Tensor) -> Tensor:
        """Drops units of a tensor of any shape; a no-op outside of training."""
        probability = self.share * self.probability
        if not self.training or probability == 0:
            return states
        if states.device.type != "cpu":
            return functional.dropout(states, probability)
        dropped_values = min(round(_BYTE_VALUES * probability), _BYTE_VALUES - 1)
        kept = random_bytes(states.numel()).view(states.shape) >= dropped_values
        return states * kept.to(states.dtype).mul_(_BYTE_VALUES / (_BYTE_VALUES - dropped_values))


def random_bytes(count: int) -> Tensor:
    """Returns independent, uniform bytes, uint8 [count], from PyTorch's global generator."""
    return torch.empty(-(-count // _UNITS_PER_DRAW), dtype=torch.int64).random_(_LOWEST, None).view(torch.uint8)[:count]


Norm = nn.LayerNorm | nn.RMSNorm


def build_norm(config: TransformerConfig) -> Norm:
    """Returns a normalization over the last axis, with a learned gain g for each unit.

    layer: (x - mean(x)) / sqrt(var(x) + epsilon) * g + b (Ba et al. 2016, arXiv:1607.06450, section 3).
    rms: x / sqrt(mean(x^2) + epsilon) * g (Zhang and Sennrich 2019, arXiv:1910.07467, equation 4).
    """
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)


class Residual(nn.Module):
    """A residual connection with dropout and a normalization, after the sub-layer or before it.

    post: Norm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, sections 3.1 and 5.4).
    pre: x + Dropout(Sublayer(Norm(x))) (Xiong et al. 2020, arXiv:2002.04745, table 1).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_position == "pre"
        self.norm = build_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Applies a sub-layer with its residual connection: [B, T, d_model] -> [B, T, d_model]."""
        return self.after(states, sublayer(self.before(states)))

    def before(self, states: Tensor) -> Tensor:
        """Returns the sub-layer's input, [B, T, d_model]."""
        return self._normalize(states) if self.norm_first else states

    def after(self, states: Tensor, sublayer_output: Tensor) -> Tensor:
        """Returns the output of the connection from its input and the sub-layer's output, each [B, T, d_model]."""
        total = states + self.dropout(sublayer_output)
        return total if self.norm_first else self._normalize(total)

    def _normalize(self, states: Tensor) -> Tensor:
        normalized: Tensor = self.norm(states)
        return normalized


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = f(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2, where f is ReLU), or SwiGLU.

    ReLU(x) = max(0, x); GELU(x) = x * Phi(x) with the distribution function Phi of the standard normal distribution
    (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2); SiLU(x) = x * sigmoid(x) (the same paper, section 4).

    SwiGLU: FFN(x) = (SiLU(x W) * (x V)) W2, without biases (Shazeer 2020, arXiv:2002.05202, equation 6). The paper
    reduces the inner width to 2/3 of a plain network's, to keep the number of parameters; here `d_ff` is taken as
    configured.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        d_model, d_ff, gated = config.d_model, config.d_ff, config.gated
        self.gate = nn.Linear(d_model, d_ff, bias=False) if gated else None
        self.inner = nn.Linear(d_model, d_ff, bias=not gated)
        self.outer = nn.Linear(d_ff, d_model, bias=not gated)
        self.activation = ACTIVATIONS[config.inner_activation]

    def forward(self, states: Tensor) -> Tensor:
        """Maps [..., d_model] to [..., d_model]."""
        inner: Tensor = self.activation((self.gate or self.inner)(states))
        mapped: Tensor = self.outer(inner * self.inner(states) if self.gate else inner)
        return mapped


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward network."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.heads)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, states: Tensor, source_mask: Tensor) -> Tensor:
        """Maps source states [B, S, d_model] and a mask [B, 1, 1, S] to [B, S, d_model]."""
        queries = self.self_attention_residual.before(states)
        attended = self.self_attention(queries, self.self_attention.project(queries), source_mask)
        states = self.self_attention_residual.after(states, attended)
        output: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return output


class Ssru(nn.Module):
    """The simpler simple recurrent unit (Kim et al. 2019, https://aclanthology.org/D19-5632, equations 2 to 4).

    c[t] = f[t] * c[t - 1] + (1 - f[t]) * W x[t] with f[t] = sigmoid(W_f x[t] + b_f) and c[-1] = 0. The output is
    ReLU(c[t]).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, d_model)
        self.forget = nn.Linear(d_model, d_model)

    def forward(self, states: Tensor, earlier: Tensor | None) -> tuple[Tensor, Tensor]:
        """Maps [B, T, d_model] to the outputs and the last c, [B, d_model]; `earlier` is c before the first one."""
        new, share = self.input(states).float(), self.forget(states).float().sigmoid()
        cell = torch.zeros_like(new[:, 0]) if earlier is None else earlier
        cells = []
        for kept, added in zip(share.unbind(1), ((1 - share) * new).unbind(1), strict=True):
            cell = kept * cell + added
            cells.append(cell)
        return torch.stack(cells, dim=1).relu(), cell


# What a decoder layer keeps of earlier positions: keys and values, or the state of a unit, float [B, d_model].
Past = KeysValues | Tensor


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention to the source, then the feed-forward network.

    A recurrent unit may take the place of self-attention. The same code computes a whole target and a single decode
    step, whose earlier positions are in `past`.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_recurrent = config.decoder_memory == "ssru"
        if self.is_recurrent:
            self.ssru = Ssru(config.d_model)
            self.ssru_residual = Residual(config)
        else:
            self.self_attention = MultiHeadAttention(config.d_model, config.heads)
            self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config.d_model, config.heads)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        states: Tensor,
        source: KeysValues,
        source_mask: Tensor,
        target_mask: Tensor | None,
        past: Past | None = None,
    ) -> tuple[Tensor, Past]:
        """Maps target states [B, T, d_model] to [B, T, d_model]; also returns what it keeps of all positions so far.

        `source` is the memory as `cross_attention.project` returns it. `source_mask` [B, 1, 1, S] hides the source's
        padding, `target_mask` [1, 1, T, T] later target positions, if any. `past` has what was kept of earlier
        positions.
        """
        states, target = self.attend_to_target(states, target_mask, past)
        return self.attend_to_source(states, source, source_mask), target

    def attend_to_target(
        self, states: Tensor, target_mask: Tensor | None, past: Past | None = None
    ) -> tuple[Tensor, Past]:
        """Runs self-attention or the recurrent unit; arguments and results as in `forward`."""
        if self.is_recurrent:
            earlier = past if isinstance(past, Tensor) else None
            output, cell = self.ssru(self.ssru_residual.before(states), earlier)
            return self.ssru_residual.after(states, output), cell
        queries = self.self_attention_residual.before(states)
        target = self.self_attention.project(queries)
        if isinstance(past, KeysValues):
            target = past.followed_by(target)
        return self.self_attention_residual.after(states, self.self_attention(queries, target, target_mask)), target

    def start(self, memory: Tensor) -> Past:
        """Returns what the layer keeps before the first position; of the memory [B, S, d_model], B counts alone."""
        if self.is_recurrent:
            return memory.new_zeros(memory.shape[0], memory.shape[2])
        return self.self_attention.project(memory[:, :0])

    def attend_to_source(self, states: Tensor, source: KeysValues, source_mask: Tensor) -> Tensor:
        """Runs cross-attention and the feed-forward network; arguments and result as in `forward`."""
        attended = self.cross_attention(self.cross_attention_residual.before(states), source, source_mask)
        states = self.cross_attention_residual.after(states, attended)
        output: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return output

    def weights_after_target(self, states: Tensor, source: KeysValues, source_mask: Tensor) -> Tensor:
        """Returns the cross-attention weights of `attend_to_source`, [B, H, T, S]."""
        return self.cross_attention.weights(self.cross_attention_residual.before(states), source, source_mask)
