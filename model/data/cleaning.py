"""Cleans training data, and finds or holds out validation data. Works on text, before there is a tokenizer.

Every removed pair is counted. Validation and test data are not cleaned: a score is comparable only on a whole test set.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dragoman.model.config import CleaningConfig
from dragoman.model.data.corpus import Corpus, has_split, read_corpora
from dragoman.model.errors import CorpusError

# The part has at most 20 characters, begins with a letter, and occurs at least four times in a row.
_REPETITION = re.compile(r"([^\W\d_].{0,19}?)\1{3}")


class Reason(StrEnum):
    """Why a pair is removed, in the order of the checks; a pair counts once."""

    BLANK = "blank"
    COPY = "copy"
    REPETITION = "repetition"
    LONG = "long"
    RATIO = "ratio"
    DUPLICATE = "duplicate"
    HELD_OUT = "held out"


@dataclass(frozen=True, slots=True)
class CleanedCorpus:
    """The remaining corpus, and the number of removed pairs per reason."""

    corpus: Corpus
    dropped: dict[Reason, int]

    @property
    def read(self) -> int:
        """The number of pairs before cleaning."""
        return len(self.corpus) + sum(self.dropped.values())


def clean(corpus: Corpus, config: CleaningConfig) -> CleanedCorpus:
    """Removes pairs as configured; the others stay unchanged and in order. Raises CorpusError if no pair is left.

    White space at the ends of a side is ignored in lengths and comparisons.
    """
    dropped = Counter({Reason.BLANK: corpus.blank_pairs})
    kept: list[int] = []
    seen: set[tuple[str, str]] = set()
    for index, (source, target) in enumerate(zip(corpus.sources, corpus.targets, strict=True)):
        pair = source.strip(), target.strip()
        reason = _find_fault(*pair, config)
        if reason is None and config.remove_duplicates:
            reason = Reason.DUPLICATE if pair in seen else None
            seen.add(pair)
        if reason is None:
            kept.append(index)
        else:
            dropped[reason] += 1
    counts = {reason: dropped[reason] for reason in Reason}
    if not kept:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)
        raise CorpusError(f"{corpus.direction}: cleaning leaves no pair: {reasons}")
    return CleanedCorpus(corpus.select(kept), counts)


def hold_out(cleaned: CleanedCorpus, pairs: int) -> tuple[CleanedCorpus, Corpus]:
    """Splits at most a tenth off the end, and returns both parts, counted; raises CorpusError below ten pairs."""
    corpus = cleaned.corpus
    cut = len(corpus) - min(pairs, len(corpus) // 10)
    if cut == len(corpus):
        raise CorpusError(f"{corpus.direction}: expected at least 10 pairs to hold out validation data, got {cut}")
    dropped = {**cleaned.dropped, Reason.HELD_OUT: len(corpus) - cut}
    return CleanedCorpus(corpus.select(range(cut)), dropped), corpus.select(range(cut, len(corpus)))


def _find_fault(source: str, target: str, config: CleaningConfig) -> Reason | None:
    shorter, longer = sorted((len(source), len(target)))
    if config.remove_copies and source == target:
        return Reason.COPY
    if config.remove_repetitions and bool(_REPETITION.search(source)) != bool(_REPETITION.search(target)):
        return Reason.REPETITION
    if config.max_characters is not None and longer > config.max_characters:
        return Reason.LONG
    if config.max_length_ratio is not None and longer > config.max_length_ratio * shorter:
        return Reason.RATIO
    return None


# Training pairs held out of a direction without validation pairs.
HELD_OUT_PAIRS = 1000


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Corpora by direction: training without held-out pairs, and validation, in the same order and never cleaned."""

    training: list[CleanedCorpus]
    validation: list[Corpus]


def read_training_data(
    data: Sequence[str],
    validation: Sequence[str] = (),
    multi30k_folder: Path | None = None,
    cleaning: CleaningConfig = CleaningConfig(),  # noqa: B008  it is frozen
) -> TrainingData:
    """Reads and cleans training data and finds validation data for it.

    Without `validation`, each direction uses the validation parts of its data sets, or else the last pairs of its
    training data, which are held out. Raises CorpusError if data cannot be read, too little is left, or validation data
    has other directions.
    """
    cleaned = [clean(corpus, cleaning) for corpus in read_corpora(data, "train", multi30k_folder)]
    directions = [part.corpus.languages for part in cleaned]
    parts = validation or [specification for specification in data if has_split(specification, "validation")]
    found = {corpus.languages: corpus for corpus in read_corpora(parts, "validation", multi30k_folder)}
    for languages in found:
        if languages not in directions:
            expected = ", ".join("-".join(direction) for direction in directions)
            raise CorpusError(
                f"{', '.join(validation)}: expected a training direction ({expected}), got {'-'.join(languages)}"
            )
    if not validation:
        for index, part in enumerate(cleaned):
            if part.corpus.languages not in found:
                cleaned[index], found[part.corpus.languages] = hold_out(part, HELD_OUT_PAIRS)
    return TrainingData(cleaned, [found[languages] for languages in directions if languages in found])
