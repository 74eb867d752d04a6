"""Rows stay dense and keep their values, whichever rows leave."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.engine.rows import Rows
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions
from tests.support.fakes import BOS_ID, EOS_ID, FIRST_ID

LIMIT = 4
SOURCE_TOKENS = 6


def make_sequence(source_tokens: int = 1, deadline_seconds: float | None = None, **options: object) -> DecodingSequence:
    chosen = SearchOptions(max_target_tokens=LIMIT, **options)  # type: ignore[arg-type]
    return DecodingSequence((9,) * source_tokens, chosen, deadline_seconds, lambda _: None)


def empty_rows(count: int) -> Rows:
    limits = {"max_source_tokens": SOURCE_TOKENS, "max_target_tokens": LIMIT}
    return Rows(count, **limits, bos_id=BOS_ID, eos_id=EOS_ID, aligned=True)


def make_rows(sequences: list[DecodingSequence]) -> Rows:
    """Returns the rows of some sequences, of which row r got token FIRST_ID + r in its only step so far."""
    count = sum(sequence.options.rows for sequence in sequences)
    rows = empty_rows(count)
    rows.append(sequences)
    numbers = np.arange(count)
    rows.record(numbers, numbers + FIRST_ID, -np.arange(count, dtype=np.float32), None)
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
