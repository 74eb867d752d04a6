"""Which versions of libraries a figure or a bundle was made with."""

import importlib.metadata
from collections.abc import Iterable
from contextlib import suppress


def installed_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Returns the version of each library that is installed, by its name; the others are left out."""
    installed = {}
    for library in libraries:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[library] = importlib.metadata.version(library)
    return installed
