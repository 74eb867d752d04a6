"""Entries as TBX (ISO 30042), versions 2 and 3: an entry per concept and term of the source language.

Reads no DTD and expands no entity. Deprecated terms are left out. All bounds are checked while a file is read.
"""

from collections.abc import Iterable, Iterator, Mapping
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from dragoman.serve.protect.terms.entry import MAX_ENTRIES, MAX_TARGETS, Entry, EntryError

_CONCEPTS = frozenset({"termEntry", "conceptEntry"})
_LANGUAGES = frozenset({"langSet", "langSec"})
_TERM_GROUPS = frozenset({"tig", "ntig", "termSec"})
_DEPRECATED = frozenset({"deprecatedTerm-admn-sts", "supersededTerm-admn-sts"})
# Elements inside of each other; TBX has less than ten.
_MAX_LEVELS = 64
# The length of a term with its white space, or of a note.
_MAX_TEXT_CHARACTERS = 10_000
# The entries of a part are complete before the next part is read.
_PART_CHARACTERS = 1 << 16


def read_tbx(text: str, source_language: str, target_language: str) -> Iterator[Entry]:
    """Yields the entries of concepts with both languages; raises EntryError if the file is malformed or too large."""
    reader = _EntryReader(source_language, target_language)
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.start_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.read
    try:
        for start in range(0, len(text), _PART_CHARACTERS):
            parser.Parse(text[start : start + _PART_CHARACTERS].encode())
            yield from reader.take()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise EntryError(reader.concepts, f"malformed TBX: {expat.errors.messages[error.code]}") from error


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


class _EntryReader:
    """Collects the entries of a file; `concepts`: number of those that have begun."""

    def __init__(self, source_language: str, target_language: str) -> None:
        self.concepts = 0
        self._entries = list[Entry]()
        self._left = MAX_ENTRIES
        # The terms of the concept by language, in their order and without repetition.
        self._terms: dict[str, dict[str, None]] = {source_language: {}, target_language: {}}
        self._source, self._target = source_language, target_language
        self._levels = 0
        self._language = ""
        self._term: str | None = None
        self._note: str | None = None
        self._deprecated = False
        self._texts: list[str] | None = None
        self._characters = 0

    def take(self) -> list[Entry]:
        """Returns the entries of the concepts that have ended since the last call."""
        taken, self._entries = self._entries, []
        return taken

    def start_doctype(self, _name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise EntryError(0, "TBX with an internal DTD subset, expected none")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._levels += 1
        if self._levels > _MAX_LEVELS:
            raise EntryError(self.concepts, f"TBX of more than {_MAX_LEVELS} levels")
        if name in _CONCEPTS:
            self._end_concept()
            self.concepts += 1
        elif name in _LANGUAGES:
            language = attributes.get("xml:lang", "")
            self._language = language.lower().replace("_", "-").partition("-")[0]
        elif name in _TERM_GROUPS:
            self._term, self._deprecated = None, False
        elif name in ("term", "termNote"):
            self._texts, self._characters = [], 0
            self._note = attributes.get("type")

    def read(self, text: str) -> None:
        if self._texts is None:
            return
        self._characters += len(text)
        if self._characters > _MAX_TEXT_CHARACTERS:
            raise EntryError(self.concepts, f"a term of more than {_MAX_TEXT_CHARACTERS} characters")
        self._texts.append(text)

    def end(self, name: str) -> None:
        self._levels -= 1
        if name in ("term", "termNote"):
            text, self._texts = " ".join("".join(self._texts or ()).split()), None
            if name == "term":
                self._term = text
            elif self._note == "administrativeStatus":
                self._deprecated = text in _DEPRECATED
        elif name in _TERM_GROUPS:
            self._end_term()
        elif name in _CONCEPTS:
            self._end_concept()

    def _end_term(self) -> None:
        terms = self._terms.get(self._language)
        if terms is None or not self._term or self._deprecated or not self.concepts:
            return
        terms[self._term] = None
        if self._language == self._source and len(terms) > self._left:
            raise EntryError(MAX_ENTRIES, f"expected at most {MAX_ENTRIES} entries")

    def _end_concept(self) -> None:
        sources, targets = (tuple(self._terms[language]) for language in (self._source, self._target))
        for terms in self._terms.values():
            terms.clear()
        if not sources or not targets:
            return
        if len(targets) > MAX_TARGETS:
            raise EntryError(MAX_ENTRIES - self._left, f"{len(targets)} targets, expected at most {MAX_TARGETS}")
        self._left -= len(sources)
        if self._left < 0:
            raise EntryError(MAX_ENTRIES, f"expected at most {MAX_ENTRIES} entries")
        # The entries share their targets.
        self._entries += [Entry(source, targets) for source in sources]
