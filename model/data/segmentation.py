"""Parallel text as token ids, fixed or sampled for every epoch (subword regularization, Kudo 2018, arXiv:1804.10959).

A segmentation x of a sentence has probability P(x)^alpha, normalized (section 3.2), where P is the unigram model's.
Tokens never cross a space, so words are drawn independently, and each distinct word's segmentations are computed once.
SentencePiece's own sampling uses a generator that differs between processes, so a resumed run would not repeat it.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise

import numpy as np

from dragoman.model.alignment.links import Link
from dragoman.model.alignment.tokens import starts_of_words, token_links, words_of_tokens
from dragoman.model.config import RunConfig
from dragoman.model.data.batches import TokenizedPairs
from dragoman.model.data.corpus import Corpus
from dragoman.model.tokenizer.frozen_tokenizer import RunTokenizer
from dragoman.model.tokenizer.tokenizer import WORD_START, Frame, Tokenizer

# Kudo 2018, section 4.2, uses l = 64 too; some words have millions of segmentations.
SEGMENTATIONS_OF_WORD = 64

_WORD = re.compile(f"{WORD_START}[^{WORD_START}]*")


class SubwordSampler:
    """Samples segmentations of fixed texts, all at once."""

    def __init__(self, tokenizer: Tokenizer, alpha: float, texts: Sequence[Sequence[str]]) -> None:
        """Computes the segmentations of every word of the lines of `texts`; requires a unigram model.

        Small values of `alpha` flatten the distribution; large ones approach the most probable segmentation.
        """
        numbers: dict[str, int] = {}
        self._texts = [_words(tokenizer, lines, numbers) for lines in texts]
        segmentations = [tokenizer.segmentations(word, SEGMENTATIONS_OF_WORD) for word in numbers]
        # The cumulative probabilities of word number w lie in (w, w + 1): one binary search finds the draws of all
        # words.
        self._thresholds = _flat(
            (number + _cumulative([s.log_probability for s in choices], alpha)[:-1]).tolist()
            for number, choices in enumerate(segmentations)
        )
        choices = list(chain.from_iterable(segmentations))
        self._tokens = _flat((choice.ids for choice in choices), np.int64)
        self._first_tokens = _offsets(len(choice.ids) for choice in choices)

    def sample(self, random: np.random.Generator) -> list[list[list[int]]]:
        """Returns the ids of each line of each text."""
        return [self._sample_text(words, first_words, random) for words, first_words in self._texts]

    def _sample_text(self, words: np.ndarray, first_words: np.ndarray, random: np.random.Generator) -> list[list[int]]:
        below = np.searchsorted(self._thresholds, words + random.random(len(words)), side="right")
        # Each earlier word has one threshold fewer than choices, so the index of a choice is `below` + the word's
        # number.
        choices = below + words
        first = self._first_tokens[choices]
        counts = self._first_tokens[choices + 1] - first
        ends = np.concatenate(([0], np.cumsum(counts)))
        within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
        ids = self._tokens[np.repeat(first, counts) + within].tolist()
        return [ids[start:end] for start, end in pairwise(ends[first_words].tolist())]


def _words(tokenizer: Tokenizer, lines: Sequence[str], numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of all words, int64 [W], and the first word of each line plus W, int64 [L + 1].

    A new word gets the next number.
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


def encode_corpus(corpus: Corpus, tokenizer: RunTokenizer) -> TokenizedPairs:
    """Returns every pair in its most probable segmentation."""
    sources = tokenizer.encode_lines(corpus.sources)
    if isinstance(tokenizer, Tokenizer):  # both sides alike, on all CPUs
        return TokenizedPairs(sources, tokenizer.encode_lines(corpus.targets))
    return TokenizedPairs(sources, [tokenizer.encode_target(line) for line in corpus.targets])


class Segmentation:
    """Converts corpora, one per direction, to id pairs within the model's limits."""

    def __init__(self, tokenizer: RunTokenizer, config: RunConfig, corpora: Sequence[Corpus]) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.corpora = corpora

    def frame(self, corpus: Corpus) -> Frame:
        """Returns the tokens around the texts of a corpus, such as that of the target language."""
        return self.tokenizer.frame(self.config.directions, corpus.direction)

    @cached_property
    def encoded(self) -> list[TokenizedPairs]:
        """Every pair of every corpus in its most probable segmentation, of any length."""
        return [encode_corpus(corpus, self.tokenizer) for corpus in self.corpora]

    @cached_property
    def most_probable(self) -> TokenizedPairs:
        """Every pair within the model's limits, in its most probable segmentation."""
        return self._fitting(self.encoded)

    def of_epoch(self, epoch: int) -> TokenizedPairs:
        """Returns the pairs of an epoch within the model's limits; a function of the run's seed and the epoch."""
        training = self.config.training
        chosen = self._choose(epoch) if training.direction_temperature > 1 else None
        if training.subword_sampling:
            sides = self._sampler.sample(np.random.default_rng((training.seed, epoch)))
            return self._fitting([TokenizedPairs(*pair) for pair in zip(sides[::2], sides[1::2], strict=True)], chosen)
        return self.most_probable if chosen is None else self._fitting(self.encoded, chosen)

    def _choose(self, epoch: int) -> list[list[int]]:
        """Returns the indices of the pairs of an epoch, by corpus: about as many in total as there are pairs.

        The share of a corpus is n^(1 / T), normalized (Arivazhagan et al. 2019, arXiv:1907.05019, section 4.2). A pair
        occurs again only after every other pair of its corpus.
        """
        counts = np.array([len(corpus) for corpus in self.corpora])
        shares = counts ** (1 / self.config.training.direction_temperature)
        wanted = np.rint(counts.sum() * shares / shares.sum()).astype(int)
        random = np.random.default_rng((self.config.training.seed, epoch, len(counts)))
        return [
            np.concatenate((np.tile(np.arange(n), want // n), random.permutation(n)[: want % n])).tolist()
            for n, want in zip(counts.tolist(), wanted.tolist(), strict=True)
        ]

    @cached_property
    def _sampler(self) -> SubwordSampler:
        if not isinstance(self.tokenizer, Tokenizer):
            raise TypeError("expected a tokenizer with a unigram model")
        texts = [side for corpus in self.corpora for side in (corpus.sources, corpus.targets)]
        return SubwordSampler(self.tokenizer, self.config.training.subword_sampling, texts)

    def _fitting(
        self, encoded: Sequence[TokenizedPairs], chosen: Sequence[Sequence[int]] | None = None
    ) -> TokenizedPairs:
        """Adds the frame to the `chosen` pairs (None: all) and drops pairs that exceed the model's limits."""
        limits = self.config.model
        pairs = TokenizedPairs([], [], special=self.tokenizer.special, suffix=self.tokenizer.source_suffix)
        linked = any(corpus.links for corpus in self.corpora)
        for number, (corpus, part) in enumerate(zip(self.corpora, encoded, strict=True)):
            prefix, start = self.frame(corpus)
            for index in range(len(part)) if chosen is None else chosen[number]:
                source, target = part.sources[index], [*start, *part.targets[index]]
                if len(prefix) + len(source) < limits.max_source_tokens and len(target) <= limits.max_target_tokens:
                    pairs.sources.append([*prefix, *source])
                    pairs.targets.append(target)
                    if linked:
                        pairs.links.append(self._token_links(corpus, index, source, target))
        return pairs

    def _token_links(self, corpus: Corpus, index: int, source: list[int], target: list[int]) -> list[Link]:
        """Returns the links of a pair between the tokens of source, prefix included, and target."""
        if not corpus.links or not corpus.links[index]:
            return []
        sides = ((source, corpus.sources[index]), (target, corpus.targets[index]))
        words = [words_of_tokens(ids, self._starts_of_words, len(text.split())) for ids, text in sides]
        prefix = len(self.frame(corpus).source_prefix)
        return [(prefix + i, j) for i, j in token_links(corpus.links[index], *words)]

    @cached_property
    def _starts_of_words(self) -> np.ndarray:
        return starts_of_words(self.tokenizer.source_pieces)
