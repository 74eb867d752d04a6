"""Tables of examples in YAML, next to the tests that use them."""

from pathlib import Path
from typing import Any

from dragoman.tables import read_table


def cases(test_file: str) -> dict[str, Any]:
    """Returns the tables of `test_NAME.py` or `NAME.py` by their titles, from `NAME.yaml` in its folder."""
    tables: dict[str, Any] = read_table(test_file, f"{Path(test_file).stem.removeprefix('test_')}.yaml")
    return tables
