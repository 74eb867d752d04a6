"""Where a trained model looks in the source while it writes a given translation.

The translation is forced on the model: so all models write the same words, and the rows of their maps can be compared.
Called by `dragoman attention`; knows no plots.
"""

from dataclasses import dataclass

import numpy as np
import torch

from model.config import Direction, TransformerConfig
from model.run import TrainedModel
from model.tokenizer.tokenizer import BOS_ID, EOS_ID


class SentenceTooLongError(Exception):
    """A model has no room for the sentence; the message tells which limit it exceeds."""


@dataclass(frozen=True, slots=True)
class AttentionMaps:
    """How one model divides its attention over one source.

    Attributes:
        source_pieces: the S source tokens, with the end token and what the direction puts before them.
        target_pieces: the T target tokens, each of which was predicted with the row of its number; with the end token.
        layers: weights of every head of every decoder layer that has attention, float32 [layers, heads, T, S].
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    layers: np.ndarray

    @property
    def summary(self) -> np.ndarray:
        """The mean over the heads of the last layer, [T, S]; the one map, of a model that has one."""
        return np.asarray(self.layers[-1].mean(axis=0))


@torch.inference_mode()
def force_maps(trained: TrainedModel, direction: Direction, source: str, target: str) -> AttentionMaps:
    """Has a model predict every token of a translation from the ones before it, and returns where it looked.

    Args:
        trained: the model.
        direction: one of those that it translates.
        source: a sentence.
        target: its translation.

    Raises:
        SentenceTooLongError: if the source or the target is longer than the model can read.
    """
    (source_ids,) = trained.source_ids(direction, [source])
    target_ids = trained.tokenizer.encode(target)
    limits = trained.config.model
    if len(source_ids) > limits.max_source_tokens:
        raise SentenceTooLongError(f"{len(source_ids)} source tokens, expected at most {limits.max_source_tokens}")
    if len(target_ids) > limits.max_target_tokens:
        raise SentenceTooLongError(f"{len(target_ids)} target tokens, expected at most {limits.max_target_tokens}")
    (maps,) = trained.model.attention_maps(torch.tensor([source_ids]), torch.tensor([[BOS_ID, *target_ids]]))
    heads = limits.heads if isinstance(limits, TransformerConfig) else 1
    return AttentionMaps(
        tuple(trained.tokenizer.pieces(source_ids)),
        tuple(trained.tokenizer.pieces([*target_ids, EOS_ID])),
        maps.unflatten(0, (-1, heads)).float().numpy(),
    )
