"""A translator as a system that takes turns: it translates all sentences together, or some of them one after the other.

What a turn is, how it is warmed up and what is counted is the same for all translators; they only translate. Called by
the modules that are the processes of an offline benchmark.

Sources for measurements of decoders: token ids that mean nothing, the same ones for every system.

The sentences of an offline benchmark as all systems get them: token ids, and how long a translation may become.

They travel to the systems' processes in a file. Knows no text and no torch.

What a system computes together: a static batch, for systems that take whole batches, or the rows of an engine.

Sentences of one static batch share their limits, because such systems take these once for a batch, and are of like
length, so that little is padded. Knows no system.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.process import Work, work

# The smaller ids are special tokens.
FIRST_PIECE = 4


def draw_sources(seed: int, rows: int, length: int, vocabulary_size: int, eos_id: int) -> NDArray[np.int64]:
    """Returns sources of one length, int64 [rows, length], each ending in EOS; the same for the same arguments."""
    sources = np.random.default_rng(seed).integers(FIRST_PIECE, vocabulary_size, size=(rows, length))
    sources[:, -1] = eos_id
    return sources


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence to translate.

    Attributes:
        source_ids: source tokens, the end token included.
        min_target_tokens: the shortest translation, the end token excluded; 0, or the same as the longest.
        max_target_tokens: the longest translation, the end token excluded.
    """

    source_ids: tuple[int, ...]
    min_target_tokens: int
    max_target_tokens: int

    @property
    def limits(self) -> tuple[int, int]:
        """The shortest and the longest translation."""
        return self.min_target_tokens, self.max_target_tokens


def write_sentences(path: Path, sentences: Sequence[SourceSentence]) -> None:
    """Writes what `read_sentences` reads."""
    path.write_text(json.dumps([astuple(sentence) for sentence in sentences]), encoding="utf-8")


def read_sentences(path: Path) -> list[SourceSentence]:
    """Returns the sentences that were written."""
    return [
        SourceSentence(tuple(source_ids), shortest, longest)
        for source_ids, shortest, longest in json.loads(path.read_text(encoding="utf-8"))
    ]


def draw_sentences(
    seed: int, lengths: Sequence[tuple[int, int]], vocabulary_size: int, eos_id: int
) -> list[SourceSentence]:
    """Returns sentences that mean nothing, the same for the same arguments.

    Args:
        seed: of the drawing.
        lengths: of each sentence: source tokens, the end token included, and target tokens, the end token excluded;
            the translation gets exactly so many.
        vocabulary_size: from which tokens are drawn, special ones left out.
        eos_id: ends each source.
    """
    random = np.random.default_rng(seed)
    return [
        SourceSentence((*random.integers(FIRST_PIECE, vocabulary_size, source - 1).tolist(), eos_id), target, target)
        for source, target in lengths
    ]


def spread(sentences: Sequence[SourceSentence], count: int) -> list[SourceSentence]:
    """Returns at most so many sentences, from beginning to end of all, at equal distances."""
    kept = min(count, len(sentences))
    return [sentences[number * len(sentences) // kept] for number in range(kept)]


# Of a static batch.
PATTERN = r"^[1-9][0-9]*:(examples|tokens)$"
_UNITS = ("examples", "tokens", "rows")


@dataclass(frozen=True, slots=True)
class Batching:
    """How large a batch is.

    Attributes:
        size: the most of the units in a batch.
        unit: sentences, or their source tokens with padding; a sentence that is longer than that is a batch of its own.
            Or rows: those of an engine, which sequences join and leave by themselves.
    """

    size: int
    unit: Literal["examples", "tokens", "rows"]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a size and its unit, as in `64:examples`.

        Raises:
            ValueError: if the text is something else.
        """
        size, _, unit = text.partition(":")
        if unit not in _UNITS or not size.isascii() or not size.isdigit() or int(size) == 0:
            raise ValueError(f"{text}: expected a size and its unit, as in 64:examples, 1024:tokens or 32:rows")
        return cls(int(size), cast("Literal['examples', 'tokens', 'rows']", unit))

    def __str__(self) -> str:
        return f"{self.size}:{self.unit}"

    def holds(self, sentences: int, longest: int) -> bool:
        """Tells whether so many sentences, padded to the longest, are not too many."""
        return sentences * (longest if self.unit == "tokens" else 1) <= self.size


def groups(sentences: Sequence[SourceSentence]) -> list[list[int]]:
    """Returns the numbers of the sentences that share their limits, the groups with the longest limits first."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, sentence in enumerate(sentences):
        found.setdefault(sentence.limits, []).append(number)
    return [found[limits] for limits in sorted(found, reverse=True)]


def batches(sentences: Sequence[SourceSentence], batching: Batching) -> list[list[int]]:
    """Returns the numbers of the sentences of each batch; inside a group the longest sources come first."""
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


# Of hypotheses: they are compared by the mean log-probability of their tokens, in all systems.
LENGTH_PENALTY = 1.0
# A part of the sentences that is translated before the clock starts.
WARM_UP_SHARE = 10


class Translator(Protocol):
    """What translates."""

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence, the end token excluded.

        Args:
            sentences: in any order.
            beam_size: 1 is greedy search.
            batching: what to compute together, if it does not find out by itself.
        """


class TranslatingSystem:
    """Takes turns with a translator."""

    def __init__(self, translator: Translator, sentences: Path) -> None:
        self._translator = translator
        self._sentences = read_sentences(sentences)

    def plan(self, *, beam_size: int, batching: str, alone: int | None = None, output: str | None = None) -> Work:
        """Returns the work of translating; a part of it is done beforehand, to warm up.

        Args:
            beam_size: 1 is greedy search.
            batching: as `Batching.parse` reads it.
            alone: translate so many of the sentences, one after the other; None: all, together.
            output: file that gets the translations, a JSON list of lists of tokens.
        """
        sentences = self._sentences if alone is None else spread(self._sentences, alone)
        parts = [sentences] if alone is None else [[sentence] for sentence in sentences]
        chosen = Batching.parse(batching)
        for part in [spread(sentences, 1 + len(sentences) // WARM_UP_SHARE)] if alone is None else parts[:2]:
            self._translator.translate(part, beam_size, chosen)

        def translate(times: int) -> int:
            tokens = 0
            for _ in range(times):
                translations = [self._translator.translate(part, beam_size, chosen) for part in parts]
                tokens += sum(len(target) for translated in translations for target in translated)
            if output is not None:
                listed = [list(target) for translated in translations for target in translated]
                Path(output).write_text(json.dumps(listed), encoding="utf-8")
            return tokens

        return translate


def take_turns(make: Callable[..., Translator]) -> None:
    """Is the process of a translator.

    Args:
        make: makes it of the options; the path of the sentences is an option besides.
    """

    def load(sentences: str, **options: Any) -> TranslatingSystem:
        return TranslatingSystem(make(**options), Path(sentences))

    work(load)
