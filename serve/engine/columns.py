"""What is known of every running row, as arrays with one place for each row.

All of them are read and written for many rows at once; no Python runs for a single row. Knows neither sequences nor the
model.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

# Where no token is forced and none is suppressed.
NO_TOKEN = -1


class Kinds(NamedTuple):
    """What there is among some rows.

    Attributes:
        beam_sizes: of the rows, all different, ascending; 1: there are rows that are searched by themselves.
        drawn, constrained, attended, streamed: whether there is such a row.
    """

    beam_sizes: tuple[int, ...]
    drawn: bool
    constrained: bool
    attended: bool
    streamed: bool


@dataclass(frozen=True)
class Columns:
    """The columns of R rows; T most target tokens, S most source tokens, W most suppressed tokens.

    Attributes:
        numbers: of the sequence that each row belongs to, int64 [R].
        ranks: which of the sequence's hypotheses the row holds, int64 [R].
        beam_sizes: rows that beam search ranks together, int64 [R]; 1: the row is searched by itself.
        token_ids: the last token, the input of the next step, int64 [R].
        positions: the position of that token, which is also the number of target tokens so far, int32 [R].
        source_lengths: int32 [R].
        scores: sum of the natural log-probabilities of the tokens so far, float64 [R]; -inf: no such hypothesis.
        target_ids: the tokens so far, int64 [R, T].
        token_scores: their natural log-probabilities, float32 [R, T].
        attention: how much each of them looked at each source token, float32 [R, T, S]; S is 0 if no model tells.
        deadlines_seconds: when the client stops waiting, inf: never; float64 [R].
        limits, minimums: most and fewest target tokens, int32 [R].
        temperatures, top_ks, top_ps, uniforms: how tokens are drawn, float64 [R], int64 [R], float64 [R] and float64
            [R, T]; temperature 0: they are not.
        repetition_penalties, ngram_sizes: what is said against repetition, float32 [R] and int32 [R].
        suppressed_ids: tokens that are never chosen, int64 [R, W].
        forced_ids: the token to choose at each position, int64 [R, T].
        constrained: whether minimums, penalties, suppressed or forced tokens say anything of the row, bool [R].
        attended: whether attention is kept, bool [R].
        streamed: whether somebody listens to each token, bool [R].
    """

    numbers: NDArray[np.int64]
    ranks: NDArray[np.int64]
    beam_sizes: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    positions: NDArray[np.int32]
    source_lengths: NDArray[np.int32]
    scores: NDArray[np.float64]
    target_ids: NDArray[np.int64]
    token_scores: NDArray[np.float32]
    attention: NDArray[np.float32]
    deadlines_seconds: NDArray[np.float64]
    limits: NDArray[np.int32]
    minimums: NDArray[np.int32]
    temperatures: NDArray[np.float64]
    top_ks: NDArray[np.int64]
    top_ps: NDArray[np.float64]
    uniforms: NDArray[np.float64]
    repetition_penalties: NDArray[np.float32]
    ngram_sizes: NDArray[np.int32]
    suppressed_ids: NDArray[np.int64]
    forced_ids: NDArray[np.int64]
    constrained: NDArray[np.bool_]
    attended: NDArray[np.bool_]
    streamed: NDArray[np.bool_]

    @classmethod
    def allocate(cls, rows: int, *, target_tokens: int, source_tokens: int, suppressed: int) -> Self:
        """Returns columns of zeros.

        Args:
            rows: R.
            target_tokens: T.
            source_tokens: S.
            suppressed: W.
        """
        return cls(
            numbers=np.zeros(rows, np.int64),
            ranks=np.zeros(rows, np.int64),
            beam_sizes=np.zeros(rows, np.int64),
            token_ids=np.zeros(rows, np.int64),
            positions=np.zeros(rows, np.int32),
            source_lengths=np.zeros(rows, np.int32),
            scores=np.zeros(rows, np.float64),
            target_ids=np.zeros((rows, target_tokens), np.int64),
            token_scores=np.zeros((rows, target_tokens), np.float32),
            attention=np.zeros((rows, target_tokens, source_tokens), np.float32),
            deadlines_seconds=np.zeros(rows, np.float64),
            limits=np.zeros(rows, np.int32),
            minimums=np.zeros(rows, np.int32),
            temperatures=np.zeros(rows, np.float64),
            top_ks=np.zeros(rows, np.int64),
            top_ps=np.zeros(rows, np.float64),
            uniforms=np.zeros((rows, target_tokens), np.float64),
            repetition_penalties=np.zeros(rows, np.float32),
            ngram_sizes=np.zeros(rows, np.int32),
            suppressed_ids=np.zeros((rows, suppressed), np.int64),
            forced_ids=np.zeros((rows, target_tokens), np.int64),
            constrained=np.zeros(rows, np.bool_),
            attended=np.zeros(rows, np.bool_),
            streamed=np.zeros(rows, np.bool_),
        )

    @cached_property
    def kinds(self) -> Kinds:
        """What there is among the rows, found out once: when rows come or go, there are other columns."""
        return Kinds(
            beam_sizes=tuple(np.unique(self.beam_sizes).tolist()),
            drawn=bool((self.temperatures > 0).any()),
            constrained=bool(self.constrained.any()),
            attended=bool(self.attended.any()),
            streamed=bool(self.streamed.any()),
        )

    def first(self, rows: int) -> Self:
        """Returns views of the first rows."""
        return type(self)(*[column[:rows] for column in _all_of(self)])

    def branch(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies the tokens of hypotheses over those of others of the same sequences, as `copy` does whole rows."""
        if len(sources):
            length = self.positions[sources].max()
            for column in (self.target_ids, self.token_scores, self.attention):
                column[targets, :length] = column[sources, :length]

    def copy(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies rows over others, int64 [N] each; no row may be a source and a target."""
        if len(sources):
            for column in _all_of(self):
                column[targets] = column[sources]


_all_of: Callable[[Columns], tuple[NDArray[Any], ...]] = attrgetter(*(field.name for field in fields(Columns)))
