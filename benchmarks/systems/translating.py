"""Translators as measured systems: their sentences, static batches and turns, the same for all.

Sentences are token ids with limits of their translation; a file brings them to the processes. Made-up sentences are
reproducible. Sentences of a static batch share their limits, because systems take these once per batch, and have
similar lengths, which reduces padding.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal, Self, cast

import numpy as np

from benchmarks.harness.process import Work

# Beam sizes by search; the larger beam needs the most memory and comes last.
SEARCHES = {"greedy": 1, "beam 4": 4}
# Smaller ids are special tokens.
FIRST_PIECE = 4


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence to translate, EOS included, with the limits of its translation, EOS excluded.

    Attributes:
        min_target_tokens: 0, or equal to the maximum.
    """

    source_ids: tuple[int, ...]
    min_target_tokens: int
    max_target_tokens: int

    @property
    def limits(self) -> tuple[int, int]:
        """Minimum and maximum length of the translation."""
        return self.min_target_tokens, self.max_target_tokens


def write_sentences(path: Path, sentences: Sequence[SourceSentence]) -> None:
    """Writes a file for `read_sentences`."""
    path.write_text(json.dumps([astuple(sentence) for sentence in sentences]), encoding="utf-8")


def read_sentences(path: Path) -> list[SourceSentence]:
    """Returns the sentences of a file."""
    return [
        SourceSentence(tuple(source_ids), shortest, longest)
        for source_ids, shortest, longest in json.loads(path.read_text(encoding="utf-8"))
    ]


def draw_sentences(
    seed: int, lengths: Sequence[tuple[int, int]], vocabulary_size: int, eos_id: int
) -> list[SourceSentence]:
    """Returns random sentences without special tokens; reproducible.

    The lengths are source tokens, EOS included, and exact target tokens, EOS excluded.
    """
    random = np.random.default_rng(seed)
    return [
        SourceSentence((*random.integers(FIRST_PIECE, vocabulary_size, source - 1).tolist(), eos_id), target, target)
        for source, target in lengths
    ]


def spread(sentences: Sequence[SourceSentence], count: int) -> list[SourceSentence]:
    """Returns at most `count` sentences, at equal distances."""
    kept = min(count, len(sentences))
    return [sentences[number * len(sentences) // kept] for number in range(kept)]


# A static batch.
PATTERN = r"^[1-9][0-9]*:(examples|tokens)$"
_UNITS = ("examples", "tokens", "rows")


@dataclass(frozen=True, slots=True)
class Batching:
    """The size of a batch.

    Attributes:
        size: maximum units in a batch.
        unit: examples are sentences; tokens are source tokens with padding, and a longer sentence is its own batch;
            rows are those of an engine with continuous batching.
    """

    size: int
    unit: Literal["examples", "tokens", "rows"]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a size and a unit, as in `64:examples`.

        Raises:
            ValueError: if the text is anything else.
        """
        size, _, unit = text.partition(":")
        if unit not in _UNITS or not size.isascii() or not size.isdigit() or int(size) == 0:
            raise ValueError(f"{text}: expected a size and a unit, as in 64:examples, 1024:tokens or 32:rows")
        return cls(int(size), cast("Literal['examples', 'tokens', 'rows']", unit))

    def __str__(self) -> str:
        return f"{self.size}:{self.unit}"

    def holds(self, sentences: int, longest: int) -> bool:
        """Returns whether a batch may have so many sentences, padded to the longest."""
        return sentences * (longest if self.unit == "tokens" else 1) <= self.size


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
        for number in sorted(group, key=lambda each: -len(sentences[each].source_ids)):
            longest = len(sentences[batch[0] if batch else number].source_ids)
            if batch and not batching.holds(len(batch) + 1, longest):
                made.append(batch)
                batch = []
            batch.append(number)
        made.append(batch)
    return made


# Hypotheses are ranked by the mean log-probability of their tokens, in all systems.
LENGTH_PENALTY = 1.0
# The warm-up translates one of so many sentences.
WARM_UP_SHARE = 10


def translate_batches(
    sentences: Sequence[SourceSentence],
    batching: Batching,
    translate: Callable[[list[Sequence[int]], int, int], Iterable[Sequence[int]]],
) -> list[Sequence[int]]:
    """Returns the target tokens of each sentence; `translate` maps the sources and limits of a batch to targets."""
    targets: dict[int, Sequence[int]] = {}
    for batch in batches(sentences, batching):
        answers = translate([sentences[number].source_ids for number in batch], *sentences[batch[0]].limits)
        targets |= zip(batch, answers, strict=True)
    return [targets[number] for number in range(len(sentences))]


class Translator(ABC):
    """A system that translates the sentences of a file."""

    @abstractmethod
    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence, EOS excluded; `batching` is for systems that do not choose it."""

    def prepare(
        self, *, sentences: str, beam_size: int, batching: str, alone: int | None = None, output: str | None = None
    ) -> Work:
        """Prepares a translation; translates a part of the sentences as a warm-up.

        Args:
            sentences: file written by `write_sentences`.
            beam_size: 1 is greedy search.
            batching: parsed by `Batching.parse`.
            alone: number of sentences to translate one at a time; None: all sentences at once.
            output: file for the translations, a JSON list of lists of tokens.
        """
        everything = read_sentences(Path(sentences))
        parts = [everything] if alone is None else [[sentence] for sentence in spread(everything, alone)]
        chosen = Batching.parse(batching)
        for part in [spread(everything, 1 + len(everything) // WARM_UP_SHARE)] if alone is None else parts[:2]:
            self.translate(part, beam_size, chosen)

        def translate() -> int:
            targets = [list(target) for part in parts for target in self.translate(part, beam_size, chosen)]
            if output is not None:
                Path(output).write_text(json.dumps(targets), encoding="utf-8")
            return sum(map(len, targets))

        return translate
