"""One page of what loads found: tables and plots in a single file that needs nothing else, for one report or several.

Made of documents alone, so that a page can be made again, and of several calls. Called by
`loadtest.report_report_files` and `loadtest.report_command`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loadtest.document import LoadDocument
from loadtest.report import (
    draw_capacity,
    draw_distribution,
    draw_latency,
    draw_occupancy,
    draw_phases,
    draw_throughput,
)
from loadtest.results import RunResult

_TEMPLATE = Path(__file__).with_name("report.html.jinja")


def render(documents: Mapping[str, LoadDocument]) -> str:
    """Returns the page of some documents, by their names."""
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
    return Markup(picture)  # noqa: S704 - made by us; what was named by others, matplotlib has escaped
