"""Parallel text as token ids: the same ones always, or sampled anew for every epoch."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from model.config import RunConfig
from model.data.batches import TokenizedPairs
from model.data.corpus import Corpus
from model.data.subword_sampling import SubwordSampler
from model.tokenizer.directions import source_prefix
from model.tokenizer.tokenizer import Tokenizer


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer) -> TokenizedPairs:
    """Returns every pair in its most probable segmentation."""
    return TokenizedPairs(tokenizer.encode_lines(corpus.sources), tokenizer.encode_lines(corpus.targets))


class Segmentation:
    """How corpora, one for each direction, become pairs of ids that the model can take.

    Attributes:
        tokenizer: cuts the text.
        config: tells the directions, how long a sequence may be and how training segmentations are sampled.
        corpora: the text.
    """

    def __init__(self, tokenizer: Tokenizer, config: RunConfig, corpora: Sequence[Corpus]) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.corpora = corpora

    def prefix(self, corpus: Corpus) -> tuple[int, ...]:
        """Returns what stands before each of a corpus's sources: the token of the target language, if there is one."""
        return source_prefix(self.tokenizer, self.config.directions, corpus.direction)

    @cached_property
    def encoded(self) -> list[TokenizedPairs]:
        """Every pair of every corpus in its most probable segmentation, however long."""
        return [encode_corpus(corpus, self.tokenizer) for corpus in self.corpora]

    @cached_property
    def most_probable(self) -> TokenizedPairs:
        """Every pair that fits, in its most probable segmentation."""
        return self._fitting(self.encoded)

    def of_epoch(self, epoch: int) -> TokenizedPairs:
        """Returns every pair that fits as an epoch sees it, which the seed of the run and the epoch alone decide."""
        if not self.config.training.subword_sampling:
            return self.most_probable
        sides = self._sampler.sample(np.random.default_rng((self.config.training.seed, epoch)))
        return self._fitting([TokenizedPairs(*pair) for pair in zip(sides[::2], sides[1::2], strict=True)])

    @cached_property
    def _sampler(self) -> SubwordSampler:
        texts = [side for corpus in self.corpora for side in (corpus.sources, corpus.targets)]
        return SubwordSampler(self.tokenizer, self.config.training.subword_sampling, texts)

    def _fitting(self, encoded: Sequence[TokenizedPairs]) -> TokenizedPairs:
        """Puts the direction before each source and leaves out pairs that are too long for the model."""
        limits = self.config.model
        pairs = TokenizedPairs([], [])
        for corpus, part in zip(self.corpora, encoded, strict=True):
            prefix = self.prefix(corpus)
            for source, target in zip(part.sources, part.targets, strict=True):
                fits = len(prefix) + len(source) < limits.max_source_tokens
                if fits and len(target) <= limits.max_target_tokens:
                    pairs.sources.append([*prefix, *source])
                    pairs.targets.append(target)
        return pairs
