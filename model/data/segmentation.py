"""Parallel text as token ids: the same ones always, or sampled anew for every epoch.

Subword regularization: text cut into tokens in another way every time (Kudo 2018, arXiv:1804.10959).

A segmentation x of a sentence is drawn with probability P(x)^alpha, normalized (section 3.2 there), where P is the
unigram model's. Tokens never reach over a space, so a sentence is drawn word by word, and each distinct word's
segmentations are looked up once. SentencePiece samples too, but from a generator that differs between processes: a
resumed run would not see what an unbroken one does.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise

import numpy as np

from model.config import RunConfig
from model.data.batches import TokenizedPairs
from model.data.corpus import Corpus
from model.tokenizer.tokenizer import WORD_START, Tokenizer, source_prefix

# Kudo 2018, section 4.2, cuts the distribution off here for l = 64; there are words with millions of segmentations.
SEGMENTATIONS_OF_WORD = 64

_WORD = re.compile(f"{WORD_START}[^{WORD_START}]*")


class SubwordSampler:
    """Draws segmentations of texts that are known beforehand, all of them at once."""

    def __init__(self, tokenizer: Tokenizer, alpha: float, texts: Sequence[Sequence[str]]) -> None:
        """Looks up the segmentations of every word.

        Args:
            tokenizer: a unigram model.
            alpha: smoothing; small values are bold, large ones come close to the most probable segmentation.
            texts: lines of each text.
        """
        numbers: dict[str, int] = {}
        self._texts = [_words(tokenizer, lines, numbers) for lines in texts]
        segmentations = [tokenizer.segmentations(word, SEGMENTATIONS_OF_WORD) for word in numbers]
        # A word's probabilities, accumulated, lie above its number: one search finds the draws of all words.
        self._thresholds = _flat(
            (number + _cumulative([s.log_probability for s in choices], alpha)[:-1]).tolist()
            for number, choices in enumerate(segmentations)
        )
        choices = list(chain.from_iterable(segmentations))
        self._tokens = _flat((choice.ids for choice in choices), np.int64)
        self._first_tokens = _offsets(len(choice.ids) for choice in choices)

    def sample(self, random: np.random.Generator) -> list[list[list[int]]]:
        """Returns the ids of each line of each text.

        Args:
            random: decides what is drawn.
        """
        return [self._sample_text(words, first_words, random) for words, first_words in self._texts]

    def _sample_text(self, words: np.ndarray, first_words: np.ndarray, random: np.random.Generator) -> list[list[int]]:
        below = np.searchsorted(self._thresholds, words + random.random(len(words)), side="right")
        # Every word before this one has one threshold less than it has choices.
        choices = below + words
        first = self._first_tokens[choices]
        counts = self._first_tokens[choices + 1] - first
        ends = np.concatenate(([0], np.cumsum(counts)))
        within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
        ids = self._tokens[np.repeat(first, counts) + within].tolist()
        return [ids[start:end] for start, end in pairwise(ends[first_words].tolist())]


def _words(tokenizer: Tokenizer, lines: Sequence[str], numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of all words of all lines, int64 [W], and where each line begins and the last ends [L + 1].

    A word that has no number yet gets the next.
    """
    spelled = (_WORD.findall(tokenizer.normalize(line)) for line in lines)
    words = [[numbers.setdefault(word, len(numbers)) for word in line] for line in spelled]
    return _flat(words, np.int64), _offsets(map(len, words))


def _cumulative(log_probabilities: Sequence[float], alpha: float) -> np.ndarray:
    scores = alpha * np.array(log_probabilities)
    weights = np.exp(scores - scores.max())
    return np.cumsum(weights / weights.sum())


def _flat(rows: Iterable[Iterable[float]], dtype: type = np.float64) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), dtype)


def _offsets(lengths: Iterable[int]) -> np.ndarray:
    return np.fromiter(accumulate(lengths, initial=0), np.int64)


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
