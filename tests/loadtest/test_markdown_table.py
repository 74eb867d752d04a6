"""Tables in Markdown that can also be read as they are."""

from loadtest.report_files import markdown_table


def test_words_stand_at_the_left_and_figures_at_the_right() -> None:
    assert markdown_table(["name", "n"], [["a", "1"], ["longer", "1,000"]]).splitlines() == [
        "| name   |     n |",
        "| ------ | ----: |",
        "| a      |     1 |",
        "| longer | 1,000 |",
    ]


def test_several_columns_may_hold_words() -> None:
    assert markdown_table(["a", "b", "c"], [["x", "yyyy", "2"]], words=2).splitlines()[1:] == [
        "| --- | ---- | --: |",
        "| x   | yyyy |   2 |",
    ]
