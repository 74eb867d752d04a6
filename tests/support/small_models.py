"""Small models of any kind: random weights, and for those of `transformers` also training and search."""

import io
from collections.abc import Container, Iterable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor, nn

# Ends of the names of gains of normalizations.
GAINS = ("norm.weight", "layernorm_embedding.weight")
# The library's value for tokens that no loss depends on.
IGNORED = -100


def sentencepiece_model(texts: Iterable[str], count: int, **options: Any) -> bytes:
    """Returns a SentencePiece model; the options are those of its trainer."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=count, minloglevel=2, **options
    )
    return model.getvalue()


def randomize(parameters: Iterable[tuple[str, nn.Parameter]], gain: float = 2.0) -> None:
    """Gives parameters random values: larger ones than usual, else the logits depend on the last target token only."""
    for name, parameter in parameters:
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter, gain=gain)
        else:
            nn.init.normal_(parameter, std=1.0 if name.endswith(GAINS) else 0.1)


def fill(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=filling)


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
    """Trains a model from its present weights.

    Args:
        pairs: source and target of each example, with their special tokens.
        first_id: the first token that the decoder reads.
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


@torch.inference_mode()
def generate(
    model: Any,
    sources: Sequence[Sequence[int]],
    beam_size: int,
    limit: int,
    start: Sequence[int] = (),
    *,
    pad_id: int,
    end_ids: Container[int],
    **options: Any,
) -> list[tuple[int, ...]]:
    """Returns the translations of `transformers`, without special tokens.

    These settings make its search equal to ours: hypotheses finish in order, rank by mean token log-probability, and
    have no forced end. `start` is the forced language token.
    """
    source = fill(sources, pad_id)
    search: dict[str, Any] = {"early_stopping": True, "length_penalty": 1.0} if beam_size > 1 else {}
    found = model.generate(
        input_ids=source,
        attention_mask=source != pad_id,
        num_beams=beam_size,
        max_length=limit + 1 + len(start),
        forced_bos_token_id=start[0] if start else None,
        forced_eos_token_id=None,
        do_sample=False,
        **search,
        **options,
    )
    return [
        tuple(takewhile(lambda token_id: token_id not in end_ids, row)) for row in found[:, 1 + len(start) :].tolist()
    ]
