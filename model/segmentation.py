"""Parallel text as token ids: the same ones always, or sampled anew for every epoch.

Subword regularisation (Kudo 2018, arXiv:1804.10959) and BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267) show the
model several segmentations of the same text. An epoch's depend on the seed and its number alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.batches import TokenizedPairs
from model.config import RunConfig
from model.corpus import Corpus
from model.directions import source_prefix
from model.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How corpora, one for each direction, become pairs of ids that the model can take."""

    tokenizer: Tokenizer
    config: RunConfig
    corpora: Sequence[Corpus]

    def prefix(self, corpus: Corpus) -> tuple[int, ...]:
        """Returns what stands before each of a corpus's sources: the token of the target language, if there is one."""
        return source_prefix(self.tokenizer, self.config.directions, corpus.direction)

    def most_probable(self) -> TokenizedPairs:
        """Returns every pair in its usual segmentation."""
        sides = [(self.tokenizer.encode_lines(c.sources), self.tokenizer.encode_lines(c.targets)) for c in self.corpora]
        return self._fitting(sides)

    def sample(self, alpha: float, seed: tuple[int, int]) -> TokenizedPairs:
        """Returns every pair in a sampled segmentation.

        Args:
            alpha: unigram: smoothing of the distribution; bpe: share of the merges that are dropped.
            seed: of the run, and the number of the epoch.
        """
        sides = []
        for number, corpus in enumerate(self.corpora):
            source_seed, target_seed = np.random.SeedSequence((*seed, number)).generate_state(2).tolist()
            sources = self.tokenizer.sample_lines(corpus.sources, alpha, source_seed)
            sides.append((sources, self.tokenizer.sample_lines(corpus.targets, alpha, target_seed)))
        return self._fitting(sides)

    def _fitting(self, sides: list[tuple[list[list[int]], list[list[int]]]]) -> TokenizedPairs:
        """Puts the direction before each source and leaves out pairs that are too long for the model."""
        limits = self.config.model
        pairs = TokenizedPairs([], [])
        for corpus, (sources, targets) in zip(self.corpora, sides, strict=True):
            prefix = self.prefix(corpus)
            for source, target in zip(sources, targets, strict=True):
                fits = len(prefix) + len(source) < limits.max_source_tokens
                if fits and len(target) <= limits.max_target_tokens:
                    pairs.sources.append([*prefix, *source])
                    pairs.targets.append(target)
        return pairs
