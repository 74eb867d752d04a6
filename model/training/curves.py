"""Plots the TensorBoard logs of a run: loss, learning rate, validation measures and speed."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dragoman.model.training.logs import read_measures

# Title and measures of each plot.
PLOTS = (
    ("loss (nats per token)", ("loss", "validation_loss", "alignment_loss")),
    ("translation of the validation set", ("validation_bleu", "validation_chrf")),
    ("learning rate", ("lr-Adam",)),
    ("tokens per second", ("tokens_per_second",)),
)


def plot_curves(logs: Path, out: Path) -> None:
    """Draws every measure in the logs.

    Args:
        logs: folder of TensorBoard event files.
        out: the picture to write; its suffix selects the format.
    """
    measures = read_measures(logs)
    plots = [(title, [name for name in names if name in measures]) for title, names in PLOTS]
    plots = [(title, names) for title, names in plots if names]
    figure = Figure(figsize=(8, 2.6 * len(plots)), layout="constrained")
    for (title, names), axes in zip(plots, figure.subplots(len(plots), squeeze=False)[:, 0], strict=True):
        for name in names:
            _draw(axes, name, measures[name])
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.supxlabel("steps")
    figure.savefig(out)


def _draw(axes: Axes, name: str, points: dict[int, float]) -> None:
    axes.plot(list(points), list(points.values()), label=name.replace("_", " "))
