"""Rows stay dense and keep their state, whoever leaves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serve.options import SearchOptions
from serve.rows import Rows
from serve.search import GreedyStep
from serve.sequence import Sequence
from tests.fakes import BOS_ID, EOS_ID, FIRST_ID


def make_rows(count: int) -> tuple[Rows, list[Sequence]]:
    """Returns rows of which row r has r + 1 source tokens and was at token FIRST_ID + r in its only step so far."""
    rows = Rows(slots=count, max_target_tokens=4, bos_id=BOS_ID, eos_id=EOS_ID)
    sequences = [
        Sequence((9,) * (row + 1), SearchOptions(max_target_tokens=4), float(row), lambda _: None)
        for row in range(count)
    ]
    rows.append(sequences)
    rows.record(GreedyStep(np.arange(count) + FIRST_ID, -np.arange(count, dtype=np.float32)))
    return rows, sequences


masks = st.lists(st.booleans(), min_size=1, max_size=12).map(lambda flags: np.array(flags, np.bool_))


@given(leaving=masks)
def test_a_gap_is_closed_by_exactly_one_move_from_behind(leaving: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    rows, _ = make_rows(len(leaving))
    kept = len(leaving) - int(leaving.sum())
    moves = rows.moves(leaving)
    assert [move.target for move in moves] == [row for row in range(kept) if leaving[row]]
    assert [move.source for move in moves] == [row for row in range(kept, len(leaving)) if not leaving[row]]
    assert all((move.positions, move.source_length) == (1, move.source + 1) for move in moves)


@given(leaving=masks)
def test_every_row_that_stays_keeps_its_state(leaving: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    rows, sequences = make_rows(len(leaving))
    stay = [row for row in range(len(leaving)) if not leaving[row]]
    assert rows.remove(leaving) == [sequence for sequence, leaves in zip(sequences, leaving, strict=True) if leaves]
    assert len(rows) == len(stay)
    assert sorted(rows.token_ids - FIRST_ID) == stay
    assert (rows.source_lengths == rows.token_ids - FIRST_ID + 1).all()
    assert (rows.positions == 1).all()
    assert rows.abandoned(5.0).tolist() == [token_id - FIRST_ID <= 5 for token_id in rows.token_ids]
    left = rows.remove(np.ones(len(rows), np.bool_))
    assert [(sequence.best.target_ids, sequence.best.score) for sequence in left] == [
        ((FIRST_ID + len(sequence.source_ids) - 1,), 1.0 - len(sequence.source_ids)) for sequence in left
    ]


def test_the_end_token_counts_for_the_score_and_not_for_the_target() -> None:
    rows, (sequence,) = make_rows(1)
    assert rows.record(GreedyStep(np.array([EOS_ID]), np.array([-0.5], np.float32))).tolist() == [True]
    rows.remove(np.array([True]))
    assert (sequence.best.target_ids, sequence.best.score) == ((FIRST_ID,), -0.5)
