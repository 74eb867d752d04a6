"""Names of models and what they refer to.

| name | model |
| --- | --- |
| path that exists | bundle, folder of bundles, checkpoint or Argos package on this machine |
| `included` | model that ships with Dragoman |
| `firefox:en-de` | released model of Firefox Translations |
| `firefox:en-de@tiny`, `firefox:en-de@nightly` | one of this architecture, or with this status |
| `argos:en-es` | package of the index of Argos Translate |
| `ct2:OWNER/NAME` or `ct2:FOLDER` | CTranslate2 model |
| `OWNER/NAME` or `OWNER/NAME@REVISION` | repository of the Hugging Face hub |
| `en-de` | the model that `catalog` chooses for these languages |
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dragoman.model.errors import UserError
from dragoman.serve.bundle.bundle import MANIFEST_FILE
from dragoman.serve.bundle.files import one_line
from dragoman.serve.settings import SHIPPED_BUNDLE

ARGOS, CTRANSLATE2, FIREFOX = "argos:", "ct2:", "firefox:"
INCLUDED = "included"
# A code, with a script where a language has several: de, zh-hant.
_LANGUAGE = r"([a-z]{2,3}(?:[-_][a-z]{4})?)"
_CHOSEN_PAIR = re.compile(rf"{_LANGUAGE}[-_]{_LANGUAGE}(?:@([a-z]+(?:-[a-z]+)*))?")
_REPOSITORY = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@([\w./-]+))?", re.ASCII)
EXPECTED = (
    "expected a folder, OWNER/NAME of the Hugging Face hub, firefox:SOURCE-TARGET, argos:SOURCE-TARGET,"
    " ct2:OWNER/NAME or a pair of `dragoman models --remote`"
)


class HubError(UserError):
    """A model cannot be found, downloaded or converted; the message is one line with the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@dataclass(frozen=True, slots=True)
class Languages:
    """Languages of a model that its files do not state; None: those of the files."""

    source: str | None = None
    target: str | None = None

    @classmethod
    def named_in(cls, name: str) -> "Languages":
        """Returns the last two neighboring parts of a name that may be languages, as in `opus-mt-en-de-ct2`."""
        parts = [part if re.fullmatch(r"[a-z]{2,3}", part) else None for part in re.split(r"[-_.]", name)]
        found = [cls(*pair) for pair in pairwise(parts) if None not in pair]
        return found[-1] if found else cls()


NO_LANGUAGES = Languages()


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A folder or file on this machine."""

    path: Path

    @property
    def is_bundle(self) -> bool:
        """True for a bundle."""
        return (self.path / MANIFEST_FILE).is_file()

    @property
    def is_served_directly(self) -> bool:
        """True for a bundle and for a folder of bundles."""
        return self.is_bundle or any(self.path.glob(f"*/{MANIFEST_FILE}"))


@dataclass(frozen=True, slots=True)
class RepositoryModel:
    """A repository of the Hugging Face hub; `revision` is a branch, tag or commit, None for the default branch."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repository if self.revision is None else f"{self.repository}@{self.revision}"


@dataclass(frozen=True)
class _Pair:
    """Two languages; `choice` is an architecture or a status of Firefox's models, None for any that is released."""

    source: str
    target: str
    choice: str | None = None
    prefix = ""

    def __str__(self) -> str:
        return f"{self.prefix}{self.source}-{self.target}" + (f"@{self.choice}" if self.choice else "")


class LanguagePair(_Pair):
    """Two languages; the catalog chooses the model."""


class ArgosModel(_Pair):
    """A package of the index of Argos Translate."""

    prefix = ARGOS


class FirefoxModel(_Pair):
    """A model of Firefox Translations."""

    prefix = FIREFOX


HubModel = RepositoryModel | ArgosModel | FirefoxModel
Reference = LocalModel | LanguagePair | HubModel


def parse_name(name: str) -> Reference:
    """Returns the meaning of a name, first an existing path; raises HubError if it has none of the forms."""
    if _exists(name):
        return LocalModel(Path(name))
    if name == INCLUDED:
        return LocalModel(SHIPPED_BUNDLE)
    if pair := _parse_pair(name):
        return pair
    rest = name.removeprefix(CTRANSLATE2)
    if rest != name and _exists(rest):
        return LocalModel(Path(rest))
    if repository := _REPOSITORY.fullmatch(rest):
        return RepositoryModel(repository[1], repository[2])
    raise HubError(f"{name}: no such file or folder: {EXPECTED}")


def _parse_pair(name: str) -> LanguagePair | HubModel | None:
    """Returns the meaning of two languages, perhaps with a hub; None for other names, HubError for a wrong pair."""
    kind = next(kind for kind in (FirefoxModel, ArgosModel, LanguagePair) if name.startswith(kind.prefix))
    match = _CHOSEN_PAIR.fullmatch(name.removeprefix(kind.prefix).lower())
    if match and (not match[3] or kind is FirefoxModel):
        return kind(with_script(match[1]), with_script(match[2]), match[3])
    if kind is LanguagePair:
        return None
    choice = ", with @ARCHITECTURE or @STATUS to choose one of several" if kind is FirefoxModel else ""
    raise HubError(f"{name}: expected {kind.prefix}SOURCE-TARGET, as in {kind.prefix}en-es{choice}")


def with_script(language: str) -> str:
    """Returns a code as manifests have it: zh-Hant for zh_hant."""
    code, _, script = language.replace("_", "-").partition("-")
    return f"{code}-{script.title()}" if script else code


def _exists(name: str) -> bool:
    try:
        return name != "" and Path(name).exists()
    except OSError:  # too long
        return False
