"""Whether the libraries that a benchmark imports later are installed, and what brings those that are not.

Imports none of them. Called by the commands that measure.
"""

from collections.abc import Mapping
from importlib.util import find_spec


def missing_library(extras: Mapping[str, str]) -> str | None:
    """Returns what to tell about the first library that is not installed; None if there is none.

    Args:
        extras: the extra of the project that brings a library, by the library's name.
    """
    for library, extra in extras.items():
        if find_spec(library) is None:
            return f"{library} is not installed: pip install '.[{extra}]'"
    return None
