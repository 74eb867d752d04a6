"""What a system computes together: a static batch, for systems that take whole batches, or the rows of an engine.

Sentences of one static batch share their limits, because such systems take these once for a batch, and are of like
length, so that little is padded. Knows no system.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, cast

from benchmarks.systems.source_sentence import SourceSentence

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
