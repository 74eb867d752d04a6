"""The sentences of an offline benchmark as all systems get them: token ids, and how long a translation may become.

They travel to the systems' processes in a file. Knows no text and no torch.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from benchmarks.systems.sources import FIRST_PIECE


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
