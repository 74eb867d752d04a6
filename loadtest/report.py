"""The report of a load as files: load.json holds all results, load.html shows tables and plots.

A page is rendered from documents alone, so that it can be rendered again and can compare several loads. It loads no
other file. Plots are SVG for light and dark backgrounds: text and axes inherit the color of the page's text.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from loadtest.report_files import ReportFileError
from loadtest.results import CapacityResult, LoadDocument, RunResult, ServerResult, from_json, to_json

COLORS = ("#3b82f6", "#e0672f", "#2fa36b", "#b05fd0", "#c29a1c", "#d64577")
# Placeholder for `currentColor`, which matplotlib cannot write.
_INK = "#010203"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=COLORS),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "grid.color": _INK,
}
_SIZE_INCHES = (7.0, 2.6)
_NINES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


def draw_latency(result: RunResult) -> str:
    """Draws the latency of a run over time as SVG."""
    with _drawing("latency over time", "s", "ms") as (axes, found):
        for name, values in {
            "p50": [each.p50 for each in result.points],
            "p99": [each.p99 for each in result.points],
        }.items():
            seconds = [each.seconds for each, value in zip(result.points, values, strict=True) if value is not None]
            axes.plot(seconds, [1000 * value for value in values if value is not None], label=name, marker=".")
        _scale_milliseconds(axes)
    return found[0]


def draw_throughput(result: RunResult) -> str:
    """Draws sent, answered and failed requests over time."""
    with _drawing("requests over time", "s", "requests/s") as (axes, found):
        seconds = [each.seconds for each in result.points]
        axes.plot(seconds, [each.sent_per_second for each in result.points], label="sent", linestyle="--")
        axes.plot(seconds, [each.ok_per_second for each in result.points], label="answered")
        axes.plot(seconds, [each.failed_per_second for each in result.points], label="failed")
        axes.set_ylim(bottom=0)
    return found[0]


def draw_distribution(results: Mapping[str, RunResult]) -> str:
    """Draws the latency by percentile of runs that have answers."""
    with _drawing("latency by percentile", "percentile", "ms") as (axes, found):
        for name, result in results.items():
            curve = [(percent, seconds) for percent, seconds in result.curve if percent < 100]  # noqa: PLR2004
            axes.plot([_nines(percent) for percent, _ in curve], [1000 * seconds for _, seconds in curve], label=name)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([_nines(percent) for percent in _NINES]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 - 100 / value:.6g}"))
        _scale_milliseconds(axes)
    return found[0]


def draw_capacity(results: Mapping[str, CapacityResult]) -> str:
    """Draws goodput and throughput over the offered rate, for several searches."""
    with _drawing("goodput against offered load", "offered requests/s", "requests/s") as (axes, found):
        most = 0.0
        for (name, result), color in zip(results.items(), cycle(COLORS), strict=False):
            offered = [each.offered_per_second for each in result.curve]
            most = max(most, *offered, 0.0)
            goodput = [each.goodput_per_second for each in result.curve]
            answered = [each.requests_per_second for each in result.curve]
            axes.plot(offered, goodput, label=f"{name}: goodput", marker=".", color=color)
            axes.plot(offered, answered, label=f"{name}: answered", linestyle=":", color=color)
        axes.plot([0, most], [0, most], color=_INK, alpha=0.4, linewidth=0.8)
    return found[0]


def draw_occupancy(server: ServerResult) -> str:
    """Draws running rows, rows per decoder step and waiting sequences over time."""
    with _drawing("batch occupancy", "s", "rows, sequences") as (axes, found):
        seconds = [each.seconds for each in server.points]
        axes.plot(seconds, [each.rows for each in server.points], label="rows running")
        steps = [(each.seconds, each.rows_per_step) for each in server.points if each.rows_per_step is not None]
        axes.plot([each for each, _ in steps], [rows for _, rows in steps], label="rows per decode step, mean")
        axes.plot(seconds, [each.waiting for each in server.points], label="sequences waiting")
        axes.axhline(server.slots, color=_INK, alpha=0.4, linestyle="--", label="slots")
        axes.set_ylim(bottom=0)
    return found[0]


def draw_phases(server: ServerResult) -> str:
    """Draws the mean time of each phase of the server."""
    with _drawing("phases of the server, mean", "ms", "") as (axes, found):
        names = list(reversed(server.phases))
        means = [1000 * server.phases[name].seconds / server.phases[name].times for name in names]
        bars = axes.barh(names, means, color=COLORS[0])
        axes.bar_label(bars, [f"{mean:.3g}" for mean in means], padding=3)
        axes.grid(visible=False)
        axes.margins(x=0.1)
    return found[0]


@contextmanager
def _drawing(title: str, x: str, y: str) -> Iterator[tuple[Axes, Sequence[str]]]:
    """Yields axes, and a list that receives the SVG when the block ends."""
    found: list[str] = []
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        yield axes, found
        axes.set_title(title, loc="left")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    picture = file.getvalue()
    found.append(picture[picture.index("<svg") :].replace(_INK, "currentColor"))


def _scale_milliseconds(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(FuncFormatter(_plain))
    axes.tick_params(axis="y", which="minor", labelsize=6)


def _nines(percent: float) -> float:
    """Returns the x position of a percentile; 90, 99 and 99.9 are equally far apart on a log axis."""
    return 100 / (100 - percent)


def _plain(value: float, _: object) -> str:
    return f"{value:g}"


_TEMPLATE = Path(__file__).with_name("report.html.jinja")


def render(documents: Mapping[str, LoadDocument]) -> str:
    """Renders documents, by name, as one HTML page."""
    runs = {
        _name(documents, document_name, run.name, number): run
        for document_name, document in documents.items()
        for number, run in enumerate(document.runs)
    }
    answered = {name: run for name, run in runs.items() if run.curve}
    capacities = {name: each.capacity for name, each in documents.items() if each.capacity is not None}
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(_TEMPLATE.name).render(
        documents=documents,
        runs=runs,
        capacities=capacities,
        distribution=_svg(draw_distribution(answered)) if answered else "",
        goodput=_svg(draw_capacity(capacities)) if capacities else "",
        pictures={name: list(_pictures(run)) for name, run in runs.items()},
    )


def _name(documents: Mapping[str, LoadDocument], document: str, run: str, number: int) -> str:
    several = len({each.name for each in documents[document].runs}) < len(documents[document].runs)
    return f"{document}, {run}" + (f" {number + 1}" if several else "")


def _pictures(run: RunResult) -> Iterator[Markup]:
    yield _svg(draw_latency(run))
    yield _svg(draw_throughput(run))
    if run.server is not None:
        yield _svg(draw_occupancy(run.server))
        yield _svg(draw_phases(run.server))


def _svg(picture: str) -> Markup:
    return Markup(picture)  # noqa: S704 - our own SVG; matplotlib has escaped the names in it


def write_report(folder: Path, document: LoadDocument) -> None:
    """Writes load.json and load.html into a folder and creates the folder if needed.

    Raises:
        ReportFileError: if a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "load.json").write_bytes(to_json(document))
        (folder / "load.html").write_text(render({folder.name: document}), encoding="utf-8")
    except OSError as error:
        raise ReportFileError(f"out: {error.filename}: {error.strerror}") from error


def read_report(path: Path) -> LoadDocument:
    """Reads load.json.

    Raises:
        ReportFileError: if the file cannot be read or is not a report.
    """
    try:
        return from_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ReportFileError(f"{path}: {error}") from error
