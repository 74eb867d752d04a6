"""Formats rows of text and numbers as a table: for a terminal, in Markdown or in HTML."""

from collections.abc import Sequence

from tabulate import tabulate

Rows = Sequence[Sequence[str]]


def format_table(rows: Rows, names: int) -> str:
    """Returns rows of equal length as lines; the first `names` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if index < names else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def markup_table(heading: Sequence[str], rows: Rows, form: str = "pipe", names: int = 1) -> str:
    """Returns a table in Markdown (`pipe`) or escaped `html`; the first `names` columns are left-aligned."""
    aligned = ["left" if index < names else "right" for index in range(len(heading))]
    table: str = tabulate(rows, heading, form, disable_numparse=True, colalign=aligned)
    return table
