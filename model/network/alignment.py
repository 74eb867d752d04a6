"""Attention of the recurrent decoders: scores, windows and hard attention.

A score rates a decoder state against a source position. An alignment turns scores into weights, over all positions
(global) or within a window (local). Hard attention attends to one position. A choice has no gradient, so training
samples positions and reinforces those followed by more probable tokens (REINFORCE, Williams 1992; Xu et al. 2015,
arXiv:1502.03044, section 4.1). The training loss adds `Reinforce` to the cross-entropy:

    sampled = model.decode_sampled(target_ids, model.encode(source_ids))
    loss = cross_entropy(model.project(sampled.states), labels) + model.reinforce(log_likelihoods, sampled, valid)

Shapes: B rows, S source positions, T target positions, D width of states and annotations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from dragoman.model.config import RecurrentConfig

BASELINE_DECAY = 0.9
REWARD_WEIGHT = 1.0
ENTROPY_WEIGHT = 0.01
SOFT_SHARE = 0.5


def most_probable(weights: Tensor) -> Tensor:
    """Puts all weight on the most probable position: [B, S] -> one-hot [B, S]."""
    return one_hot(weights.argmax(dim=-1), weights)


def one_hot(chosen: Tensor, weights: Tensor) -> Tensor:
    """Returns ones at the chosen positions [B] and zeros elsewhere; shape and type as `weights` [B, S]."""
    return (torch.arange(weights.shape[1], device=weights.device) == chosen[:, None]).to(weights.dtype)


@dataclass(slots=True)
class PositionSampler:
    """Samples one source position per row and step, and records its log-probability.

    About half of the rows attend softly throughout, which reduces variance (Xu et al. 2015). REINFORCE does not apply
    to them; their log-probabilities are 0.

    `soft` are the rows that attend softly, bool [B]. The log-probabilities of the sampled positions, and the entropies
    of the distributions in nats, are one [B] per step.
    """

    soft: Tensor
    log_probabilities: list[Tensor] = field(default_factory=list)
    entropies: list[Tensor] = field(default_factory=list)

    @classmethod
    def draw(cls, rows: int, device: torch.device) -> "PositionSampler":
        """Returns a sampler for a batch, with random soft rows."""
        return cls(torch.rand(rows, device=device) < SOFT_SHARE)

    def __call__(self, weights: Tensor) -> Tensor:
        """Maps the distributions of one step [B, S] to attention weights [B, S]."""
        chosen = torch.multinomial(weights.detach(), 1)  # [B, 1]
        log_weights = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        self.log_probabilities.append(log_weights.gather(1, chosen)[:, 0].masked_fill(self.soft, 0.0))
        self.entropies.append(-(weights * log_weights).sum(dim=-1))
        return torch.where(self.soft[:, None], weights, one_hot(chosen[:, 0], weights))


@dataclass(frozen=True, slots=True)
class SampledDecode:
    """The training output of a model with hard attention.

    `states` are the readouts, float [B, T, D]. `log_probabilities` of the sampled positions are 0 in soft rows;
    `entropies` of their distributions are in nats. Both are float [B, T].
    """

    states: Tensor
    log_probabilities: Tensor
    entropies: Tensor


class Reinforce(nn.Module):
    """The loss term that trains the position distribution of hard attention.

    Its gradient is that of Xu et al. 2015, section 4.1, but the reward of a position is the log-likelihood of the next
    token alone. That of the whole target is noisier. The gradient is
    -(lambda_r (log p(y_t) - b) grad log p(position_t) + lambda_e grad H_t), averaged over the real tokens. The baseline
    b_k = 0.9 b_{k-1} + 0.1 mean log p(y_t) is stored with the parameters.
    """

    baseline: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, log_likelihoods: Tensor, sampled: SampledDecode, valid: Tensor) -> Tensor:
        """Returns the loss of one batch, a scalar, and updates the baseline.

        `log_likelihoods` [B, T] are log p of each label given the sampled positions; no gradient flows through them.
        `valid`, bool [B, T], is True at real labels.
        """
        rewards = log_likelihoods.detach()[valid]
        advantages = rewards - self.baseline
        self.baseline.lerp_(rewards.mean(), 1 - BASELINE_DECAY)
        chosen, entropies = sampled.log_probabilities[valid], sampled.entropies[valid]
        return -(REWARD_WEIGHT * advantages * chosen + ENTROPY_WEIGHT * entropies).mean()


@dataclass(frozen=True, slots=True)
class EncodedSource:
    """The source as alignments read it: `annotations` and the score's `keys`, float [B, S, D], which may be the same.

    `lengths` are the real tokens of the rows, int [B]; `valid`, bool [B, S], is True before a row's length.
    """

    annotations: Tensor
    keys: Tensor
    lengths: Tensor
    valid: Tensor

    @classmethod
    def of(cls, annotations: Tensor, keys: Tensor, lengths: Tensor) -> "EncodedSource":
        """Returns a source with the mask of its lengths."""
        positions = torch.arange(annotations.shape[1], device=annotations.device)
        return cls(annotations, keys, lengths, positions < lengths[:, None])


class DotScore(nn.Module):
    """score(h_t, h_s) = h_t^T h_s (Luong et al. 2015, section 3.1)."""

    def keys(self, annotations: Tensor) -> Tensor:
        """Returns the annotations [B, S, D]: this score precomputes nothing."""
        return annotations

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores a state [B, D] against keys [B, S, D]: float [B, S]."""
        return torch.bmm(keys, query[:, :, None])[:, :, 0]


