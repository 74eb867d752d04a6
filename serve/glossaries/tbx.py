"""Entries as TBX (ISO 30042), versions 2 and 3: an entry per concept and term of the source language.

Reads no DTD and expands no entity. Deprecated terms are left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from serve.glossaries.entry import Entry, EntryError

_CONCEPTS = frozenset({"termEntry", "conceptEntry"})
_LANGUAGES = frozenset({"langSet", "langSec"})
_TERM_GROUPS = frozenset({"tig", "ntig", "termSec"})
_DEPRECATED = frozenset({"deprecatedTerm-admn-sts", "supersededTerm-admn-sts"})
# Elements inside of each other; TBX has less than ten.
_MOST_LEVELS = 64


def read_tbx(text: str, source_language: str, target_language: str) -> Iterator[Entry]:
    """Yields the entries of a file; a concept without a term in one of the two languages has none.

    Raises:
        EntryError: if the file is malformed or declares entities.
    """
    reader = _Reader()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.start_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.read
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise EntryError(len(reader.concepts), f"malformed TBX: {expat.errors.messages[error.code]}") from error
    for concept in reader.concepts:
        targets = concept.terms(target_language)
        for source in concept.terms(source_language) if targets else ():
            yield Entry.of(source, targets)


def write_tbx(entries: Iterable[Entry], source_language: str, target_language: str) -> str:
    """Returns a file of version 3 with one concept per entry."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<tbx style="dca" type="TBX-Core" xml:lang={quoteattr(source_language)} xmlns="urn:iso:std:iso:30042:ed-2">',
        "<tbxHeader><fileDesc><sourceDesc><p>Dragoman</p></sourceDesc></fileDesc></tbxHeader>",
        "<text><body>",
    ]
    for number, entry in enumerate(entries):
        sections = ((source_language, (entry.source,)), (target_language, entry.targets))
        languages = "".join(
            f"<langSec xml:lang={quoteattr(language)}>"
            + "".join(f"<termSec><term>{escape(term)}</term></termSec>" for term in terms)
            + "</langSec>"
            for language, terms in sections
        )
        lines.append(f'<conceptEntry id="c{number}">{languages}</conceptEntry>')
    return "\n".join((*lines, "</body></text>", "</tbx>", ""))


@dataclass(slots=True)
class _Concept:
    """The terms of one concept by language."""

    languages: dict[str, list[str]] = field(default_factory=dict)

    def terms(self, language: str) -> list[str]:
        """Returns the distinct terms of a language and of its regions."""
        found = [
            term
            for name, terms in self.languages.items()
            if name.lower().replace("_", "-").partition("-")[0] == language
            for term in terms
        ]
        return list(dict.fromkeys(found))


class _Reader:
    """Collects the concepts of a file."""

    def __init__(self) -> None:
        self.concepts = list[_Concept]()
        self._levels = 0
        self._language = ""
        self._term: str | None = None
        self._note: str | None = None
        self._deprecated = False
        self._text = ""

    def start_doctype(self, _name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise EntryError(0, "TBX with an internal DTD subset, expected none")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            raise EntryError(len(self.concepts), f"TBX of more than {_MOST_LEVELS} levels")
        if name in _CONCEPTS:
            self.concepts.append(_Concept())
        elif name in _LANGUAGES:
            self._language = attributes.get("xml:lang", "")
        elif name in _TERM_GROUPS:
            self._term, self._deprecated = None, False
        elif name in ("term", "termNote"):
            self._text = ""
            self._note = attributes.get("type")

    def read(self, text: str) -> None:
        self._text += text

    def end(self, name: str) -> None:
        self._levels -= 1
        if name == "term":
            self._term = " ".join(self._text.split())
        elif name == "termNote" and self._note == "administrativeStatus":
            self._deprecated = self._text.strip() in _DEPRECATED
        elif name in _TERM_GROUPS and self._term and not self._deprecated and self.concepts:
            self.concepts[-1].languages.setdefault(self._language, []).append(self._term)
