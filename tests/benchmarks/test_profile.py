"""`dragoman bench profile` measures the phases of a native engine under a steady load."""

from typing import Any

import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.report import Table
from benchmarks.profile import ProfilePlan
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.native.library import library_path

needs_library = pytest.mark.skipif(library_path() is None, reason="needs the native library")


def plan_of(bundle: Bundle, **fields: Any) -> ProfilePlan:
    quick = {"steps": 12, "source_tokens": 7, "target_tokens": 5, "rounds": 2, "rows": [2, 6], "beam_size": 2}
    return ProfilePlan.model_validate({"bundle": bundle.folder, **quick, **fields})


@pytest.fixture(scope="module", name="tables")
def _tables(int8_bundle: Bundle) -> dict[str, Table]:
    """The tables of beams of two in steps of two and six rows."""
    return {table.name: table for table in plan_of(int8_bundle).measure().tables}


@needs_library
@pytest.mark.parametrize("column", ["2 rows", "6 rows"])
def test_the_phases_of_a_native_engine_make_up_its_time(column: str, tables: dict[str, Table]) -> None:
    table = tables["phase, % of the time"]
    shares = [table.figures(row, column) for row in table.rows]
    assert table.rows == ["encode", "step", "search", "rest"]
    assert all(share > 0 for rounds in shares for share in rounds)
    assert [sum(rounds) for rounds in zip(*shares, strict=True)] == pytest.approx([100, 100])


@needs_library
def test_a_steady_load_starts_a_sequence_whenever_one_ends(tables: dict[str, Table]) -> None:
    for column, rows in (("2 rows", 2), ("6 rows", 6)):
        assert all(rows / 2 < figure <= rows for figure in tables["load"].figures("rows per step", column))


def test_rows_that_are_no_multiple_of_the_beam_size_are_rejected(int8_bundle: Bundle) -> None:
    with pytest.raises(BenchmarkError, match=r"^rows: .* got 5"):
        plan_of(int8_bundle, rows=[4, 5]).measure()
