"""Greedy translation with PyTorch, without a cache: slow, obvious, and the reference for every exported graph.

Training uses it to show what the model says, export to make golden sentences and to verify the graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.batches import pad
from model.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Generated:
    """A translation of one sequence.

    Attributes:
        target_ids: its tokens, the end token excluded.
        score: sum of the natural log-probabilities of its tokens, the end token included.
        gaps: for every step, how far the best logit was above the second best.
    """

    target_ids: tuple[int, ...]
    score: float
    gaps: tuple[float, ...]


@torch.inference_mode()
def generate_greedy(model: Transformer, sources: Sequence[Sequence[int]]) -> list[Generated]:
    """Translates one batch of sources, each ending in EOS, taking the most probable token at every step.

    A translation ends with EOS, or when it holds `max_target_tokens` tokens. The model is to be in evaluation mode.
    """
    memory, source_mask = model.encode(pad(sources))
    target_ids = torch.full((len(sources), 1), BOS_ID)
    log_probabilities: list[Tensor] = []
    gaps: list[Tensor] = []
    finished = torch.zeros(len(sources), dtype=torch.bool)
    while not finished.all() and target_ids.shape[1] <= model.config.max_target_tokens:
        logits = model.project(model.decode(target_ids, memory, source_mask)[:, -1])  # [B, V]
        best = logits.topk(2)
        next_ids = best.indices[:, 0].masked_fill(finished, PAD_ID)
        log_probability = best.values[:, 0] - logits.logsumexp(dim=-1)
        log_probabilities.append(log_probability.masked_fill(finished, 0.0))
        gaps.append(best.values[:, 0] - best.values[:, 1])
        target_ids = torch.cat((target_ids, next_ids[:, None]), dim=1)
        finished |= next_ids == EOS_ID
    scores = torch.stack(log_probabilities).double().sum(dim=0)
    return [
        _cut(row, score, row_gaps)
        for row, score, row_gaps in zip(
            target_ids[:, 1:].tolist(), scores.tolist(), torch.stack(gaps).T.tolist(), strict=True
        )
    ]


def _cut(row: list[int], score: float, gaps: list[float]) -> Generated:
    """Drops what follows the end token."""
    length = row.index(EOS_ID) if EOS_ID in row else len(row)
    return Generated(tuple(row[:length]), score, tuple(gaps[: length + 1]))
