"""What every format of documents is: segments to translate, and a way to write their translations."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, Protocol

from dragoman.serve.languages.names import language_name
from dragoman.serve.protect.placeholders.patterns import Finder

_TAG = re.compile(r"<[^<>]*>")
_ADDRESSES = Finder(("url", "email"))
_ADDRESS_SIGNS = ("://", "www.", "@")
# What requests state if the language is to be detected.
_UNKNOWN = ("", "auto")
SegmentFormat = Literal["text", "xml"]
CsvFormulas = Literal["escape", "keep"]


class DocumentError(Exception):
    """A document that cannot be read or written; the message is for the client."""


# The size of all parts of a packed document together.
UNPACKED_BYTES = 64 << 20
UNLIMITED = sys.maxsize


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """What to translate in a document.

    Attributes:
        source, target: ISO 639-1 codes of the languages; empty if unknown.
        retranslate: whether to translate texts again that have a translation in the document.
        unpacked_bytes: most bytes of all parts of a packed document.
        ignore_tags: names of elements of HTML whose content stays, besides those of code.
        columns: of tables to translate, by their names or numbers from 1; empty: all.
        csv_formulas: whether a translation in CSV that begins as a formula gets an apostrophe.
    """

    source: str = ""
    target: str = ""
    retranslate: bool = False
    unpacked_bytes: int = UNPACKED_BYTES
    max_texts: int = UNLIMITED
    ignore_tags: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    csv_formulas: CsvFormulas = "escape"

    def needs_target(self, locale: str) -> bool:
        """Returns whether a locale, such as `en-US`, is that of a translation, but has another language."""
        return self.target not in _UNKNOWN and _language(locale) != _language(self.target)

    def is_of_source(self, locale: str) -> bool:
        """Returns whether a locale has the source language; if that is unknown, whether it has any language."""
        if self.source in _UNKNOWN:
            return language_name(_language(locale)) != _language(locale)
        return _language(locale) == _language(self.source)


def _language(locale: str) -> str:
    return re.split("[-_]", locale.lower())[0]


@dataclass(frozen=True, slots=True)
class Segment:
    """A text that is translated on its own; in `xml`, the tags are those of `dragoman.serve.documents.inline`."""

    text: str
    format: SegmentFormat = "text"

    @property
    def visible(self) -> str:
        """The text without tags."""
        return self.text if self.format == "text" else _TAG.sub("", self.text)


class Document(Protocol):
    """A parsed document."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, in the order of the document."""

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the translated document; raises DocumentError if its encoding lacks a character."""


Parse = Callable[[bytes, DocumentRequest], Document]


def translated_suffix(name: str) -> str:
    """Returns the end of the name of a translation: that of its file, but `.md` for `.pdf`."""
    suffix = PurePath(name).suffix
    return ".md" if suffix.lower() == ".pdf" else suffix


def is_translatable(text: str) -> bool:
    """Returns whether a text has a letter outside of addresses."""
    bare = without(_ADDRESSES, text) if any(map(text.__contains__, _ADDRESS_SIGNS)) else text
    return any(map(str.isalpha, bare))


def without(finder: Finder, text: str) -> str:
    """Returns a text without what a finder finds."""
    position, parts = 0, list[str]()
    for found in finder.find(text):
        parts.append(text[position : found.start])
        position = found.end
    return "".join((*parts, text[position:]))
