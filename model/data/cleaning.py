"""Leaving noise out of training data: absurd lengths, copies, duplicates; every pair that goes is counted.

Works on text, in characters, before there is a tokenizer. Validation and test data are not to be cleaned: a score is
comparable only on all of a test set.

What a run is trained and validated on: read, cleaned, and held out where a data set has no validation part.

Knows no tokens. `dragoman train` calls it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from model.config import CleaningConfig
from model.data.corpus import Corpus, CorpusError, has_split, read_corpora


class Reason(StrEnum):
    """Why a pair is not trained on, in the order in which the reasons are tried: a pair counts once."""

    BLANK = "blank"
    COPY = "copy"
    LONG = "long"
    RATIO = "ratio"
    DUPLICATE = "duplicate"
    HELD_OUT = "held out"


@dataclass(frozen=True, slots=True)
class CleanedCorpus:
    """What is left of a corpus, and how many pairs were left out for each reason."""

    corpus: Corpus
    dropped: dict[Reason, int]

    @property
    def read(self) -> int:
        """The number of pairs that there were."""
        return len(self.corpus) + sum(self.dropped.values())


def clean(corpus: Corpus, config: CleaningConfig) -> CleanedCorpus:
    """Leaves out what the configuration says; the other pairs stay as they are, in their order.

    White space at the ends of a side counts neither as length nor as a difference.

    Raises:
        CorpusError: if no pair is left.
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
    """Splits pairs off the end, at most a tenth of them: returns the rest, in which they are counted, and them.

    Raises:
        CorpusError: if there are fewer than ten.
    """
    corpus = cleaned.corpus
    cut = len(corpus) - min(pairs, len(corpus) // 10)
    if cut == len(corpus):
        raise CorpusError(f"{corpus.direction}: {cut} pairs are too few to hold some out for validation, expected 10")
    dropped = {**cleaned.dropped, Reason.HELD_OUT: len(corpus) - cut}
    return CleanedCorpus(corpus.select(range(cut)), dropped), corpus.select(range(cut, len(corpus)))


def _find_fault(source: str, target: str, config: CleaningConfig) -> Reason | None:
    shorter, longer = sorted((len(source), len(target)))
    if config.remove_copies and source == target:
        return Reason.COPY
    if config.max_characters is not None and longer > config.max_characters:
        return Reason.LONG
    if config.max_length_ratio is not None and longer > config.max_length_ratio * shorter:
        return Reason.RATIO
    return None


# Of a direction without validation pairs, so many training pairs are held out.
HELD_OUT_PAIRS = 1000


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Corpora by direction.

    Attributes:
        training: one for each direction, without those that are held out.
        validation: at most one for each of these directions, in the same order; never cleaned after a split.
    """

    training: list[CleanedCorpus]
    validation: list[Corpus]


def read_training_data(
    data: Sequence[str],
    validation: Sequence[str] = (),
    multi30k_folder: Path | None = None,
    cleaning: CleaningConfig = CleaningConfig(),  # noqa: B008  it is frozen
) -> TrainingData:
    """Reads and cleans training data and finds validation data for them.

    Args:
        data: specifications of the training pairs.
        validation: specifications of the validation pairs. Without any, each direction is validated on the validation
            parts of its data sets, or if they have none, on the last pairs of its training data, which are held out.
        multi30k_folder: where Multi30k is; None: where the environment says.
        cleaning: what is left out of the training data.

    Raises:
        CorpusError: if data cannot be read, too little is left, or validation data are of other directions.
    """
    cleaned = [clean(corpus, cleaning) for corpus in read_corpora(data, "train", multi30k_folder)]
    directions = [part.corpus.languages for part in cleaned]
    parts = validation or [specification for specification in data if has_split(specification, "validation")]
    found = {corpus.languages: corpus for corpus in read_corpora(parts, "validation", multi30k_folder)}
    for languages in found:
        if languages not in directions:
            expected = ", ".join("-".join(direction) for direction in directions)
            raise CorpusError(
                f"{', '.join(validation)}: languages are {'-'.join(languages)}, expected {expected} as in training"
            )
    if not validation:
        for index, part in enumerate(cleaned):
            if part.corpus.languages not in found:
                cleaned[index], found[part.corpus.languages] = hold_out(part, HELD_OUT_PAIRS)
    return TrainingData(cleaned, [found[languages] for languages in directions if languages in found])
