"""How a recurrent decoder divides its attention over the source: the scores and windows of the two founding papers.

A score says how well one decoder state and one source position go together; an alignment makes weights of the scores,
over all positions (global) or over a window (local). `model.network.recurrent` calls it once for each target
position, `export.graphs.recurrent` exports the same code.

Shapes: B rows, S source positions, D width of states and annotations.

Hard attention: a decoder that looks at one source position at a time, and how it learns where.

A choice has no gradient, so in training positions are sampled, and those followed by likelier tokens are made likelier
(REINFORCE, Williams 1992), as Xu et al. 2015 (arXiv:1502.03044, section 4.1) did for captions of images.
`model.network.recurrent` samples; who trains it adds `Reinforce` to the cross-entropy:

    sampled = model.decode_sampled(target_ids, model.encode(source_ids))
    loss = cross_entropy(model.project(sampled.states), labels) + model.reinforce(log_likelihoods, sampled, valid)

Shapes: B rows, T target positions, S source positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from model.config import RecurrentConfig

BASELINE_DECAY = 0.9
REWARD_WEIGHT = 1.0
ENTROPY_WEIGHT = 0.01
SOFT_SHARE = 0.5


def most_probable(weights: Tensor) -> Tensor:
    """Puts all weight on the most probable position: [B, S] -> [B, S] of zeros and a one in each row."""
    return one_hot(weights.argmax(dim=-1), weights)


def one_hot(chosen: Tensor, weights: Tensor) -> Tensor:
    """Returns ones at the chosen positions [B] and zeros elsewhere, like weights [B, S] in shape and type."""
    positions = torch.arange(weights.shape[1], device=weights.device)
    return (positions == chosen[:, None]).to(weights.dtype)


@dataclass(slots=True)
class PositionSampler:
    """Samples one source position for every row and step, and notes how probable it was.

    Half of the rows are not sampled but attend softly throughout, a trick of Xu et al. against the noise; to them
    REINFORCE does not apply, and their log-probabilities are 0.

    Attributes:
        soft: rows that attend softly, bool [B].
        log_probabilities: of the sampled positions, one [B] for each step.
        entropies: of the distributions, in nats, one [B] for each step.
    """

    soft: Tensor
    log_probabilities: list[Tensor] = field(default_factory=list)
    entropies: list[Tensor] = field(default_factory=list)

    @classmethod
    def draw(cls, rows: int, device: torch.device) -> "PositionSampler":
        """Returns a sampler for a batch, with some of its rows drawn to attend softly."""
        return cls(torch.rand(rows, device=device) < SOFT_SHARE)

    def __call__(self, weights: Tensor) -> Tensor:
        """Maps the distributions of one step [B, S] to the weights [B, S] to attend with."""
        chosen = torch.multinomial(weights.detach(), 1)  # [B, 1]
        log_weights = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        log_probability = log_weights.gather(1, chosen)[:, 0]
        self.log_probabilities.append(log_probability.masked_fill(self.soft, 0.0))
        self.entropies.append(-(weights * log_weights).sum(dim=-1))
        return torch.where(self.soft[:, None], weights, one_hot(chosen[:, 0], weights))


@dataclass(frozen=True, slots=True)
class SampledDecode:
    """What a hard model computes in training.

    Attributes:
        states: the readouts, which predict the next tokens, float [B, T, D].
        log_probabilities: of the sampled positions, float [B, T]; 0 where a row attended softly.
        entropies: of the distributions that they were sampled from, in nats, float [B, T].
    """

    states: Tensor
    log_probabilities: Tensor
    entropies: Tensor


class Reinforce(nn.Module):
    """The part of the loss that teaches a hard model where to look; the cross-entropy teaches everything else.

    Its gradient is that of Xu et al. 2015, section 4.1, with the likelihood of the next token alone for the reward of
    a position, in place of that of the whole target, which is noisier:
    -(lambda_r (log p(y_t) - b) grad log p(position_t) + lambda_e grad H_t), averaged over the real tokens. The baseline
    b_k = 0.9 b_{k-1} + 0.1 mean log p(y_t) is kept with the model's parameters.
    """

    baseline: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, log_likelihoods: Tensor, sampled: SampledDecode, valid: Tensor) -> Tensor:
        """Returns the loss of one batch, a scalar, and moves the baseline on.

        Args:
            log_likelihoods: log p of each label given the sampled positions; no gradient goes this way. Shape [B, T].
            sampled: what `Recurrent.decode_sampled` returned.
            valid: bool [B, T], True at real labels.
        """
        rewards = log_likelihoods.detach()[valid]
        advantages = rewards - self.baseline
        self.baseline.lerp_(rewards.mean(), 1 - BASELINE_DECAY)
        chosen, entropies = sampled.log_probabilities[valid], sampled.entropies[valid]
        return -(REWARD_WEIGHT * advantages * chosen + ENTROPY_WEIGHT * entropies).mean()


@dataclass(frozen=True, slots=True)
class Source:
    """What there is to attend to.

    Attributes:
        annotations: float [B, S, D].
        keys: what the score compares with, float [B, S, D]; the annotations themselves for some scores.
        lengths: real source tokens of each row, int [B].
        valid: bool [B, S], True before a row's length.
    """

    annotations: Tensor
    keys: Tensor
    lengths: Tensor
    valid: Tensor

    @classmethod
    def of(cls, annotations: Tensor, keys: Tensor, lengths: Tensor) -> "Source":
        """Adds the mask that the lengths make."""
        positions = torch.arange(annotations.shape[1], device=annotations.device)
        return cls(annotations, keys, lengths, positions < lengths[:, None])


class DotScore(nn.Module):
    """score(h_t, h_s) = h_t^T h_s (Luong et al. 2015, section 3.1)."""

    def keys(self, annotations: Tensor) -> Tensor:
        """Returns what can be computed of annotations [B, S, D] before the decoder starts: nothing."""
        return annotations

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores a state [B, D] against keys [B, S, D]: float [B, S]."""
        return torch.bmm(keys, query[:, :, None])[:, :, 0]


