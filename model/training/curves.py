"""Reads and plots the TensorBoard logs of a run: loss, learning rate, validation measures and speed."""

from pathlib import Path

from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# Title and measures of each plot.
PLOTS = (
    ("loss (nats per token)", ("loss", "validation_loss", "alignment_loss")),
    ("translation of the validation set", ("validation_bleu", "validation_chrf")),
    ("learning rate", ("lr-Adam",)),
    ("tokens per second", ("tokens_per_second",)),
)


def read_measures(logs: Path) -> dict[str, dict[int, float]]:
    """Returns the logged values by measure and step, in order; of a step that is logged again, the later one."""
    events = EventAccumulator(str(logs), size_guidance={"scalars": 0})
    events.Reload()
    return {
        name: dict(sorted({event.step: event.value for event in events.Scalars(name)}.items()))
        for name in events.Tags()["scalars"]
    }


def plot_curves(logs: Path, out: Path) -> None:
    """Draws every measure in a folder of TensorBoard event files; the suffix of `out` selects the format."""
    measures = read_measures(logs)
    plots = [(title, [name for name in names if name in measures]) for title, names in PLOTS]
    plots = [(title, names) for title, names in plots if names]
    figure = Figure(figsize=(8, 2.6 * len(plots)), layout="constrained")
    for (title, names), axes in zip(plots, figure.subplots(len(plots), squeeze=False)[:, 0], strict=True):
        for name in names:
            axes.plot(list(measures[name]), list(measures[name].values()), label=name.replace("_", " "))
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.supxlabel("steps")
    figure.savefig(out)
