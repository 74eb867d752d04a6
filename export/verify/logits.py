"""Logits held against each other, step by step along the same translations: PyTorch's and ONNX Runtime's.

A graph in floats is compared with the trained model. One in 8-bit integers cannot equal it: it is compared with the
trained model rounded in the same places, and what it may differ by is what rounding changes in PyTorch itself.

Shapes: B rows, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.verify.answer import Gap, Sentence
from export.verify.outcome import Outcome, verdict_of
from export.verify.stepper import Stepper


class Apart(NamedTuple):
    """The token of a step on whose logit the two models agree least."""

    sentence: Sentence
    target_ids: tuple[int, ...]  # those before the step
    token_id: int
    expected: float
    actual: float

    @property
    def difference(self) -> float:
        """How far the logits are apart."""
        return abs(self.actual - self.expected)


class Tolerance(NamedTuple):
    """How far logits may be apart, and why so far."""

    value: float
    reason: str


def compare_logits(
    expected: Stepper,
    actual: Stepper,
    sentences: Sequence[Sentence],
    targets: Sequence[tuple[int, ...]],
    *,
    rows: int,
    advance: Callable[[int], object],
) -> list[Apart]:
    """Forces both models along the targets, `rows` sentences at a time; returns the worst token of every step."""
    apart: list[Apart] = []
    for start in range(0, len(sentences), rows):
        batch = slice(start, start + rows)
        apart += _compare_batch(expected, actual, sentences[batch], targets[batch])
        advance(len(sentences[batch]))
    return apart


def largest(apart: Sequence[Apart]) -> float:
    """Returns the largest difference; NaN if any logit is no number."""
    return float(np.max([each.difference for each in apart]))


def check_logits(apart: Sequence[Apart], tolerance: Tolerance, reference: str, gap: Gap) -> Outcome:
    """Judges what `compare_logits` found.

    Args:
        apart: the worst token of every step.
        tolerance: how far logits may be apart.
        reference: whose logits were expected.
        gap: of the model that they were expected from.
    """
    # Written such that a logit that is no number is too far away.
    first = next((each for each in apart if not each.difference <= tolerance.value), None)
    return Outcome(
        "logits",
        verdict_of(first is None),
        f"at most {largest(apart):.1e} from {reference} in {len(apart)} steps; "
        f"{tolerance.value:.1e} permitted, {tolerance.reason}",
        None if first is None else _describe(first, reference, gap),
    )


def _compare_batch(
    expected: Stepper, actual: Stepper, sentences: Sequence[Sentence], targets: Sequence[tuple[int, ...]]
) -> Iterator[Apart]:
    for stepper in (expected, actual):
        stepper.start([sentence.source_ids for sentence in sentences])
    lengths = np.array([len(target) for target in targets])
    token_ids = np.full(len(targets), expected.bos_id)
    for position in range(min(int(lengths.max()) + 1, expected.max_target_tokens)):
        theirs, ours = expected.step(token_ids), actual.step(token_ids)
        worst = np.abs(ours - theirs).argmax(axis=1)  # [B]; the position of the first NaN if there is one
        for row in np.flatnonzero(position <= lengths).tolist():
            token_id = int(worst[row])
            logits = float(theirs[row, token_id]), float(ours[row, token_id])
            yield Apart(sentences[row], targets[row][:position], token_id, *logits)
        token_ids = _forced(targets, position, token_ids)


def _forced(targets: Sequence[tuple[int, ...]], position: int, token_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the token of each row at a position, int64 [B]; of a row that is over whatever it was."""
    return np.array(
        [
            target[position] if position < len(target) else last
            for target, last in zip(targets, token_ids.tolist(), strict=True)
        ]
    )


def _describe(apart: Apart, reference: str, gap: Gap) -> str:
    lead = gap(apart.sentence.source_ids, apart.target_ids)
    return (
        f"step {len(apart.target_ids)}: the logit of token {apart.token_id} is {apart.expected:.6f} in {reference}, "
        f"{apart.actual:.6f} in ONNX Runtime; the best logit leads by {lead:.2e}: {apart.sentence.text}"
    )
