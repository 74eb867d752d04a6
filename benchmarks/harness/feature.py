"""What the benchmarks of single features share: options and output. They translate with the library."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate


def options_of(document: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the first line of a document as description, the bundle to serve, and the data."""
    parser = argparse.ArgumentParser(description=str(document).partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--data", default="multi30k:en-de")
    parser.add_argument("--multi30k-folder", type=Path)
    return parser


def fields_of(direction: tuple[str, str]) -> dict[str, Any]:
    """Returns the languages of a translation, as options of the library."""
    source, target = direction
    return {"source_language": source, "target_language": target}


def show(outcomes: Sequence[Mapping[str, Any]], formats: Mapping[str, str]) -> None:
    """Prints a table with a row per outcome, and a line of JSON; `formats` has those of some columns."""
    rows = [{name: formats.get(name, "{}").format(value) for name, value in outcome.items()} for outcome in outcomes]
    print(tabulate(rows, headers="keys", disable_numparse=True))
    print(json.dumps(list(outcomes)))
