"""Formats rows of text and numbers as a table for a terminal."""

from collections.abc import Sequence


def format_table(rows: Sequence[Sequence[str]], names: int) -> str:
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
