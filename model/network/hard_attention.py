"""Hard attention: a decoder that looks at one source position at a time, and how it learns where.

A choice has no gradient, so in training positions are sampled, and those followed by likelier tokens are made likelier
(REINFORCE, Williams 1992), as Xu et al. 2015 (arXiv:1502.03044, section 4.1) did for captions of images.
`model.network.recurrent` samples; who trains it adds `Reinforce` to the cross-entropy:

    sampled = model.decode_sampled(target_ids, model.encode(source_ids))
    loss = cross_entropy(model.project(sampled.states), labels) + model.reinforce(log_likelihoods, sampled, valid)

Shapes: B rows, T target positions, S source positions.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

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
