"""Translations held against each other: the engine's against PyTorch's, those made by hand, and golden sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from export.verify.answer import Answer, Gap, Said, Sentence, describe_difference
from export.verify.outcome import Outcome, verdict_of
from serve.bundle.manifest import GoldenSentence

ENGINE = "the engine"


@dataclass(frozen=True, slots=True)
class Demands:
    """What the engine's translations must have in common with PyTorch's.

    Attributes:
        minimum_identical: share of translations with the same tokens; 0: any.
        score_tolerance: how far the scores of these may be apart, in nats; infinite: any distance.
    """

    minimum_identical: float
    score_tolerance: float


def check_against_pytorch(
    search: str,
    sentences: Sequence[Sentence],
    expected: Sequence[Answer],
    actual: Sequence[Answer],
    *,
    demands: Demands,
    gap: Gap,
) -> Outcome:
    """Compares the engine's translations with PyTorch's, by the same search."""
    pairs = list(zip(sentences, expected, actual, strict=True))
    different = [pair for pair in pairs if not pair[1].has_tokens_of(pair[2])]
    same = [pair for pair in pairs if pair[1].has_tokens_of(pair[2])]
    errors = [abs(theirs.score - ours.score) for _, theirs, ours in same]
    # Written such that a score that is no number is too far away.
    apart = [pair for pair, error in zip(same, errors, strict=True) if not error <= demands.score_tolerance]
    few = len(same) < demands.minimum_identical * len(pairs)
    share = f" ({demands.minimum_identical:.1%} demanded)" if demands.minimum_identical else ""
    limit = f" ({demands.score_tolerance:.1e} permitted)" if isfinite(demands.score_tolerance) else ""
    figure = (
        f"{len(same)} of {len(pairs)} translations have PyTorch's tokens{share}, "
        f"their scores are within {np.max(errors, initial=0.0):.1e} of its{limit}"
    )
    first = (different if few else apart)[:1]
    return Outcome(
        f"tokens, {search}",
        verdict_of(not first),
        figure,
        _describe_first(first, "PyTorch", gap),
    )


def check_against_by_hand(
    sentences: Sequence[Sentence], expected: Sequence[Answer], actual: Sequence[Answer], gap: Gap
) -> Outcome:
    """Compares the engine's greedy translations with those of the same graphs stepped by hand, bit by bit."""
    pairs = list(zip(sentences, expected, actual, strict=True))
    different = [pair for pair in pairs if not (pair[1].has_tokens_of(pair[2]) and pair[1].has_scores_of(pair[2]))]
    return Outcome(
        "engine, greedy",
        verdict_of(not different),
        f"{len(pairs) - len(different)} of {len(pairs)} translations are bitwise those of the graphs stepped by hand",
        _describe_first(different[:1], "by hand it", gap),
    )


def check_golden(
    golden: Sequence[GoldenSentence],
    sources: Sequence[tuple[int, ...]],
    actual: Sequence[Answer],
    gap: Gap,
) -> Outcome:
    """Compares with what the trained model answered when the bundle was made.

    Args:
        golden: the bundle's golden sentences.
        sources: what the bundle's tokenizer makes of their sources.
        actual: the engine's translations of their source ids.
        gap: of the bundle.
    """
    misread = [each for each, source_ids in zip(golden, sources, strict=True) if each.source_ids != source_ids]
    # The trained model's scores were not written down: both get the engine's.
    pairs = [
        (Sentence(each.source, each.source_ids), answer._replace(target_ids=each.target_ids), answer)
        for each, answer in zip(golden, actual, strict=True)
    ]
    wrong = [pair for pair in pairs if not pair[1].has_tokens_of(pair[2])]
    if misread:
        difference: str | None = f"the tokenizer reads other tokens than the trained model did: {misread[0].source}"
    else:
        difference = _describe_first(wrong[:1], "the trained model", gap)
    return Outcome(
        "golden sentences",
        verdict_of(not misread and not wrong),
        f"{len(golden) - len(misread)} of {len(golden)} are read and {len(golden) - len(wrong)} translated as by the "
        "trained model",
        difference,
    )


def _describe_first(pairs: Sequence[tuple[Sentence, Answer, Answer]], who: str, gap: Gap) -> str | None:
    return next(
        (
            describe_difference(sentence, Said(who, expected), Said(ENGINE, actual), gap)
            for sentence, expected, actual in pairs
        ),
        None,
    )
