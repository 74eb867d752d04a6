"""The report of a load as files: load.json holds all results, load.html shows tables and plots.

A page is rendered from documents alone, so that it can be rendered again and can compare several loads. It holds the
library of the plots and loads no other file. A click on a run in the legend hides it in all plots.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.subplots import make_subplots
from pydantic import ValidationError

from dragoman.loadtest.results import DOCUMENTS, LoadDocument, RunResult
from dragoman.loadtest.scenario import describe_errors
from dragoman.loadtest.tables import curve_table, kind_table, run_table, summary, warnings
from dragoman.serve.host.files import FileError


class _Plot(NamedTuple):
    """A plot with lines of every run or capacity search.

    Attributes:
        x, y: titles of the axes; values in seconds are shown in ms, percentiles on a scale of nines.
        points: where a `RunResult` or `LoadDocument` holds the points.
        x_of: attribute of the points.
        lines: attributes of the points, by the dash of their line.
        log: whether the y axis is logarithmic.
    """

    title: str
    x: str
    y: str
    points: str
    x_of: str
    lines: dict[str, str]
    log: bool = False

    @property
    def heading(self) -> str:
        """The title, and what the dashes mean if there are several."""
        meanings = [f"{dash}: {name.replace('_', ' ')}" for dash, name in self.lines.items()]
        return f"<b>{self.title}</b>" + (f"<br>{', '.join(meanings)}" if len(meanings) > 1 else "")

    def points_of(self, owner: object) -> list[Any]:
        """Returns the points of a run or a document; none if it has no such points."""
        found: Any = owner
        for step in self.points.split("."):
            found = getattr(found, step, None)
        return [point for point in found or () if getattr(point, "percent", 0) != LAST_PERCENT]


HTML = "html"
LAST_PERCENT = 100.0
_PERCENTS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
_TICKS_MS = [digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5)]
_PLOT_PIXELS = 380
_FLOW = {"solid": "ok_per_second", "dot": "sent_per_second", "dash": "failed_per_second"}
_ROWS = {"solid": "rows_per_step", "dot": "rows", "dash": "waiting"}
_GOODPUT = {"solid": "goodput_per_second", "dot": "requests_per_second"}
_PLOTS = (
    _Plot("latency over time", "s", "ms", "points", "seconds", {"solid": "p99", "dot": "p50"}, log=True),
    _Plot("requests over time", "s", "requests/s", "points", "seconds", _FLOW),
    _Plot("latency by percentile", "percentile", "ms", "curve", "percent", {"solid": "seconds"}, log=True),
    _Plot("batch occupancy of the server", "s", "rows, sequences", "server.points", "seconds", _ROWS),
    _Plot("goodput over offered load", "offered/s", "requests/s", "capacity.curve", "offered_per_second", _GOODPUT),
)
# How values are placed on an axis. 90, 99 and 99.9 % are equally far apart on a log axis.
_SCALES: dict[str, Callable[[float], float]] = {
    "ms": lambda seconds: 1000 * seconds,
    "percentile": lambda percent: 100 / (100 - percent),
}
_PERCENT_AXIS = {
    "type": "log",
    "tickvals": [*map(_SCALES["percentile"], _PERCENTS)],
    "ticktext": [f"{item:g}" for item in _PERCENTS],
}


def _values(points: Sequence[Any], attribute: str, axis: str) -> list[float | None]:
    scale = _SCALES.get(axis, float)
    values = (getattr(point, attribute) for point in points)
    return [None if value is None else scale(value) for value in values]


def _draw(owners: Mapping[str, RunResult | LoadDocument]) -> go.Figure:
    """Draws all plots that have points, two in a row, and the phases of the server's work."""
    plots = [plot for plot in _PLOTS if any(map(plot.points_of, owners.values()))]
    served = {name: item.server for name, item in owners.items() if isinstance(item, RunResult) and item.server}
    headings = [*(plot.heading for plot in plots), *["<b>phases of the server's work, mean</b>"][: len(served)]]
    rows = (len(headings) + 1) // 2
    figure = make_subplots(rows, 2, subplot_titles=headings, vertical_spacing=0.3 / max(rows, 1))
    colors = dict(zip(owners, cycle(qualitative.D3), strict=False))
    for number, plot in enumerate(plots):
        cell = {"row": number // 2 + 1, "col": number % 2 + 1}
        for name, owner in owners.items():
            points = plot.points_of(owner)
            for dash, attribute in plot.lines.items() if points else ():
                x, y = _values(points, plot.x_of, plot.x), _values(points, attribute, plot.y)
                line = {"color": colors[name], "dash": dash}
                figure.add_trace(go.Scatter(x=x, y=y, name=name, legendgroup=name, line=line), **cell)
        figure.update_xaxes(title=plot.x, **(_PERCENT_AXIS if plot.x == "percentile" else {}), **cell)
        figure.update_yaxes(title=plot.y, **({"type": "log", "tickvals": _TICKS_MS} if plot.log else {}), **cell)
    cell = {"row": rows, "col": 2 - len(headings) % 2}
    for name, server in served.items():
        means = {phase: 1000 * step.seconds / step.times for phase, step in server.phases.items()}
        bar = go.Bar(x=list(means), y=list(means.values()), legendgroup=name, name=name, marker={"color": colors[name]})
        figure.add_trace(bar, **cell)
        figure.update_yaxes(title="ms", **cell)
    for name in owners:
        # One entry per run in the legend, which shows or hides all its lines.
        for trace in list(figure.select_traces(selector={"legendgroup": name}))[1:]:
            trace.showlegend = False
    legend = {"orientation": "h", "y": 1 + 80 / (_PLOT_PIXELS * rows), "yanchor": "bottom"}
    return figure.update_layout(template="plotly_white", height=_PLOT_PIXELS * rows + 100, legend=legend)


_STYLE = """
body { color: #1b1f24; font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #d0d7de; padding: .2rem .75rem; }
.wide { overflow-x: auto; }
.warning { color: #b42318; }
p { overflow-wrap: anywhere; }
"""


def render(documents: Mapping[str, LoadDocument]) -> str:
    """Renders documents, by name, as one HTML page."""
    title = f"dragoman load: {', '.join(documents)}"
    body = "\n".join(_body(documents))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>Load</h1>\n{body}\n</body></html>\n"
    )


