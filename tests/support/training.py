"""Trains small models of `transformers`, of any kind, on sequences of tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support.marian import fill

# The library's value for tokens that no loss depends on.
IGNORED = -100


def train(
    model: Any,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    pad_id: int,
    first_id: int,
    seed: int,
    steps: int,
    forced: int = 0,
    highest_rate: float = 0.005,
) -> None:
    """Trains a model whose training begins with its present weights.

    Args:
        pairs: source and target of each example, with their special tokens.
        pad_id: fills sources.
        first_id: the first token that the decoder reads.
        seed: of the order of the examples.
        steps: batches of 32 examples.
        forced: tokens at the beginning of each target that the model need not predict.
    """
    optimizer, random = torch.optim.Adam(model.parameters()), np.random.default_rng(seed)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=highest_rate, total_steps=steps)
    model.train()
    for _ in range(steps):
        chosen = random.choice(len(pairs), 32, replace=False)
        source = fill([pairs[item][0] for item in chosen], pad_id)
        labels = fill([pairs[item][1] for item in chosen], IGNORED)
        given = nn.functional.pad(labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, pad_id), (1, 0), value=first_id)
        labels[:, :forced] = IGNORED
        loss = model(input_ids=source, attention_mask=source != pad_id, decoder_input_ids=given, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
    model.eval()
