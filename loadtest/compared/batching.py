"""Static batches: which sentences a system translates together, for systems that take whole batches.

Sentences of one batch share their limits, because such systems take these once for a batch, and are of like length, so
that little is padded. Knows no system.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, cast

from loadtest.compared.source_sentence import SourceSentence

PATTERN = r"^[1-9][0-9]*:(examples|tokens)$"


@dataclass(frozen=True, slots=True)
class Batching:
    """How large a batch is.

    Attributes:
        size: the most of the units in a batch.
        unit: sentences, or their source tokens with padding; a sentence that is longer than that is a batch of its own.
    """

    size: int
    unit: Literal["examples", "tokens"]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what matches `PATTERN`, as in `64:examples`.

        Raises:
            ValueError: if the text is something else.
        """
        if re.match(PATTERN, text) is None:
            raise ValueError(f"{text}: expected a size and its unit, as in 64:examples or 1024:tokens")
        size, _, unit = text.partition(":")
        return cls(int(size), cast("Literal['examples', 'tokens']", unit))

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
