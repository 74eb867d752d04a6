"""Random Transformers with every option, and forced decoding of their graphs without the engine."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from dragoman.model.data.batches import pad
from dragoman.model.network.recurrent import Recurrent
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import BOS_ID
from dragoman.serve.bundle.bundle import DECODER_FILE, ENCODER_FILE, Bundle
from dragoman.serve.bundle.manifest import AttentionHead
from dragoman.serve.runtime.placement import ModelSessions
from tests.support.stepping import each, logits_of_step
from tests.support.toy import OPTIONS, random_sources

ROWS = 6
# Heads of a model with two layers of two heads.
HEADS = (AttentionHead(layer=1, head=1), AttentionHead(layer=0, head=0), AttentionHead(layer=1, head=0))
# Head sizes 8, 16, 24 and 32, several depths, every option, and inner widths that do not fill vector registers.
MODELS: dict[str, dict[str, Any]] = {
    "the paper's": {"d_model": 16, "d_ff": 47},
    "pre-norm, gelu, untied": {
        "d_model": 48,
        "d_ff": 145,
        "encoder_layers": 2,
        "norm_position": "pre",
        "norm_embeddings": True,
        "norm_epsilon": 1e-6,
        "activation": "gelu",
        "tie_embeddings": False,
    },
    "rms, learned": {
        "d_model": 128,
        "d_ff": 384,
        "heads": 4,
        "decoder_layers": 3,
        "norm": "rms",
        "positions": "learned",
    },
    "modern": {**OPTIONS["modern"], "d_ff": 83},
    "silu, unscaled, with a bias": {
        "d_model": 64,
        "d_ff": 96,
        "activation": "silu",
        "positions": "learned",
        "scale_embeddings": False,
        "output_bias": True,
    },
}


def forced_targets(model: Transformer | Recurrent) -> NDArray[np.int64]:
    """Returns random target tokens, int64 [ROWS, T]."""
    targets = np.random.default_rng(2).integers(4, model.vocabulary_size, size=(ROWS, model.config.max_target_tokens))
    targets[:, 0] = BOS_ID
    return targets


@torch.inference_mode()
def expected_logits(model: Transformer | Recurrent) -> NDArray[np.float32]:
    """Returns the logits of the forced translations in PyTorch, float32 [ROWS, T, V]."""
    logits: NDArray[np.float32] = model(
        pad(random_sources(model, 1, ROWS)), torch.tensor(forced_targets(model))
    ).numpy()
    return logits


def decoded_logits(
    model: Transformer | Recurrent, sessions: ModelSessions, *, aligned: bool = False
) -> NDArray[np.float32]:
    """Returns the logits of the forced translations in the graphs, all rows together, float32 [ROWS, T, V]."""
    return _decode(model, sessions, np.arange(ROWS), aligned=aligned)


def decode_alone_and_together(model: Transformer | Recurrent, sessions: ModelSessions) -> Iterator[tuple[bytes, bytes]]:
    """Yields the logits of forced translations by row and step: alone, and in a batch of ROWS."""
    together = decoded_logits(model, sessions)
    for row in range(ROWS):
        (alone,) = _decode(model, sessions, np.array([row]))
        yield from zip(map(bytes, alone), map(bytes, together[row]), strict=True)


def _decode(
    model: Transformer | Recurrent, sessions: ModelSessions, rows: NDArray[np.int64], *, aligned: bool = False
) -> NDArray[np.float32]:
    sources, targets = random_sources(model, 1, ROWS), forced_targets(model)[rows]
    lengths = np.array([len(sources[row]) for row in rows], np.int32)
    runtime = sessions.runtime(len(rows))
    runtime.encode(pad([sources[row] for row in rows]).numpy(), lengths, each(range(len(rows))))
    steps = [
        logits_of_step(runtime, column, np.full(len(rows), position, np.int32), lengths, aligned=aligned)
        for position, column in enumerate(targets.T)
    ]
    return np.stack(steps, axis=1)


def graphs_of_bundle(bundle: Bundle) -> list[onnx.ModelProto]:
    """Returns encoder and decoder, without weights."""
    return [onnx.load(bundle.folder / name, load_external_data=False) for name in (ENCODER_FILE, DECODER_FILE)]
