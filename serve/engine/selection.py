"""Chooses the next token of every running row by the options of its sequence, and finishes hypotheses.

All greedy and sampled rows are advanced at once, and so are all beams of one size.

Shapes: R running rows, M some of them, B beams of size K, V vocabulary.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.engine.rows import NO_TOKEN, Columns, End, Kinds, Rows
from serve.runtime.model import NO_ROWS, Scores
from serve.search import beam
from serve.search.constraints import forbid_repeated_ngrams, penalize_repetition, postpone_end, suppress
from serve.search.patience import enough_hypotheses
from serve.search.sampling import draw


def best_count(kinds: Kinds) -> int:
    """Returns the most tokens of a row that a selection examines: two per hypothesis of the widest beam."""
    widest = max(kinds.beam_sizes)
    return 1 if widest == 1 else 2 * widest


class Step(NamedTuple):
    """Results of the model for one step of R rows, and the forced tokens.

    Attributes:
        computed: C, the rows that the model computed; the rows behind hold no existing hypothesis.
        scores: scores of the next tokens of these rows, with all constraints applied.
        attention: float32 [R, S], mean of the alignment heads; None if no row keeps it.
        forced_ids: the forced token of each row, int64 [C]; None if no row is constrained.
    """

    computed: int
    scores: Scores
    attention: NDArray[np.float32] | None
    forced_ids: NDArray[np.int64] | None

    def end(self, row: int, score: float) -> End:
        """Returns the end token that a row chose, with its attention."""
        return End(score, None if self.attention is None else self.attention[row])

    def attention_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Returns the attention of some rows."""
        return None if self.attention is None else self.attention[rows]


class Selected(NamedTuple):
    """The result of a selection.

    Attributes:
        over: rows that ended, bool [R].
        sources: rows whose state must be copied, int64 [N].
        targets: rows to copy them to, int64 [N]; no row is both.
    """

    over: NDArray[np.bool_]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


