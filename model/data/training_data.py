"""What a run is trained and validated on: read, cleaned, and held out where a data set has no validation part.

Knows no tokens. `dragoman train` calls it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.config import CleaningConfig
from model.data.cleaning import CleanedCorpus, clean, hold_out
from model.data.corpus import Corpus, CorpusError, has_split, read_corpora

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
