"""A table in Markdown whose columns stand below each other, so that it can also be read as it is."""

from collections.abc import Sequence


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Returns a table.

    Args:
        heading: of each column.
        rows: their cells.
        words: columns at the left that hold words; the others hold figures, aligned to the right.
    """
    widths = [max(3, *map(len, column)) for column in zip(heading, *rows, strict=True)]
    left = [place < words for place in range(len(heading))]
    rule = ["-" * width if at_left else f"{'-' * (width - 1)}:" for width, at_left in zip(widths, left, strict=True)]
    return "\n".join(_line(cells, widths, left) for cells in (heading, rule, *rows))


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    aligned = [
        cell.ljust(width) if at_left else cell.rjust(width)
        for cell, width, at_left in zip(cells, widths, left, strict=True)
    ]
    return f"| {' | '.join(aligned)} |"
