"""Prints what Dragoman with the given extras requires, one requirement per line, for `pip install --requirement`.

The Dockerfile calls it to install dependencies in a layer of their own: pip cannot install a project's dependencies
without the project, whose every change would then reinstall them all. It knows nothing but `pyproject.toml`.
"""

import sys
import tomllib
from pathlib import Path


def list_requirements(pyproject: str, extras: list[str]) -> list[str]:
    """Returns the requirements of the base install and of the extras, in order and without repetitions.

    Args:
        pyproject: content of `pyproject.toml`.
        extras: names of optional dependencies.

    Raises:
        KeyError: if there is no such extra.
    """
    project = tomllib.loads(pyproject)["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return list(dict.fromkeys(requirement for group in groups for requirement in group))


if __name__ == "__main__":
    print("\n".join(list_requirements(Path("pyproject.toml").read_text(encoding="utf-8"), sys.argv[1:])))