class Selection:
    """Chooses tokens and finishes hypotheses."""

    def __init__(self, eos_id: int) -> None:
        """Stores the token that ends a translation."""
        self._eos_id = eos_id

    def advance(self, rows: Rows, scores: Scores, attention: NDArray[np.float32] | None = None) -> Selected:
        """Stores the next token of every row, and appends finished hypotheses to their sequences.

        NaN in the scores ends a sequence with a hypothesis of score NaN.

        Args:
            rows: R rows.
            scores: scores of the next tokens of the computed rows; constraints change them.
            attention: attention of each row, float32 [R, S]; None if no row keeps it.
        """
        columns = rows.columns
        computed = rows.computed
        forced_ids = self._constrain(columns.first(computed), scores) if columns.kinds.constrained else None
        step = Step(computed, scores, attention, forced_ids)
        if columns.kinds.beam_sizes == (1,):
            return Selected(self._advance_single(rows, np.arange(len(rows)), step), NO_ROWS, NO_ROWS)
        over = np.zeros(len(rows), np.bool_)
        copies = []
        for beam_size in columns.kinds.beam_sizes:
            if beam_size == 1:
                single = np.flatnonzero(columns.beam_sizes == 1)
                over[single] = self._advance_single(rows, single, step)
                continue
            grid = rows.beams(beam_size)
            finished, sources, targets = self._advance_beams(rows, grid, step)
            over[grid[finished]] = True
            copies.append((sources, targets))
        sources, targets = map(np.concatenate, zip(*copies, strict=True))
        return Selected(over, sources, targets)

    def _constrain(self, columns: Columns, scores: Scores) -> NDArray[np.int64]:
        """Applies the constraints to the scores; returns the forced tokens, int64 [C]."""
        constrained = np.flatnonzero(columns.constrained)
        forced_ids = columns.forced_ids[np.arange(len(columns.positions)), columns.positions]
        constrain(columns, scores.fetch(constrained), forced_ids == NO_TOKEN, self._eos_id)
        scores.store(constrained)
        return forced_ids

    def _advance_single(self, rows: Rows, chosen: NDArray[np.int64], step: Step) -> NDArray[np.bool_]:
        """Advances greedy and sampled rows, int64 [M]; returns which of them ended, bool [M]."""
        columns = rows.columns
        token_ids = self._drawn(rows, chosen, step.scores)
        if step.forced_ids is not None:
            forced_ids = step.forced_ids[chosen]
            token_ids = np.where(forced_ids == NO_TOKEN, token_ids, forced_ids)
        scores = step.scores.of(chosen, token_ids)
        ended = (token_ids == self._eos_id) | np.isnan(scores)
        for place in ended.nonzero()[0].tolist():
            row = int(chosen[place])
            rows.finish(row, step.end(row, float(scores[place])))
        # Ended rows get their token as well: that is faster than excluding them, and nothing reads them again.
        rows.record(chosen, token_ids, scores, step.attention_of(chosen))
        over: NDArray[np.bool_] = ended | (columns.positions[chosen] == columns.limits[chosen])
        for row in chosen[over & ~ended].tolist():
            rows.finish(row, None)
        return over

    @staticmethod
    def _drawn(rows: Rows, chosen: NDArray[np.int64], scores: Scores) -> NDArray[np.int64]:
        """Returns the most probable tokens, or sampled ones where the temperature is positive, int64 [M]."""
        columns = rows.columns
        token_ids = scores.greedy(chosen)
        if not columns.kinds.drawn:
            return token_ids
        places = np.flatnonzero(columns.temperatures[chosen] > 0)
        drawing = chosen[places]
        token_ids[places] = draw(
            scores.fetch(drawing)[drawing],
            columns.temperatures[drawing],
            columns.top_ks[drawing],
            columns.top_ps[drawing],
            columns.uniforms[drawing, columns.positions[drawing]],
        )
        return token_ids

    def _advance_beams(
        self, rows: Rows, grid: NDArray[np.int64], step: Step
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """Advances beams of one size; `grid` is the row of each rank of each beam, int64 [B, K].

        Returns:
            which beams ended, bool [B]; the rows to copy, int64 [N]; and the rows to copy them to, int64 [N].
        """
        # Axis 0 is the beam (`place`), B; axis 1 the rank in it, K, or 2K for candidates. G of the B beams go on.
        # grid[going[:, np.newaxis], origins] is the row of each survivor's origin, [G, K]; ravel() lists rows, [G * K].
        columns, beam_size = rows.columns, grid.shape[1]
        log_probabilities, token_ids = self._candidates(grid, len(rows), step)
        scores = columns.scores[grid]
        over = beam.broken(scores, log_probabilities)
        for place in over.nonzero()[0].tolist():
            row = int(grid[place, 0])
            rows.finish(row, step.end(row, np.nan))
        candidates = beam.expand(scores, log_probabilities, token_ids)
        ended = beam.ended(candidates, self._eos_id)
        ended[over] = False
        for place, rank in np.argwhere(ended).tolist():
            row = int(grid[place, candidates.origins[place, rank]])
            sequence = rows.finish(row, step.end(row, float(candidates.token_scores[place, rank])))
            over[place] |= len(sequence.hypotheses) >= enough_hypotheses(sequence.options.patience, beam_size)
        going = (~over).nonzero()[0]
        following = beam.survivors(candidates, self._eos_id).at(going)
        attention = step.attention_of(grid[going[:, np.newaxis], following.origins].ravel())
        placement = beam.place(grid[going], following.origins)
        columns.branch(placement.sources, placement.targets)
        placed = placement.rows.ravel()
        columns.ranks[placement.rows] = np.arange(beam_size)
        rows.record(placed, following.token_ids.ravel(), following.token_scores.ravel(), attention)
        columns.scores[placed] = following.scores.ravel()
        cut = columns.positions[placement.rows[:, 0]] == columns.limits[placement.rows[:, 0]]
        for row in placement.rows[cut].ravel().tolist():
            if columns.scores[row] != -np.inf:
                rows.finish(row, None)
        over[going[cut]] = True
        return over, placement.sources, placement.targets

    @staticmethod
    def _candidates(grid: NDArray[np.int64], running: int, step: Step) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the N best tokens of the beams in `grid`, of R running rows.

        Returns:
            log-probabilities, float32 [B, K, N], and ids, int64 [B, K, N].
        """
        # In memory order, whatever the ranks: a step with only these beams needs no copy.
        rows = np.arange(step.computed) if grid.size == running else np.sort(grid[grid < step.computed])
        log_probabilities, token_ids = step.scores.best(rows, 2 * grid.shape[1])
        if step.forced_ids is not None:
            forced_ids = step.forced_ids[rows]
            forced = np.flatnonzero(forced_ids != NO_TOKEN)
            token_ids[forced, 0] = forced_ids[forced]
            log_probabilities[forced] = -np.inf
            log_probabilities[forced, 0] = step.scores.of(rows[forced], token_ids[forced, 0])
        # Clipped places belong to hypotheses that do not exist; their values are ignored.
        places = grid if len(rows) == running else np.searchsorted(rows, grid).clip(max=len(rows) - 1)
        return log_probabilities[places], token_ids[places]


def constrain(columns: Columns, logits: NDArray[np.float32], free: NDArray[np.bool_], eos_id: int) -> None:
    """Applies the constraints of R rows to logits, float32 [R, V], in place; only `free` rows, bool [R], change."""
    penalties = np.where(free, columns.repetition_penalties, 1)
    if (penalties != 1).any():
        penalize_repetition(logits, columns.target_ids, columns.positions, penalties)
    sizes = np.where(free, columns.ngram_sizes, 0)
    if sizes.any():
        forbid_repeated_ngrams(logits, columns.target_ids, columns.positions, sizes, eos_id=eos_id)
    suppressed, places = np.nonzero((columns.suppressed_ids != NO_TOKEN) & free[:, np.newaxis])
    if len(suppressed):
        suppress(logits, suppressed, columns.suppressed_ids[suppressed, places])
    early = np.flatnonzero(free & (columns.positions < columns.minimums))
    if len(early):
        postpone_end(logits, early, eos_id)
