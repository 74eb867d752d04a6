"""What the benchmarks of single features share: languages and output. They translate with the library."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate


def fields_of(direction: tuple[str, str]) -> dict[str, Any]:
    """Returns the languages of a translation, as options of the library."""
    source, target = direction
    return {"source_language": source, "target_language": target}


def show(outcomes: Sequence[Mapping[str, Any]], formats: Mapping[str, str]) -> None:
    """Prints a table with a row per outcome, and a line of JSON; `formats` has those of some columns."""
    rows = [{name: formats.get(name, "{}").format(value) for name, value in outcome.items()} for outcome in outcomes]
    print(tabulate(rows, headers="keys", disable_numparse=True))
    print(json.dumps(list(outcomes)))
