"""Prints the requirements of Dragoman with the given extras, one per line, for `pip install --requirement`.

pip cannot install the dependencies of a project without the project. With this list, the Dockerfile installs them in a
separate layer, which a change of the code keeps.
"""

import sys
import tomllib
from pathlib import Path


def list_requirements(pyproject: str, extras: list[str]) -> list[str]:
    """Returns the requirements of pyproject.toml and its extras, each once; raises KeyError for an unknown extra."""
    project = tomllib.loads(pyproject)["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return list(dict.fromkeys(requirement for group in groups for requirement in group))


if __name__ == "__main__":
    print("\n".join(list_requirements(Path("pyproject.toml").read_text(encoding="utf-8"), sys.argv[1:])))
