"""Tables of texts and names in YAML, next to the modules that use them."""

from pathlib import Path
from typing import Any

import yaml

try:  # The loader in C takes a tenth of the time.
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]


def read_table(module: str, name: str) -> Any:
    """Returns the content of a file next to a module, whose `__file__` is given."""
    return yaml.load(Path(module).with_name(name).read_text("utf-8"), Loader=SafeLoader)
