"""Batch invariance: a translation and its scores are bitwise the same alone and in any company.

Every sentence is translated alone, then with strangers, some of them greedily and some with a beam, that join and leave
at random steps. One bit that differs fails the check.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from export.verify.answer import Answer, Gap, Said, Sentence, describe_difference
from export.verify.outcome import Outcome, verdict_of
from export.verify.stepped_engine import SteppedEngine
from serve.runtime.model_sessions import ModelSessions
from serve.scheduler.sequence import Wish
from serve.search.options import SearchOptions


@dataclass(frozen=True, slots=True)
class Companies:
    """In whose company sentences are translated.

    Attributes:
        batches: how many translations run at once.
        seed: of who joins when.
    """

    batches: tuple[int, ...]
    seed: int


class Deviation(NamedTuple):
    """A translation that company changed."""

    search: str
    sentence: Sentence
    batch: int
    alone: Answer
    accompanied: Answer


def check_invariance(
    sessions: ModelSessions,
    sentences: Sequence[Sentence],
    searches: Mapping[str, SearchOptions],
    companies: Companies,
    *,
    gap: Gap,
    advance: Callable[[int], object],
) -> list[Outcome]:
    """Translates every sentence with every search, alone and in each company; returns an outcome for each search."""
    deviations = find_deviations(sessions, sentences, searches, companies, advance)
    return [
        _outcome(search, [each for each in deviations if each.search == search], len(sentences), companies, gap)
        for search in searches
    ]


def find_deviations(
    sessions: ModelSessions,
    sentences: Sequence[Sentence],
    searches: Mapping[str, SearchOptions],
    companies: Companies,
    advance: Callable[[int], object],
) -> list[Deviation]:
    """Returns what differs from the same translation alone."""
    random = np.random.default_rng(companies.seed)
    named = [(search, sentence) for search in searches for sentence in sentences]
    wishes = [Wish(sentence.source_ids, searches[search]) for search, sentence in named]
    widest = max(options.rows for options in searches.values())
    engine = SteppedEngine(sessions, max(companies.batches) * widest)
    alone = engine.translate(wishes, 1, advance)
    return [
        Deviation(search, sentence, batch, expected, actual)
        for batch in companies.batches
        for (search, sentence), expected, actual in zip(
            named, alone, engine.translate(wishes, batch, advance, random), strict=True
        )
        if not (expected.has_tokens_of(actual) and expected.has_scores_of(actual))
    ]


def _outcome(search: str, deviations: list[Deviation], sentences: int, companies: Companies, gap: Gap) -> Outcome:
    tokens = sum(not each.alone.has_tokens_of(each.accompanied) for each in deviations)
    scores = sum(not each.alone.has_scores_of(each.accompanied) for each in deviations)
    translations, batches = sentences * len(companies.batches), ", ".join(map(str, companies.batches))
    figure = (
        f"{tokens} of {translations} translations differ in a token from the same alone, {scores} in a bit of a score "
        f"({sentences} sentences, batches of {batches}, seed {companies.seed})"
    )
    return Outcome(
        f"invariance, {search}",
        verdict_of(not deviations),
        figure,
        _describe(deviations[0], gap) if deviations else None,
    )


def _describe(deviation: Deviation, gap: Gap) -> str:
    return describe_difference(
        deviation.sentence,
        Said("alone it", deviation.alone),
        Said(f"in a batch of {deviation.batch} it", deviation.accompanied),
        gap,
    )
