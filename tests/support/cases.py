"""Tables of examples in YAML, next to the tests that use them."""

from pathlib import Path
from typing import Any

import yaml


def cases(test_file: str) -> dict[str, Any]:
    """Returns the tables of `test_NAME.py` or `NAME.py` by their titles, from `NAME.yaml` in its folder."""
    path = Path(test_file)
    file = path.with_name(f"{path.stem.removeprefix('test_')}.yaml")
    # The loader in C refuses halves of surrogate pairs.
    tables: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return tables