class GeneralScore(DotScore):
    """score(h_t, h_s) = h_t^T W_a h_s (Luong et al. 2015, section 3.1). W_a is applied to the decoder state."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores a state [B, D] against keys [B, S, D]: float [B, S]."""
        return super().forward(self.query(query), keys)


class AdditiveScore(nn.Module):
    """score(s, h) = v^T tanh(W s + U h) (Bahdanau et al. 2015, appendix A.1.2).

    Luong's `concat`, v^T tanh(W_a [h_t; h_s]), is the same function: W and U are the halves of W_a.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model)
        self.energy = nn.Linear(d_model, 1, bias=False)

    def keys(self, annotations: Tensor) -> Tensor:
        """Returns U h for annotations [B, S, D]; it does not depend on the decoder state."""
        keys: Tensor = self.key(annotations)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores a state [B, D] against keys [B, S, D]: float [B, S]."""
        energies: Tensor = self.energy(torch.tanh(self.query(query)[:, None] + keys))
        return energies[:, :, 0]


class Alignment(nn.Module):
    """Global attention: softmax of the scores over all source tokens (Luong et al. 2015, equation 7)."""

    def __init__(self, score: DotScore | AdditiveScore) -> None:
        super().__init__()
        self.score = score

    def forward(self, query: Tensor, source: EncodedSource, _positions: Tensor) -> Tensor:
        """Returns the attention weights, float [B, S], exactly 0 at padding and outside a window.

        `query` [B, D] is the decoder state; `_positions`, [B] or [], are the rows' target positions, from 0.
        """
        return masked_softmax(self.score(query, source.keys), source.valid)


class MonotonicAlignment(Alignment):
    """Local attention around the target position, p_t = t (local-m; Luong et al. 2015, section 3.2).

    If the target outgrows its source, the window stays at the last token; in the paper it is empty.
    """

    def __init__(self, score: DotScore, radius: int) -> None:
        super().__init__(score)
        self.radius = radius

    def forward(self, query: Tensor, source: EncodedSource, positions: Tensor) -> Tensor:
        """Returns the weights; arguments as for `Alignment.forward`."""
        near = distances(torch.minimum(positions, source.lengths - 1), source).abs() <= self.radius
        return masked_softmax(self.score(query, source.keys), source.valid & near)


class PredictiveAlignment(Alignment):
    """Local attention around a predicted position (local-p; Luong et al. 2015, section 3.2, equations 9 and 10).

    p_t = S sigmoid(v_p^T tanh(W_p h_t)), and a_t(s) = align(h_t, h_s) exp(-(s - p_t)^2 / (2 sigma^2)) with
    sigma = D / 2 within the window [p_t - D, p_t + D], s counted from 0. The weights sum to less than 1.
    """

    def __init__(self, score: DotScore, radius: int, d_model: int) -> None:
        super().__init__(score)
        self.radius = radius
        self.predictor = nn.Sequential(
            nn.Linear(d_model, d_model, bias=False), nn.Tanh(), nn.Linear(d_model, 1, bias=False), nn.Sigmoid()
        )

    def forward(self, query: Tensor, source: EncodedSource, _positions: Tensor) -> Tensor:
        """Returns the weights; arguments as for `Alignment.forward`."""
        apart = distances(source.lengths * self.predictor(query)[:, 0], source)
        weights = masked_softmax(self.score(query, source.keys), source.valid & (apart.abs() <= self.radius))
        return weights * torch.exp(apart.square() * (-2 / self.radius**2))


def make_alignment(config: RecurrentConfig) -> Alignment:
    """Returns the configured alignment; the local ones use the `general` score."""
    width = config.d_model
    alignments: dict[str, Callable[[], Alignment]] = {
        "additive": lambda: Alignment(AdditiveScore(width)),
        "dot": lambda: Alignment(DotScore()),
        "general": lambda: Alignment(GeneralScore(width)),
        "concat": lambda: Alignment(AdditiveScore(width)),
        "local_monotonic": lambda: MonotonicAlignment(GeneralScore(width), config.window),
        "local_predictive": lambda: PredictiveAlignment(GeneralScore(width), config.window, width),
    }
    return alignments[config.attention]()


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns the softmax of scores [B, S] where the mask is True, exactly 0 elsewhere."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


def distances(centers: Tensor, source: EncodedSource) -> Tensor:
    """Returns the signed distance of each source position from a center [B]: [B, S]."""
    return torch.arange(source.valid.shape[1], device=centers.device) - centers[:, None]