def _body(documents: Mapping[str, LoadDocument]) -> Iterator[str]:
    runs = {
        f"{name}, {run.name}" if len(documents) > 1 else run.name: run
        for name, document in documents.items()
        for run in document.runs
    }
    for name, document in documents.items():
        words = f"{document.sentences['sentences']:.0f} sentences, median {document.sentences['words_p50']:.0f} words"
        yield f"<p><b>{escape(name)}</b>: {escape(words)}. {escape(str(document.provenance))}</p>"
    if runs:
        yield f'<div class="wide">{run_table(runs, HTML)}{kind_table(runs, HTML)}</div>'
    yield from (f'<p class="warning">{escape(warning)}</p>' for warning in warnings(runs))
    for name, document in documents.items():
        if document.capacity is not None:
            yield f"<h2>{escape(name)}: {escape(summary(document.capacity))}</h2>"
            yield f'<div class="wide">{curve_table(document.capacity.curve, HTML)}</div>'
    yield _draw({**runs, **documents}).to_html(full_html=False, include_plotlyjs=True)


def write_report(folder: Path, document: LoadDocument) -> None:
    """Writes load.json and load.html into a folder, created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "load.json").write_bytes(DOCUMENTS.dump_json(document, indent=1))
    (folder / "load.html").write_text(render({folder.resolve().name: document}), encoding="utf-8")


def read_report(path: Path) -> LoadDocument:
    """Reads load.json; raises FileError if it is not a report."""
    try:
        return DOCUMENTS.validate_json(path.read_bytes())
    except ValidationError as error:
        raise FileError(f"{path}: expected a `dragoman load` report: {describe_errors(error)}") from error
