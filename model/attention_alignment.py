"""Word alignments from cross-attention: each target word is linked to the source word that a head attends to most.

A head's row for a token is the one that predicts it. The row of the next step, whose input is the token, often agrees
better if training had no alignments (Chen et al. 2020, arXiv:2004.14837): such a head is shifted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.model.alignment.links import Link
from dragoman.model.alignment.tokens import starts_of_words, word_links, words_of_tokens
from dragoman.model.data.batches import TokenizedPairs, plan_batches
from dragoman.model.data.corpus import Corpus
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import Tokenizer

BATCH_TOKENS = 4096


class Head(NamedTuple):
    """A cross-attention head, its layer and number counted from 0, and whether it is shifted."""

    layer: int
    head: int
    shifted: bool

    def __str__(self) -> str:
        return f"{self.layer}:{self.head}"


@dataclass(frozen=True, slots=True)
class AlignedModel:
    """A model in evaluation mode and its tokenizer; `prefix` are the ids before each source of the direction."""

    model: Transformer
    tokenizer: Tokenizer
    prefix: tuple[int, ...]

    def heads(self) -> list[Head]:
        """Returns every head, as it is and shifted."""
        layers, heads = self._shape()
        return [Head(*head) for head in product(range(layers), range(heads), (False, True))]

    def links(self, corpus: Corpus, heads: Sequence[Head]) -> list[list[frozenset[Link]]]:
        """Returns the links of each pair by head: `[head][pair]`; none for pairs that exceed the model's limits."""
        found = [[frozenset[Link]()] * len(corpus) for _ in heads]
        starts = starts_of_words(self.tokenizer.source_pieces)
        _, heads_of_layer = self._shape()
        for index, maps, (source, target) in self._maps(corpus):
            words = len(corpus.sources[index].split()), len(corpus.targets[index].split())
            source_words, target_words = (
                words_of_tokens(ids, starts, count) for ids, count in zip((source, target), words, strict=True)
            )
            for number, head in enumerate(heads):
                rows = slice(int(head.shifted), len(target) + int(head.shifted))
                columns = slice(len(self.prefix), len(self.prefix) + len(source))
                weights = maps[head.layer * heads_of_layer + head.head, rows, columns]
                found[number][index] = word_links(weights, source_words, target_words)
        return found

    @torch.inference_mode()
    def _maps(self, corpus: Corpus) -> Iterator[tuple[int, NDArray[np.float32], tuple[list[int], list[int]]]]:
        """Yields the index of a pair, its attention [maps, T, S] and its ids, shortest pairs first."""
        sources, targets = (self.tokenizer.encode_lines(side) for side in (corpus.sources, corpus.targets))
        pairs = TokenizedPairs([[*self.prefix, *ids] for ids in sources], targets)
        limits = self.model.limits
        lengths = pairs.lengths()
        for plan in plan_batches(np.argsort(lengths, kind="stable").tolist(), lengths, BATCH_TOKENS):
            fitting = [
                index
                for index in plan
                if len(pairs.sources[index]) < limits.max_source_tokens
                and len(targets[index]) <= limits.max_target_tokens
            ]
            if not fitting:
                continue
            batch = pairs.batch(fitting)
            maps = self.model.attention_maps(batch.source_ids, batch.target_inputs).float().numpy()
            for row, index in enumerate(fitting):
                yield index, maps[row], (sources[index], targets[index])

    def _shape(self) -> tuple[int, int]:
        """Returns the number of decoder layers, and of heads in each."""
        return self.model.limits.decoder_layers, self.model.limits.heads


@dataclass(frozen=True, slots=True)
class BothWays:
    """A model of both directions of a language pair, whose links are those that it finds from either side."""

    forward: AlignedModel
    backward: AlignedModel

    def heads(self) -> list[Head]:
        """Returns every head, as it is and shifted."""
        return self.forward.heads()

    def links(self, corpus: Corpus, heads: Sequence[Head]) -> list[list[frozenset[Link]]]:
        """Returns the common links of each pair by head: `[head][pair]`."""
        both = zip(self.forward.links(corpus, heads), self.backward.links(corpus.reversed(), heads), strict=True)
        return [[links & {(i, j) for j, i in inverse} for links, inverse in zip(*found, strict=True)] for found in both]

    def best_head(self, corpus: Corpus) -> Head:
        """Returns the head with the most common links in a corpus."""
        heads = self.heads()
        counts = [sum(map(len, found)) for found in self.links(corpus, heads)]
        return heads[counts.index(max(counts))]
