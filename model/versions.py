"""Versions of installed libraries."""

import importlib.metadata
from collections.abc import Iterable
from contextlib import suppress


def installed_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Returns the version of each installed library by its name; other libraries are skipped."""
    installed = {}
    for library in libraries:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[library] = importlib.metadata.version(library)
    return installed
