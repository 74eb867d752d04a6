"""SVG drawings by matplotlib, the same bytes for the same data.

Figures are made without pyplot, which would keep them all; text stays text, so that it can be searched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure


@contextmanager
def drawing(path: Path, inches: tuple[float, float]) -> Iterator[Figure]:
    """Yields an empty figure of a width and a height; writes it when the block ends."""
    style = mpl.rc_context(
        {
            # In place of a random number in the names of clip paths.
            "svg.hashsalt": "dragoman",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.titlesize": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
        }
    )
    with style:
        figure = Figure(figsize=inches, layout="constrained", facecolor="white")
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
