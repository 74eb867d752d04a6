"""Rows stay dense and keep their values, whichever rows leave."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.engine.rows import End, Kinds, Rows
from serve.scheduler.sequence import DecodingSequence
from serve.search.hypothesis import FinishReason
from serve.search.options import SearchOptions
from tests.support.fakes import BOS_ID, EOS_ID, FIRST_ID

LIMIT = 4
SOURCE_TOKENS = 6


def make_sequence(source_tokens: int = 1, deadline_seconds: float | None = None, **options: object) -> DecodingSequence:
    chosen = SearchOptions(max_target_tokens=LIMIT, **options)  # type: ignore[arg-type]
    return DecodingSequence((9,) * source_tokens, chosen, deadline_seconds, lambda _: None)


def make_rows(sequences: list[DecodingSequence], *, aligned: bool = False) -> Rows:
    """Returns the rows of some sequences, of which row r got token FIRST_ID + r in its only step so far."""
    count = sum(sequence.options.rows for sequence in sequences)
    rows = Rows(
        count,
        max_source_tokens=SOURCE_TOKENS,
        max_target_tokens=LIMIT,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        aligned=aligned,
    )
    rows.append(sequences)
    numbers = np.arange(count)
    attention = np.full((count, SOURCE_TOKENS), 0.25, np.float32) if aligned else None
    rows.record(numbers, numbers + FIRST_ID, -np.arange(count, dtype=np.float32), attention)
    return rows


masks = st.lists(st.booleans(), min_size=1, max_size=12).map(lambda flags: np.array(flags, np.bool_))


def singles(count: int) -> list[DecodingSequence]:
    """Returns sequences; sequence r has r + 1 source tokens and the deadline r."""
    return [make_sequence(row + 1, float(row)) for row in range(count)]


@given(leaving=masks)
def test_a_gap_is_closed_by_exactly_one_move_from_behind(leaving: NDArray[np.bool_]) -> None:
    rows = make_rows(singles(len(leaving)))
    kept = len(leaving) - int(leaving.sum())
    moves = rows.moves(leaving)
    assert [move.target for move in moves] == [row for row in range(kept) if leaving[row]]
    assert [move.source for move in moves] == [row for row in range(kept, len(leaving)) if not leaving[row]]
    assert all((move.positions, move.source_length) == (1, move.source + 1) for move in moves)


@given(leaving=masks)
def test_every_row_that_stays_keeps_its_columns(leaving: NDArray[np.bool_]) -> None:
    sequences = singles(len(leaving))
    rows = make_rows(sequences)
    stay = [row for row in range(len(leaving)) if not leaving[row]]
    assert rows.remove(leaving) == [sequence for sequence, leaves in zip(sequences, leaving, strict=True) if leaves]
    assert len(rows) == len(stay)
    columns = rows.columns
    assert sorted(columns.token_ids - FIRST_ID) == stay
    assert (columns.source_lengths == columns.token_ids - FIRST_ID + 1).all()
    assert (columns.target_ids[:, 0] == columns.token_ids).all()
    assert (columns.positions == 1).all()
    assert [rows.sequence(row) for row in range(len(rows))] == [sequences[row] for row in columns.token_ids - FIRST_ID]
    assert rows.abandoned(5.0).tolist() == [token_id - FIRST_ID <= 5 for token_id in columns.token_ids]


@given(
    beam_sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    data=st.data(),
)
def test_beams_are_listed_by_rank_after_moves(beam_sizes: list[int], data: st.DataObject) -> None:
    sequences = [make_sequence(beam_size=beam_size) for beam_size in beam_sizes]
    rows = make_rows(sequences)
    gone = data.draw(st.sets(st.sampled_from(range(len(sequences)))))
    rows.remove(np.array([rows.columns.numbers[row] in gone for row in range(len(rows))]))
    for beam_size in (2, 3):
        staying = [
            sequence
            for number, sequence in enumerate(sequences)
            if number not in gone and sequence.options.beam_size == beam_size
        ]
        grid = rows.beams(beam_size)
        assert [[rows.sequence(row) for row in beam] for beam in grid.tolist()] == [
            [sequence] * beam_size for sequence in staying
        ]
        assert (rows.columns.ranks[grid] == np.arange(beam_size)).all()


def test_a_sequence_leaves_with_its_last_row() -> None:
    samples = make_sequence(temperature=1.0, hypotheses=3)
    other = make_sequence()
    rows = make_rows([samples, other])
    assert rows.remove(np.array([True, False, True, False])) == []
    assert len(rows) == 2
    last = np.array([rows.sequence(row) is samples for row in range(2)])
    assert rows.remove(last) == [samples]
    assert samples.decoded_tokens == 3
    assert rows.sequence(0) is other


def test_all_rows_of_a_cancelled_sequence_are_abandoned() -> None:
    beam, other = make_sequence(beam_size=3), make_sequence()
    rows = make_rows([other, beam])
    assert not rows.abandoned(0.0).any()
    beam.cancelled = True
    assert rows.abandoned(0.0).tolist() == [False, True, True, True]


def test_the_end_token_is_in_the_score_but_not_in_the_target() -> None:
    rows = make_rows([make_sequence(), make_sequence(length_penalty=2.0)])
    hypothesis = rows.hypothesis(1, End(-2.0, None))
    assert (hypothesis.target_ids, hypothesis.finish_reason) == ((FIRST_ID + 1,), FinishReason.EOS)
    assert (hypothesis.score, hypothesis.token_scores) == (-3.0, (-1.0, -2.0))
    assert hypothesis.normalized_score == -3.0 / 4


def test_a_cut_hypothesis_has_no_end_token() -> None:
    hypothesis = make_rows([make_sequence(), make_sequence()]).hypothesis(1, None)
    assert (hypothesis.target_ids, hypothesis.finish_reason) == ((FIRST_ID + 1,), FinishReason.LENGTH)
    assert (hypothesis.score, hypothesis.token_scores) == (-1.0, (-1.0,))


@pytest.mark.parametrize(("end", "looked"), [(None, 0.25), (End(0.0, np.full(SOURCE_TOKENS, 0.5, np.float32)), 0.75)])
def test_coverage_counts_every_step_and_no_padding(end: End | None, looked: float) -> None:
    rows = make_rows([make_sequence(2, coverage_penalty=0.5)], aligned=True)
    assert rows.hypothesis(0, end).normalized_score == pytest.approx(0.5 * 2 * np.log(looked))


def test_alignments_are_kept_if_requested() -> None:
    rows = make_rows([make_sequence(3, alignments=True), make_sequence(3)], aligned=True)
    alignments = rows.hypothesis(0, None).alignments
    assert alignments is not None
    assert alignments.tolist() == [[0.25, 0.25, 0.25]]
    assert rows.hypothesis(1, None).alignments is None


KINDS: dict[str, dict[str, Any]] = {
    "constrained": {"min_target_tokens": 2},
    "drawn": {"temperature": 1.0, "seed": 1},
    "attended": {"alignments": True},
}


@pytest.mark.parametrize("kind", KINDS)
@given(others=st.integers(0, 3))
def test_kinds_follow_the_rows(kind: str, others: int) -> None:
    plain = Kinds(beam_sizes=(1,), drawn=False, constrained=False, attended=False, streamed=False)
    rows = Rows(others + 1, max_source_tokens=2, max_target_tokens=LIMIT, bos_id=BOS_ID, eos_id=EOS_ID, aligned=True)
    without = plain if others else plain._replace(beam_sizes=())
    if others:
        rows.append([make_sequence() for _ in range(others)])
    assert rows.columns.kinds == without
    rows.append([make_sequence(**KINDS[kind])])
    assert rows.columns.kinds._asdict() == plain._asdict() | {kind: True}
    rows.remove(np.arange(others + 1) == others)
    assert rows.columns.kinds == without


def test_rows_of_a_beam_are_ranked_together() -> None:
    rows = make_rows([make_sequence(), make_sequence(beam_size=2, hypotheses=1)])
    assert list(rows.columns.kinds.beam_sizes) == [1, 2]
    rows.remove(np.array([False, True, True]))
    assert list(rows.columns.kinds.beam_sizes) == [1]
