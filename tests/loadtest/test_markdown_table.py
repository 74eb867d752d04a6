"""Markdown tables that are aligned in the source text too."""

from loadtest.report_files import markdown_table


def test_text_is_aligned_left_and_numbers_right() -> None:
    assert markdown_table(["name", "n"], [["a", "1"], ["longer", "1,000"]]).splitlines() == [
        "| name   |     n |",
        "| ------ | ----: |",
        "| a      |     1 |",
        "| longer | 1,000 |",
    ]


def test_several_columns_may_hold_text() -> None:
    assert markdown_table(["a", "b", "c"], [["x", "yyyy", "2"]], words=2).splitlines()[1:] == [
        "| --- | ---- | --: |",
        "| x   | yyyy |   2 |",
    ]
