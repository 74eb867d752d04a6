"""The sentences that the load is made of: a file of the user's, or a few of our own.

A request's texts are drawn with replacement, so that requests differ in length as they do in life.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

# Sentences of the demo grammar, short and long ones.
DEFAULT_SENTENCES = (
    "Peter is not sleeping.",
    "The queens were very old.",
    "Does the man close the window?",
    "The old brother will read a newspaper.",
    "I know that the boy must not drive to the garden.",
    "Tomorrow he must find sixty-nine lamps at the station.",
    "This cake that he buys was cheaper than my pears.",
    "These old hats that he sold are bigger than the expensive dresses.",
    "The man brings her a pear although the hungry farmers eat her expensive soup.",
    "Because our friendly son wanted to put an old letter under the bench, their father wanted to go to the village.",
)


def read_sentences(path: Path) -> tuple[str, ...]:
    """Returns the lines of a UTF-8 file that are not blank.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it holds no sentence or is not UTF-8.
    """
    sentences = tuple(line for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
    if not sentences:
        raise ValueError("expected at least one line that is not blank")
    return sentences


def sentences_of(path: Path | None) -> tuple[str, ...]:
    """Returns the sentences of a file, or the built-in ones.

    Raises:
        OSError, ValueError: as `read_sentences`.
    """
    return DEFAULT_SENTENCES if path is None else read_sentences(path)


def describe(sentences: Sequence[str]) -> dict[str, float]:
    """Returns how many sentences there are, and how many words they have."""
    words = np.array([len(sentence.split()) for sentence in sentences])
    p50, p90, longest = np.percentile(words, (50, 90, 100), method="inverted_cdf").tolist()
    return {"sentences": len(sentences), "words_p50": p50, "words_p90": p90, "words_max": longest}