class GeneralScore(DotScore):
    """score(h_t, h_s) = h_t^T W_a h_s (Luong et al. 2015, section 3.1), the matrix taken with the state."""

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
        """Returns U h for annotations [B, S, D], which no decoder state changes."""
        keys: Tensor = self.key(annotations)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scores a state [B, D] against keys [B, S, D]: float [B, S]."""
        energies: Tensor = self.energy(torch.tanh(self.query(query)[:, None] + keys))
        return energies[:, :, 0]


class Alignment(nn.Module):
    """Global attention: the softmax of the scores over all source tokens (Luong et al. 2015, equation 7)."""

    def __init__(self, score: DotScore | AdditiveScore) -> None:
        super().__init__()
        self.score = score

    def forward(self, query: Tensor, source: Source, _positions: Tensor) -> Tensor:
        """Returns the weights of the source positions, float [B, S], exactly 0 at padding and outside of a window.

        Args:
            query: the decoder state that looks. Shape [B, D].
            source: what it looks at.
            _positions: the target position of each row, from 0. Shape [B] or [].
        """
        return masked_softmax(self.score(query, source.keys), source.valid)


class MonotonicAlignment(Alignment):
    """Local attention that moves on with the target, p_t = t (local-m; Luong et al. 2015, section 3.2).

    Where a target outgrows its source, the window stays at the last token; the paper leaves it empty.
    """

    def __init__(self, score: DotScore, radius: int) -> None:
        super().__init__(score)
        self.radius = radius

    def forward(self, query: Tensor, source: Source, positions: Tensor) -> Tensor:
        """Returns the weights, as `Alignment` does."""
        centers = torch.minimum(positions, source.lengths - 1)
        near = distances(centers, source).abs() <= self.radius
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

    def forward(self, query: Tensor, source: Source, _positions: Tensor) -> Tensor:
        """Returns the weights, as `Alignment` does."""
        centers = source.lengths * self.predictor(query)[:, 0]
        apart = distances(centers, source)
        weights = masked_softmax(self.score(query, source.keys), source.valid & (apart.abs() <= self.radius))
        return weights * torch.exp(apart.square() * (-2 / self.radius**2))


def make_alignment(config: RecurrentConfig) -> Alignment:
    """Returns the alignment that a model is configured to have; the local ones score with `general`."""
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
    """Returns the softmax of scores [B, S] over the positions where a mask is True, exactly 0 elsewhere."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


def distances(centers: Tensor, source: Source) -> Tensor:
    """Returns how far each source position lies behind a center [B]: [B, S]."""
    positions = torch.arange(source.valid.shape[1], device=centers.device)
    return positions - centers[:, None]
