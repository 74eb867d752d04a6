"""Columns hold one value per row, and rows move as a whole."""

from dataclasses import fields

import numpy as np

from serve.engine.rows import Columns

ROWS = 6


def make_columns() -> Columns:
    """Returns columns whose numbers are all different, so that each identifies its row."""
    columns = Columns.allocate(ROWS, target_tokens=5, source_tokens=4, suppressed=3)
    for field in fields(columns):
        column = getattr(columns, field.name)
        column[...] = (np.arange(ROWS) % 2 if column.dtype == np.bool_ else np.arange(ROWS)).reshape(
            -1, *[1] * (column.ndim - 1)
        )
    return columns


def test_a_view_of_the_first_rows_copies_nothing() -> None:
    columns = make_columns()
    view = columns.first(4)
    view.token_ids[3] = 77
    view.target_ids[2, 1] = 78
    assert (len(view.numbers), columns.token_ids[3], columns.target_ids[2, 1]) == (4, 77, 78)


def test_a_branched_row_has_the_tokens_of_its_source_and_keeps_its_other_columns() -> None:
    columns = make_columns()
    columns.positions[:] = [3, 3, 3, 3, 2, 1]
    columns.branch(np.array([4, 4, 5]), np.array([0, 2, 1]))
    for column in (columns.target_ids, columns.token_scores, columns.attention):
        assert (column[:, :2].reshape(ROWS, -1) == np.array([[4], [5], [4], [3], [4], [5]])).all()
        assert (column[:, 2:].reshape(ROWS, -1) == np.arange(ROWS)[:, np.newaxis]).all()
    assert columns.source_lengths.tolist() == columns.numbers.tolist() == list(range(ROWS))


def test_a_copied_row_equals_its_source() -> None:
    columns = make_columns()
    columns.copy(np.array([4, 4, 5]), np.array([0, 2, 1]))
    for field in fields(columns):
        column = getattr(columns, field.name)
        expected = np.array([4, 5, 4, 3, 4, 5])
        expected = expected % 2 if column.dtype == np.bool_ else expected
        assert (column.reshape(ROWS, -1) == expected[:, np.newaxis]).all(), field.name
