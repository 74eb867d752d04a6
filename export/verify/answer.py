"""Translations as they are compared: by their tokens, by their scores, bit by bit; and where two of them part.

Knows neither who translated nor how.

What a check found: one line of a report, and the first difference if it failed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

Verdict = Literal["pass", "FAIL", "skip"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check.

    Attributes:
        check: its name.
        verdict: whether the bundle keeps the promise, or why nobody knows.
        figure: what was measured, and what was demanded.
        difference: the first one, if the check failed.
    """

    check: str
    verdict: Verdict
    figure: str
    difference: str | None = None

    def __str__(self) -> str:
        """Returns the line of the report, and a second one for the difference."""
        line = f"{self.verdict}  {self.check:24} {self.figure}"
        return line if self.difference is None else f"{line}\n      first difference: {self.difference}"


def verdict_of(passed: bool) -> Verdict:
    """Returns the word for it."""
    return "pass" if passed else "FAIL"


class Sentence(NamedTuple):
    """A text and what a model reads of it."""

    text: str
    source_ids: tuple[int, ...]


class Answer(NamedTuple):
    """What somebody makes of a sentence.

    Attributes:
        target_ids: without the end token.
        score: sum of the natural log-probabilities of the tokens, the end token included; NaN: there is no translation.
        token_scores: these log-probabilities; none if nobody wrote them down.
    """

    target_ids: tuple[int, ...]
    score: float
    token_scores: tuple[float, ...] = ()

    def has_tokens_of(self, other: "Answer") -> bool:
        """Tells whether both are the same translation."""
        return self.target_ids == other.target_ids

    def has_scores_of(self, other: "Answer") -> bool:
        """Tells whether all scores are bitwise the same; where there is no translation, they are not."""
        bits = [np.array([each.score, *each.token_scores]).tobytes() for each in (self, other)]
        return bits[0] == bits[1] and not np.isnan(self.score)


class Labeled(NamedTuple):
    """An answer, and whose it is."""

    who: str
    answer: Answer


# How far the best logit is above the second best, given source ids and the target ids before the step.
Gap = Callable[[tuple[int, ...], tuple[int, ...]], float]


def first_difference(expected: Answer, actual: Answer) -> int:
    """Returns the first step at which tokens differ; if none does, the first at which scores do, or the last."""
    tokens = zip_longest(expected.target_ids, actual.target_ids)
    if expected.has_tokens_of(actual):
        scores = zip(expected.token_scores, actual.token_scores, strict=False)
        return next((step for step, (a, b) in enumerate(scores) if a != b), len(expected.target_ids))
    return next(step for step, (a, b) in enumerate(tokens) if a != b)


def describe_difference(sentence: Sentence, expected: Labeled, actual: Labeled, gap: Gap) -> str:
    """Tells where two answers part, what each says there, and how close the decision was."""
    step = first_difference(expected.answer, actual.answer)
    lead = gap(sentence.source_ids, expected.answer.target_ids[:step])
    parts = []
    for who, answer in (expected, actual):
        if expected.answer.has_tokens_of(actual.answer):
            score = answer.token_scores[step] if step < len(answer.token_scores) else answer.score
            parts.append(f"{who} says score {score!r}")
        else:
            ended = step >= len(answer.target_ids)
            parts.append(f"{who} says {'the end' if ended else f'token {answer.target_ids[step]}'}")
    return f"step {step}: {', '.join(parts)}; the best logit leads by {lead:.2e}: {sentence.text}"
