"""The sentences that the load is made of: a file of the user's, or a few of our own.

A request's texts are drawn with replacement, so that requests differ in length as they do in life.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from loadtest.scenario import ScenarioError

# The types of options that say what is translated, of every command that sends load.
SentencesPath = Annotated[
    Path | None, Field(description="UTF-8 file, a sentence per line. Default: ten built-in ones.")
]
SourceLanguage = Annotated[
    str, Field(description="ISO 639-1 code of the sentences, if the model reads several languages.")
]
TargetLanguage = Annotated[str, Field(description="ISO 639-1 code of the translations, if the model writes several.")]
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


def read_sentences(path: Path | None) -> tuple[str, ...]:
    """Returns the lines of a UTF-8 file that are not blank, or the built-in sentences.

    Raises:
        ScenarioError: if the file cannot be read, is not UTF-8 or holds no sentence.
    """
    if path is None:
        return DEFAULT_SENTENCES
    try:
        sentences = tuple(line for line in path.read_text(encoding="utf-8").split("\n") if line.strip())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"sentences: {path}: {error}") from error
    if not sentences:
        raise ScenarioError(f"sentences: {path}: expected at least one line that is not blank")
    return sentences


def describe(sentences: Sequence[str]) -> dict[str, float]:
    """Returns how many sentences there are, and how many words they have."""
    words = np.array([len(sentence.split()) for sentence in sentences])
    p50, p90, longest = np.percentile(words, (50, 90, 100), method="inverted_cdf").tolist()
    return {"sentences": len(sentences), "words_p50": p50, "words_p90": p90, "words_max": longest}
