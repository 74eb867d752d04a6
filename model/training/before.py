"""What the initial model of a further training translates: an export compares the result of the training with it."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import TypeAdapter

from dragoman.model.config import Section
from dragoman.model.data.corpus import Corpus
from dragoman.model.data.segmentation import Segmentation
from dragoman.model.run import TrainedModel
from dragoman.model.training.trainer import ValidationTranslation


class TranslatedPairs(Section):
    """Pairs of a direction and a domain, and the translations of the initial model."""

    domain: str
    source_language: str
    target_language: str
    sources: list[str]
    targets: list[str]
    translations: list[str]


# The content of the file of a run.
BEFORE = TypeAdapter(list[TranslatedPairs])


def translate_before(initial: TrainedModel, domains: Mapping[str, Sequence[Corpus]]) -> Iterator[TranslatedPairs]:
    """Yields greedy translations by domain; raises ValueError for a direction that the model lacks."""
    for domain, corpora in domains.items():
        for corpus in corpora:
            found = ValidationTranslation(Segmentation(initial.tokenizer, initial.config, [corpus]))
            yield TranslatedPairs(
                domain=domain,
                source_language=corpus.source_language,
                target_language=corpus.target_language,
                sources=found.texts,
                targets=found.references,
                translations=found.translate(initial.model),
            )
