"""Untrained recurrent models of every kind, small enough for a test, and ids for them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.model.config import RecurrentConfig
from dragoman.model.network.recurrent import Recurrent
from dragoman.model.tokenizer.tokenizer import EOS_ID, PAD_ID
from dragoman.serve.bundle.bundle import Bundle
from tests.support.small_models import randomize

VOCABULARY = 40
ATTENTIONS = ("additive", "dot", "general", "concat", "local_monotonic", "local_predictive")
# Fields of RecurrentConfig.
Kind = dict[str, Any]
KINDS: tuple[Kind, ...] = (
    *({"attention": attention} for attention in ATTENTIONS),
    {"attention": "additive", "hard": True},
    {"attention": "additive", "encoder_layers": 2, "decoder_layers": 3},
    {"attention": "general", "encoder_layers": 3, "decoder_layers": 2},
)
# That of `recurrent_bundle`, which attends after the updates.
LUONG: Kind = {"attention": "general", "decoder_layers": 3}
# It attends before the updates, and is so wide that a matrix product is split.
BAHDANAU: Kind = {"attention": "additive", "hard": True, "d_model": 256, "decoder_layers": 2}
CONCAT: Kind = {"attention": "concat", "d_model": 256}
PREDICTIVE: Kind = {"attention": "local_predictive", "d_model": 64}
# Every kind of attention. An export takes seconds, so the tests of all graphs share these.
EXPORTED: tuple[Kind, ...] = (
    {"attention": "additive", "d_model": 64},
    BAHDANAU,
    {"attention": "dot", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2},
    LUONG,
    CONCAT,
    {"attention": "local_monotonic", "d_model": 64, "encoder_layers": 2},
    PREDICTIVE,
)
RecurrentBundles = Callable[[Kind], tuple[Recurrent, Bundle]]


def name_kind(kind: Kind) -> str:
    return " ".join(str(value) if isinstance(value, str) else f"{name}={value}" for name, value in kind.items())


def random_recurrent(vocabulary_size: int = VOCABULARY, **fields: Any) -> Recurrent:
    """Returns a tiny untrained model, unless fields differ, with different translations of different sources."""
    tiny = {"architecture": "recurrent", "d_model": 16, "window": 2, "max_source_tokens": 12, "max_target_tokens": 9}
    torch.manual_seed(1)
    model = Recurrent(RecurrentConfig.model_validate({**tiny, **fields}), vocabulary_size, PAD_ID)
    randomize(model.named_parameters(), gain=1.5)
    nn.init.normal_(model.embedding.weight, std=1.2 * model.config.d_model**-0.5)
    return model.eval()


def random_ids(rows: int, length: int, seed: int = 1) -> Tensor:
    """Returns ids without padding, int64 [rows, length]."""
    return torch.randint(EOS_ID, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def ragged_ids(lengths: list[int], seed: int = 1) -> Tensor:
    """Returns right-padded rows of ids with given lengths, int64 [rows, longest]."""
    ids = random_ids(len(lengths), max(lengths), seed)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD_ID)
