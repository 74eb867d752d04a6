"""Names of models and what they refer to.

| name | model |
| --- | --- |
| path that exists | bundle, folder of bundles, checkpoint or Argos package on this machine |
| `argos:en-es` | package of the index of Argos Translate |
| `ct2:OWNER/NAME` or `ct2:FOLDER` | CTranslate2 model |
| `OWNER/NAME` or `OWNER/NAME@REVISION` | repository of the Hugging Face hub |
| `en-de` | default of the catalog for these languages |
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dragoman.hub.catalog import find_default
from dragoman.serve.bundle.bundle import MANIFEST_FILE
from dragoman.serve.bundle.files import one_line

ARGOS, CTRANSLATE2 = "argos:", "ct2:"
_PAIR = re.compile(r"([a-z]{2,3})[-_]([a-z]{2,3})")
_REPOSITORY = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@([\w./-]+))?", re.ASCII)
EXPECTED = (
    "expected a folder, OWNER/NAME of the Hugging Face hub, argos:SOURCE-TARGET, ct2:OWNER/NAME"
    " or a pair of `dragoman models --remote`"
)


class HubError(Exception):
    """A model cannot be found, downloaded or converted; the message is one line with what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@contextmanager
def reported(command: str) -> Iterator[None]:
    """Ends a command with one line if the block raises HubError."""
    try:
        yield
    except HubError as error:
        raise SystemExit(f"dragoman {command}: {error}") from error


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A folder or file on this machine."""

    path: Path

    @property
    def is_served_directly(self) -> bool:
        """True for a bundle and for a folder of bundles."""
        return (self.path / MANIFEST_FILE).is_file() or any(self.path.glob(f"*/{MANIFEST_FILE}"))


@dataclass(frozen=True, slots=True)
class RepositoryModel:
    """A repository of the Hugging Face hub; `revision` is a branch, tag or commit, None for the default branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repository if self.revision is None else f"{self.repository}@{self.revision}"


@dataclass(frozen=True, slots=True)
class ArgosModel:
    """A package of the index of Argos Translate."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{ARGOS}{self.source}-{self.target}"


Reference = LocalModel | RepositoryModel | ArgosModel


def parse_name(name: str) -> Reference:
    """Returns what a name refers to; a path that exists precedes every other meaning.

    Raises:
        HubError: if the name has none of the forms, or its pair is not in the catalog.
    """
    if _exists(name):
        return LocalModel(Path(name))
    if name.startswith(ARGOS):
        if pair := _PAIR.fullmatch(name.removeprefix(ARGOS).lower()):
            return ArgosModel(pair[1], pair[2])
        raise HubError(f"{name}: expected argos:SOURCE-TARGET, as in argos:en-es")
    if pair := _PAIR.fullmatch(name.lower()):
        default = find_default(pair[1], pair[2])
        if default is None:
            raise HubError(f"{name}: no model in the catalog: {EXPECTED}")
        return parse_name(default.model)
    rest = name.removeprefix(CTRANSLATE2)
    if rest != name and _exists(rest):
        return LocalModel(Path(rest))
    if repository := _REPOSITORY.fullmatch(rest):
        return RepositoryModel(repository[1], repository[2])
    raise HubError(f"{name}: no such file or folder: {EXPECTED}")


def _exists(name: str) -> bool:
    try:
        return name != "" and Path(name).exists()
    except OSError:  # too long
        return False
