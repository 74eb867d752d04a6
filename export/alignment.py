"""Chooses the cross-attention heads whose weights align words best, by measurement without gold alignments.

Heads that a file names are taken as they are. Marian trains head 0 of the last layer with given alignments if it guides
alignment, as most OPUS-MT models were; this head is taken unless another one is clearly better. A head aligns well if
its rows are sharp and if together they reach every source token.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.model.config import TransformerConfig
from dragoman.serve.bundle.manifest import AttentionHead

# Another head must exceed the usual one by this factor.
CLEARLY_BETTER = 1.1


class HeadQuality(NamedTuple):
    """How well a head aligns: the share of source tokens with the largest weight of a target token, and mean entropy.

    The entropy of a row is divided by that of equal weights: 0 for one source token, 1 for all alike.
    """

    coverage: float
    entropy: float


class HeadMeasure:
    """Measures all heads on cross-attention weights, which it gets a layer at a time and does not keep."""

    def __init__(self, config: TransformerConfig, sentences: int) -> None:
        """Stores how many sentences count, the first ones."""
        self._config = config
        self._sentences = sentences
        self._found: dict[int, list[NDArray[np.float64]]] = {}

    def add(self, sentence: int, weights: NDArray[np.float32]) -> None:
        """Adds the weights of the next layer of a sentence, [H, T, S], T without EOS."""
        if sentence < self._sentences and weights.shape[-1] > 1:
            self._found.setdefault(sentence, []).append(_qualities(weights))

    def choose(self, named: tuple[AttentionHead, ...] = ()) -> tuple[tuple[AttentionHead, ...], HeadQuality]:
        """Returns the named heads, or else the best one, and their mean quality."""
        measured = [np.stack(layers) for layers in self._found.values()]
        if not measured:
            measured = [np.zeros((self._config.decoder_layers, self._config.heads, 2))]
        means = np.mean(measured, axis=0)  # [layers, H, 2]
        heads = named or (_best_head(means[..., 0] * (1 - means[..., 1])),)
        coverage, entropy = np.mean([means[head.layer, head.head] for head in heads], axis=0).tolist()
        return heads, HeadQuality(coverage, entropy)


def _best_head(figures: NDArray[np.float64]) -> AttentionHead:
    """Returns the usual head, unless another one has a clearly better figure; `figures` is [layers, H]."""
    usual = (len(figures) - 1, 0)
    best = np.unravel_index(figures.argmax(), figures.shape)
    layer, head = best if figures[best] > CLEARLY_BETTER * figures[usual] else usual
    return AttentionHead(layer=int(layer), head=int(head))


def _qualities(maps: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns coverage and entropy of each head, [H, 2], from weights [H, T, S]."""
    length = maps.shape[-1]
    reached = maps.argmax(axis=-1)[..., None] == np.arange(length)  # [H, T, S]
    coverage = reached.any(axis=-2).mean(axis=-1)
    entropy = -(maps * np.log(np.maximum(maps, 1e-30))).sum(axis=-1).mean(axis=-1) / np.log(length)
    return np.stack((coverage, entropy), axis=-1)
