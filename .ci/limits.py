"""Fills in the tables of fixed limits in docs/security.md and docs/configuration.md: `make tables`.

The tables stand in `limits.yaml`. `files` yields the texts of both pages.
"""

import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from dragoman.model.provenance import fill
from dragoman.serve import composition
from dragoman.serve.callbacks import hosts, sender
from dragoman.serve.edge import body_coding, reader
from dragoman.serve.grpc import api, call, connections, guard, health, options, pace, reflection, unread, waits
from dragoman.serve.http import limits, parser
from dragoman.serve.memory import corrections, store
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation import large_work

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
SHARES = {0.25: "a quarter", 0.125: "an eighth"}
MODULES = (
    *(
        composition,
        corrections,
        store,
        body_coding,
        reader,
        api,
        call,
        connections,
        guard,
        health,
        options,
        pace,
        reflection,
    ),
    *(unread, waits, limits, parser, large_work, hosts, sender),
)
# What the tables name: the modules by their names, settings, and limits of HTTP connections.
NAMES = {
    **{module.__name__.rpartition(".")[2]: module for module in MODULES},
    "SETTINGS": {name: field.default for name, field in ServeSettings.model_fields.items()},
    "HTTP": limits.HttpLimits(),
}
UNITS: dict[str, Callable[[Any], str]] = {
    "MiB": lambda size_bytes: str(size_bytes >> 20),
    "KiB": lambda size_bytes: str(size_bytes >> 10),
    "hours": lambda seconds: f"{seconds / 3600:g}",
    "share": SHARES.__getitem__,
    "part": lambda parts: SHARES[1 / parts],
}


class Numbers(string.Formatter):
    """Writes numbers in units and in words, too."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Formats one number."""
        return UNITS[format_spec](value) if format_spec in UNITS else format(value, format_spec)


def files() -> Iterator[tuple[Path, str]]:
    """Yields each page and the text that it should have."""
    for page, tables in TABLES.items():
        path = DOCS / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            text = fill(text, name, f"\n{Numbers().vformat(table, (), NAMES)}")
        yield path, text


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
