"""The list of sources: where parallel text comes from, under which license, and how its files are read."""

import re
from functools import cached_property
from pathlib import Path
from typing import Literal

import yaml

from dragoman.model.config import Section

Registry = Literal["debian", "npm", "pypi"]
ReaderName = Literal[
    "mo", "po", "ftl", "properties", "json", "pak", "list", "localize", "diagnostics", "help", "man", "dictionary"
]
SOURCES = Path(__file__).parent / "sources.yaml"
Role = Literal["messages", "help", "words"]


class Package(Section):
    """The version of a package that was read when the list was written, and the SHA-256 of its archive."""

    version: str
    sha256: str


class Files(Section):
    """Which files of the packages have texts, and their form.

    `files` is a regular expression for a part of a path; {language} stands for the name of the language there, and the
    groups name the document. Without `reader`, the suffix of a file names its form.
    """

    files: str
    reader: ReaderName | None = None


class Source(Files):
    """Texts that are read in the same way, from packages of one registry.

    `languages` are the names of languages in paths. Without `en` and `english`, keys contain the English text.
    `mnemonics` are the marks before the letter of a keyboard shortcut.
    """

    license: str
    role: Role
    registry: Registry
    packages: dict[str, Package]
    languages: dict[str, str]
    english: Files | None = None
    mnemonics: str = ""

    @cached_property
    def expressions(self) -> dict[str, tuple[re.Pattern[str], ReaderName | None]]:
        """The expression for paths and the reader of each language."""
        own = {
            language: (re.compile(self.files.replace("{language}", name)), self.reader)
            for language, name in self.languages.items()
        }
        english = {"en": (re.compile(self.english.files), self.english.reader)} if self.english else {}
        return own | english

    def find(self, archive: str, path: str) -> list[tuple[str, str, str]]:
        """Returns language, document and reader of the texts of a file: none, or of one language or more."""
        return [
            (language, "/".join(match.groups("")), reader or path.rpartition(".")[2])
            for language, (expression, reader) in self.expressions.items()
            if (match := expression.search(f"{archive}/{path}"))
        ]


def load_sources() -> dict[str, Source]:
    """Reads the list of sources."""
    return {name: Source.model_validate(value) for name, value in yaml.safe_load(SOURCES.read_text()).items()}
