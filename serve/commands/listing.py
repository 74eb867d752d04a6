"""What commands that show something share: a table or lines for people, or with --json the same for programs."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, CliToggleFlag, SettingsConfigDict

from dragoman.model.text_table import format_table

# How a table shows the values of fields, by their names.
Columns = Mapping[str, Callable[[Any], str]]
# A unit at the end of a field's name: its column shows the value with another one.
_UNITS = ("_bytes", "_seconds")


class ListingCommand(BaseSettings):
    """A command that lists or shows something."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", cli_shortcuts={"as-json": "json"})

    as_json: CliToggleFlag[bool] = Field(False, description="Print JSON for programs, not text for people")

    def print_rows(self, rows: Iterable[Mapping[str, Any]], columns: Columns, empty: str) -> None:
        """Prints rows.

        Args:
            rows: values of JSON by the names of their fields, which docs/commands.md lists.
            columns: the fields that the table shows; None is shown as "-".
            empty: line in place of a table without rows.
        """
        found = list(rows)
        if self.as_json:
            self.print_json(found)
            return
        cells = [["-" if row[name] is None else show(row[name]) for name, show in columns.items()] for row in found]
        print(format_table([list(map(_header, columns)), *cells], len(columns)) if found else empty)

    def print_fields(self, fields: Mapping[str, Any]) -> None:
        """Prints fields of one object by their names, a line each."""
        if self.as_json:
            self.print_json(fields)
            return
        for name, value in fields.items():
            print(f"{name}: {', '.join(value) if isinstance(value, list | tuple) else value}")

    def print_json(self, value: object) -> None:
        """Prints a value as JSON."""
        print(json.dumps(value, ensure_ascii=False, indent=1))


def count(number: int) -> str:
    """Returns a count as a table shows it."""
    return f"{number:,}"


def _header(field: str) -> str:
    unit = next(filter(field.endswith, _UNITS), "")
    return field.removesuffix(unit).replace("_", " ")
