"""Compares translations by tokens and, bit by bit, by scores; formats check results and first differences."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

Verdict = Literal["pass", "FAIL", "skip"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check: measured and required values, and the first difference if it failed."""

    check: str
    verdict: Verdict
    figure: str
    difference: str | None = None

    def __str__(self) -> str:
        """Returns the report line, and a second line for the difference."""
        line = f"{self.verdict}  {self.check:24} {self.figure}"
        return line if self.difference is None else f"{line}\n      first difference: {self.difference}"


def verdict_of(passed: bool) -> Verdict:
    """Returns the verdict of a check."""
    return "pass" if passed else "FAIL"


class Sentence(NamedTuple):
    """A text and its source ids."""

    text: str
    source_ids: tuple[int, ...]


class Answer(NamedTuple):
    """A translation without EOS; `score` is a sum of natural log-probabilities with EOS, NaN: no translation."""

    target_ids: tuple[int, ...]
    score: float
    token_scores: tuple[float, ...] = ()

    def has_tokens_of(self, other: "Answer") -> bool:
        """Returns True if both translations are equal."""
        return self.target_ids == other.target_ids

    def has_scores_of(self, other: "Answer") -> bool:
        """Returns True if all scores are bitwise equal; False if there is no translation."""
        bits = [np.array([item.score, *item.token_scores]).tobytes() for item in (self, other)]
        return bits[0] == bits[1] and not np.isnan(self.score)


class Labeled(NamedTuple):
    """An answer and the name of the system that produced it."""

    label: str
    answer: Answer


# Lead of the best logit over the second best, for source ids and the target ids before the step.
Gap = Callable[[tuple[int, ...], tuple[int, ...]], float]


def first_difference(expected: Answer, actual: Answer) -> int:
    """Returns the first step with different tokens, or else with different scores, or else the last step."""
    tokens = zip_longest(expected.target_ids, actual.target_ids)
    if expected.has_tokens_of(actual):
        scores = zip(expected.token_scores, actual.token_scores, strict=False)
        return next((step for step, (a, b) in enumerate(scores) if a != b), len(expected.target_ids))
    return next(step for step, (a, b) in enumerate(tokens) if a != b)


def describe_difference(sentence: Sentence, expected: Labeled, actual: Labeled, gap: Gap) -> str:
    """Describes the first difference of two answers, and the lead of the best logit there."""
    step = first_difference(expected.answer, actual.answer)
    lead = gap(sentence.source_ids, expected.answer.target_ids[:step])
    parts = []
    for name, answer in (expected, actual):
        if expected.answer.has_tokens_of(actual.answer):
            score = answer.token_scores[step] if step < len(answer.token_scores) else answer.score
            parts.append(f"{name}: score {score!r}")
        else:
            parts.append(f"{name}: {'EOS' if step >= len(answer.target_ids) else f'token {answer.target_ids[step]}'}")
    return f"step {step}: {', '.join(parts)}; the best logit leads by {lead:.2e}: {sentence.text}"
