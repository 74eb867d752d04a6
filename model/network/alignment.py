"""How a recurrent decoder divides its attention over the source: the scores and windows of the two founding papers.

A score says how well one decoder state and one source position go together; an alignment makes weights of the scores,
over all positions (global) or over a window (local). `model.network.recurrent_decoder` calls it once for each target
position, `export.graphs.recurrent` exports the same code.

Shapes: B rows, S source positions, D width of states and annotations.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.config import RecurrentConfig


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
