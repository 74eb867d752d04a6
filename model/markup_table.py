"""Formats rows of text and numbers as a table in Markdown or HTML."""

from collections.abc import Sequence

from tabulate import tabulate


def markup_table(heading: Sequence[str], rows: Sequence[Sequence[str]], form: str = "pipe", names: int = 1) -> str:
    """Returns a table in Markdown (`pipe`) or escaped `html`; the first `names` columns are left-aligned."""
    aligned = ["left" if index < names else "right" for index in range(len(heading))]
    table: str = tabulate(rows, heading, form, disable_numparse=True, colalign=aligned)
    return table
