"""The running rows of one engine: a dense prefix of preallocated columns, one array place per row.

Row r uses slot r of the model's state. `Columns` handles many rows at once, without Python code per row; `Rows` handles
rows one by one only when they come or go.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.runtime.model import NO_ROWS
from serve.scheduler.sequence import DecodingSequence
from serve.search.hypothesis import FinishReason, Hypothesis, coverage, normalized_score
from serve.search.options import MAX_SUPPRESSED_IDS
from serve.search.sampling import uniforms

# Marks positions without a forced token and unused places of suppressed tokens.
NO_TOKEN = -1


class Kinds(NamedTuple):
    """Which features occur among some rows.

    Attributes:
        beam_sizes: distinct beam sizes, ascending; 1: some rows use greedy search or sampling.
        drawn, constrained, attended, streamed: whether any row is sampled, constrained, keeps attention or is streamed.
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
        numbers: the engine's number of the row's sequence, int64 [R].
        ranks: index of the row's hypothesis in its sequence, int64 [R].
        beam_sizes: rows that beam search ranks together, int64 [R]; 1: greedy search or sampling.
        token_ids: last token, the input of the next step, int64 [R].
        positions: position of that token, which is the number of target tokens so far, int32 [R].
        source_lengths: int32 [R].
        scores: sum of the natural log-probabilities so far, float64 [R]; -inf: the hypothesis does not exist.
        target_ids: tokens so far, int64 [R, T].
        token_scores: their natural log-probabilities, float32 [R, T].
        attention: their attention to the source tokens, float32 [R, T, S]; S is 0 without alignments.
        deadlines_seconds: the client's deadline, float64 [R]; inf: none.
        limits, minimums: most and fewest target tokens, int32 [R].
        temperatures, top_ks, top_ps, uniforms: sampling, float64 [R], int64 [R], float64 [R], float64 [R, T];
            temperature 0: none.
        repetition_penalties, ngram_sizes: float32 [R], int32 [R].
        suppressed_ids: forbidden tokens, int64 [R, W].
        forced_ids: forced token of each position, int64 [R, T].
        constrained: whether minimum, penalties, suppressed or forced tokens apply, bool [R].
        attended: whether attention is kept, bool [R].
        streamed: whether the sequence has a token listener, bool [R].
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
        """Returns columns of zeros for R rows, T target tokens, S source tokens and W suppressed tokens."""
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
        """Features of the rows. Cached: a change of the rows makes new columns."""
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
        """Copies the tokens of rows over those of other rows of their sequences; see `copy`."""
        if len(sources):
            length = self.positions[sources].max()
            for column in (self.target_ids, self.token_scores, self.attention):
                column[targets, :length] = column[sources, :length]

    def copy(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copies rows over others, int64 [N] each; no row is both source and target."""
        if len(sources):
            for column in _all_of(self):
                column[targets] = column[sources]


_all_of: Callable[[Columns], tuple[NDArray[Any], ...]] = attrgetter(*(field.name for field in fields(Columns)))


class Move(NamedTuple):
    """A row that takes the place of one that left, and the valid lengths of its state."""

    source: int
    target: int
    positions: int
    source_length: int


class End(NamedTuple):
    """The end token of a hypothesis.

    Attributes:
        score: its natural log-probability.
        attention: attention of the step that chose it, float32 [S]; None if not kept.
    """

    score: float
    attention: NDArray[np.float32] | None


class Rows:
    """R running rows, 0 <= R <= slots, followed by the prefetched rows.

    Prefetched rows have been encoded but take part in no step. They exist only while every slot is taken. As the last
    rows they fill the places of rows that leave. Each is the only row of its sequence.
    """

    def __init__(
        self,
        slots: int,
        prefetched: int = 0,
        *,
        max_source_tokens: int,
        max_target_tokens: int,
        bos_id: int,
        eos_id: int,
        aligned: bool,
    ) -> None:
        """Allocates columns for `slots` running and `prefetched` further rows.

        Limits are those of the longest row, without the end token; `aligned` models return alignments.
        """
        self._bos_id = bos_id
        self._eos_id = eos_id
        self._slots = slots
        self._storage = Columns.allocate(
            slots + prefetched,
            target_tokens=max_target_tokens,
            source_tokens=max_source_tokens if aligned else 0,
            suppressed=MAX_SUPPRESSED_IDS,
        )
        self._sequences: dict[int, DecodingSequence] = {}
        self._next_number = 0
        self._resize(0)

    def __len__(self) -> int:
        return len(self.columns.numbers)

    @property
    def sequences(self) -> list[DecodingSequence]:
        """Sequences with at least one row."""
        return list(self._sequences.values())

    @property
    def encoded_rows(self) -> int:
        """Number of running and prefetched rows."""
        return len(self._encoded.numbers)

    @property
    def computed(self) -> int:
        """Number of running rows that a step must compute; the rows behind hold no existing hypothesis."""
        columns = self.columns
        if columns.kinds.beam_sizes == (1,):
            return len(self)
        missing = (columns.beam_sizes > 1) & (columns.scores == -np.inf)
        return len(self) - int(missing[::-1].argmin())

    def sequence(self, row: int) -> DecodingSequence:
        """Returns the sequence of a row."""
        return self._sequences[int(self.columns.numbers[row])]

    def beams(self, beam_size: int) -> NDArray[np.int64]:
        """Returns the rows of every sequence with this beam size, ordered by rank, int64 [B, K]."""
        rows: NDArray[np.int64] = (self.columns.beam_sizes == beam_size).nonzero()[0]
        order = np.lexsort((self.columns.ranks[rows], self.columns.numbers[rows]))
        return rows[order].reshape(-1, beam_size)

    def append(self, sequences: list[DecodingSequence]) -> list[NDArray[np.int64]]:
        """Appends the rows of some sequences; returns the rows of each, int64 [rows].

        The first rows of all sequences precede the further ones. In a beam, the further ones do not exist in the first
        step.
        """
        further = self.encoded_rows + len(sequences)
        places = []
        for first, sequence in enumerate(sequences, self.encoded_rows):
            end = further + sequence.options.rows - 1
            places.append(np.array((first, *range(further, end))))
            further = end
        self._resize(further)
        for place, sequence in zip(places, sequences, strict=True):
            self._fill(place, sequence)
        return places

    def record(
        self,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        token_scores: NDArray[np.float32],
        attention: NDArray[np.float32] | None,
    ) -> None:
        """Stores the next token of N rows.

        Args:
            rows: int64 [N].
            token_ids: int64 [N].
            token_scores: their natural log-probabilities, float32 [N].
            attention: attention of the step that chose them, float32 [N, S]; None if no row keeps it.
        """
        columns, positions = self.columns, self.columns.positions[rows]
        columns.target_ids[rows, positions] = token_ids
        columns.token_scores[rows, positions] = token_scores
        if attention is not None:
            columns.attention[rows, positions] = attention
        columns.token_ids[rows] = token_ids
        columns.scores[rows] += token_scores
        columns.positions[rows] = positions + 1

    def notify(self, over: NDArray[np.bool_]) -> None:
        """Sends the newest token of each continuing row to its listener; `over`, bool [R], marks the rows that end."""
        columns = self.columns
        if not columns.kinds.streamed:
            return
        for row in np.flatnonzero(columns.streamed & ~over).tolist():
            if on_token := self.sequence(row).on_token:
                on_token(int(columns.token_ids[row]))

    def finish(self, row: int, end: End | None) -> DecodingSequence:
        """Appends the hypothesis of a row to its sequence and returns the sequence; see `hypothesis`."""
        sequence = self.sequence(row)
        sequence.hypotheses.append(self.hypothesis(row, end))
        return sequence

    def hypothesis(self, row: int, end: End | None) -> Hypothesis:
        """Returns the hypothesis of a row; `end` is its end token, None if it was cut at its limit."""
        columns, options = self.columns, self.sequence(row).options
        length = int(columns.positions[row])
        score, token_scores = float(columns.scores[row]), columns.token_scores[row, :length].tolist()
        if end is not None:
            score += end.score
            token_scores.append(end.score)
        normalized = normalized_score(
            score,
            len(token_scores),
            self._coverage(row, end) if options.coverage_penalty > 0 else 0.0,
            length_penalty=options.length_penalty,
            coverage_penalty=options.coverage_penalty,
        )
        return Hypothesis(
            target_ids=tuple(columns.target_ids[row, :length].tolist()),
            score=score,
            normalized_score=normalized,
            finish_reason=FinishReason.LENGTH if end is None else FinishReason.EOS,
            token_scores=tuple(token_scores),
            alignments=(
                columns.attention[row, :length, : columns.source_lengths[row]].copy() if options.alignments else None
            ),
        )

    def _coverage(self, row: int, end: End | None) -> float:
        """Returns the coverage of one row over all steps that chose one of its tokens."""
        columns = self.columns
        source = slice(columns.source_lengths[row])
        attention = columns.attention[row, : columns.positions[row], source]
        if end is not None and end.attention is not None:
            attention = np.vstack((attention, end.attention[source]))
        return coverage(attention.cumsum(axis=0)[-1])

    def abandoned(self, now_seconds: float) -> NDArray[np.bool_]:
        """Returns the rows of abandoned sequences (see `DecodingSequence.abandonment`), bool [encoded]."""
        leaving: NDArray[np.bool_] = self._encoded.deadlines_seconds <= now_seconds
        # Another thread may set the flag at any time: it is read once for all rows of a sequence.
        cancelled = [number for number, sequence in self._sequences.items() if sequence.cancelled]
        return leaving | np.isin(self._encoded.numbers, cancelled) if cancelled else leaving

    def moves(self, leaving: NDArray[np.bool_]) -> list[Move]:
        """Returns the fewest moves that keep rows dense: the last ones fill the gaps of `leaving`, bool [encoded]."""
        columns = self._encoded
        sources, targets = _gaps(leaving)
        return [
            Move(source, target, int(columns.positions[source]), int(columns.source_lengths[source]))
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True)
        ]

    def remove(self, leaving: NDArray[np.bool_]) -> list[DecodingSequence]:
        """Removes rows, bool [encoded]; returns the sequences that have no row left.

        The model must have made the moves that `moves` returns.
        """
        columns = self._encoded
        left = columns.numbers[leaving].tolist()
        for number, positions in zip(left, columns.positions[leaving].tolist(), strict=True):
            self._sequences[number].decoded_tokens += positions
        staying = set(columns.numbers[~leaving].tolist())
        self._storage.copy(*_gaps(leaving))
        self._resize(self.encoded_rows - len(left))
        return [self._sequences.pop(number) for number in dict.fromkeys(left) if number not in staying]

    @property
    def scored(self) -> NDArray[np.int64]:
        """The computed rows that need all logits, int64 [M]: those that are constrained or sampled."""
        columns = self.columns
        if not (columns.kinds.constrained or columns.kinds.drawn):
            return NO_ROWS
        computed = self.computed
        return np.flatnonzero(columns.constrained[:computed] | (columns.temperatures[:computed] > 0))

    def _resize(self, encoded_rows: int) -> None:
        self._encoded = self._storage.first(encoded_rows)
        self.columns = self._encoded if encoded_rows <= self._slots else self._storage.first(self._slots)

    def _fill(self, new: NDArray[np.int64], sequence: DecodingSequence) -> None:
        columns, options = self._encoded, sequence.options
        columns.numbers[new] = self._next_number
        self._sequences[self._next_number] = sequence
        self._next_number += 1
        columns.ranks[new] = np.arange(options.rows)
        columns.beam_sizes[new] = 1 if options.sampled else options.beam_size
        columns.token_ids[new] = self._bos_id
        columns.positions[new] = 0
        columns.source_lengths[new] = len(sequence.source_ids)
        columns.scores[new] = 0.0
        if not options.sampled:
            columns.scores[new[1:]] = -np.inf  # at first there is one hypothesis, the empty one
        deadline_seconds = sequence.deadline_seconds
        columns.deadlines_seconds[new] = np.inf if deadline_seconds is None else deadline_seconds
        columns.limits[new] = options.max_target_tokens
        columns.minimums[new] = options.min_target_tokens
        columns.repetition_penalties[new] = options.repetition_penalty
        columns.ngram_sizes[new] = options.no_repeat_ngram_tokens
        columns.constrained[new] = options.constrained
        columns.attended[new] = options.alignments or options.coverage_penalty > 0
        columns.streamed[new] = sequence.on_token is not None
        _fill_ids(columns.suppressed_ids, new, options.suppressed_ids)
        end = (self._eos_id,) if options.forced_end else ()
        _fill_ids(columns.forced_ids, new, (*options.target_prefix, *end))
        columns.temperatures[new] = options.temperature
        if options.sampled:
            columns.top_ks[new] = options.top_k
            columns.top_ps[new] = options.top_p
            for hypothesis, row in enumerate(new.tolist()):
                columns.uniforms[row] = uniforms(options.seed, hypothesis, columns.uniforms.shape[1])


def _fill_ids(column: NDArray[np.int64], rows: NDArray[np.int64], ids: tuple[int, ...]) -> None:
    column[rows] = NO_TOKEN
    column[rows, : len(ids)] = ids


def _gaps(leaving: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows to move and the gaps that they fill, int64 [M] each, ascending."""
    kept = len(leaving) - int(leaving.sum())
    return kept + np.flatnonzero(~leaving[kept:]), np.flatnonzero(leaving[:kept])
