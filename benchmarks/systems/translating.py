"""Translators as measured systems: their sentences, static batches and runs, the same for all.

Sentences are token ids with limits of their translation; a file brings them to the processes. Made-up sentences are
reproducible. Sentences of a static batch share their limits, because systems take these once per batch, and have
similar lengths, which reduces padding.
"""

import gc
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness.process import Work

# Beam sizes by search; the larger beam needs the most memory and comes last.
SEARCHES = {"greedy": 1, "beam 4": 4}
# Hypotheses are ranked by the mean log-probability of their tokens, in all systems.
LENGTH_PENALTY = 1.0
# Smaller ids are special tokens.
FIRST_PIECE = 4
# The warm-up translates one sentence in this many.
WARM_UP_SHARE = 10


class SourceSentence(NamedTuple):
    """A sentence to translate, EOS included, with limits that exclude EOS; the minimum is 0 or equal to the maximum."""

    source_ids: tuple[int, ...]
    min_target_tokens: int
    max_target_tokens: int

    @property
    def limits(self) -> tuple[int, int]:
        """Minimum and maximum length of the translation."""
        return self.min_target_tokens, self.max_target_tokens


def write_sentences(path: Path, sentences: Sequence[SourceSentence]) -> None:
    """Writes a file for `Translator.prepare`."""
    path.write_text(json.dumps(sentences), encoding="utf-8")


def draw_sentences(
    seed: int, lengths: Sequence[tuple[int, int]], vocabulary_size: int, eos_id: int
) -> list[SourceSentence]:
    """Returns reproducible random sentences with exact source tokens, EOS included, and target tokens, EOS excluded."""
    random = np.random.default_rng(seed)
    return [
        SourceSentence((*random.integers(FIRST_PIECE, vocabulary_size, source - 1).tolist(), eos_id), target, target)
        for source, target in lengths
    ]


def spread(sentences: Sequence[SourceSentence], count: int) -> list[SourceSentence]:
    """Returns at most `count` sentences, at equal distances."""
    kept = min(count, len(sentences))
    return [sentences[number * len(sentences) // kept] for number in range(kept)]


class Batching(NamedTuple):
    """The maximum size of a batch.

    Units: examples are sentences; tokens are source tokens with padding, and a longer sentence is its own batch; rows
    are those of an engine with continuous batching.
    """

    size: int
    unit: str


def groups(sentences: Sequence[SourceSentence]) -> list[list[int]]:
    """Returns the indices of sentences with equal limits, the groups with the longest limits first."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, sentence in enumerate(sentences):
        found.setdefault(sentence.limits, []).append(number)
    return [found[limits] for limits in sorted(found, reverse=True)]


def batches(sentences: Sequence[SourceSentence], batching: Batching) -> list[list[int]]:
    """Returns the indices of each batch; within a group the longest sources come first."""
    made: list[list[int]] = []
    for group in groups(sentences):
        batch: list[int] = []
        for number in sorted(group, key=lambda item: -len(sentences[item].source_ids)):
            units = len(sentences[batch[0]].source_ids) if batch and batching.unit == "tokens" else 1
            if batch and (len(batch) + 1) * units > batching.size:
                made.append(batch)
                batch = []
            batch.append(number)
        made.append(batch)
    return made


class Translator(ABC):
    """A system that translates the sentences of a file."""

    @abstractmethod
    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence, EOS excluded; `batching` is for systems that do not choose it."""

    def translate_parts(
        self, parts: Sequence[Sequence[SourceSentence]], beam_size: int, batching: Batching
    ) -> list[Sequence[int]]:
        """Translates one part after the other."""
        return [target for part in parts for target in self.translate(part, beam_size, batching)]

    def prepare(
        self, *, sentences: str, beam_size: int, batching: str, alone: int | None = None, output: str | None = None
    ) -> Work:
        """Prepares a translation of a file of `write_sentences`; translates a part of the sentences as a warm-up.

        `batching` is a size and its unit, as in `64:examples`, `1024:tokens` or `32:rows`. `alone` is the number of
        sentences to translate one at a time; None: all at once. `output` gets the translations, a JSON list of lists of
        tokens.
        """
        rows = json.loads(Path(sentences).read_bytes())
        everything = [SourceSentence(tuple(source_ids), *limits) for source_ids, *limits in rows]
        parts = [everything] if alone is None else [[sentence] for sentence in spread(everything, alone)]
        size, unit = batching.split(":")
        chosen = Batching(int(size), unit)
        for part in [spread(everything, 1 + len(everything) // WARM_UP_SHARE)] if alone is None else parts[:2]:
            self.translate(part, beam_size, chosen)
        # Servers freeze too: a collection of garbage need not traverse objects that live on.
        gc.collect()
        gc.freeze()

        def translate() -> int:
            targets = list(map(list, self.translate_parts(parts, beam_size, chosen)))
            if output is not None:
                Path(output).write_text(json.dumps(targets), encoding="utf-8")
            return sum(map(len, targets))

        return translate
