"""Pairs as XLIFF 1.2, 2.0 and 2.1, with inline codes as tags.

A unit counts if it has both texts and the state of its translation is not one of those without. What alternatives have
does not count.
"""

from collections.abc import Iterable, Iterator, Mapping
from xml.sax.saxutils import quoteattr

from dragoman.serve.memory.entry import Entry, Pair
from dragoman.serve.memory.tmx import MakeError, UnitReader, covers, language_code, read_units, write_content

_UNITS = frozenset({"trans-unit", "segment"})
_SIDES = {"source": 0, "target": 1}
# The content of pairs is text, and marks are no part of it; the content of other elements is code.
_PAIRS, _MARKS = frozenset({"g", "pc"}), frozenset({"mrk"})
_LANGUAGES = {"xliff": ("srcLang", "trgLang"), "file": ("source-language", "target-language")}
_UNTRANSLATED = ("initial", "new", "needs-translation")
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    '<file original="memory" datatype="plaintext" source-language={} target-language={}><body>\n'
)


def read_xliff(parts: Iterable[bytes], pair: Pair, make_error: MakeError) -> Iterator[Entry]:
    """Yields the units of a file that count; raises what `make_error` makes of a problem with the file."""
    return read_units(parts, _XliffReader(pair, make_error))


def write_xliff(entries: Iterable[Entry], pair: Pair) -> Iterator[str]:
    """Yields the parts of a file."""
    yield _HEAD.format(*map(quoteattr, pair))
    for number, (source, target, _) in enumerate(entries, 1):
        texts = {"source": source, "target": target}
        written = (f"<{name}>{write_content(text, 'id')}</{name}>" for name, text in texts.items())
        yield f'<trans-unit id="{number}">{"".join(written)}</trans-unit>\n'
    yield "</body></file></xliff>\n"


class _XliffReader(UnitReader):
    root = "xliff"
    _is_wanted = _is_translated = True

    def start_outside(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in _LANGUAGES:
            stated = zip(_LANGUAGES[name], self.languages, strict=True)
            found = [covers(code, language_code(attributes[text])) for text, code in stated if text in attributes]
            # Files of XLIFF 2 have the languages of the root.
            self._is_wanted = all(found) if found else self._is_wanted
        elif name in _UNITS:
            self.start_unit()
            self._is_translated = attributes.get("state") not in _UNTRANSLATED
        elif name in _SIDES and self._is_wanted and "alt-trans" not in self.levels:
            self._is_translated &= attributes.get("state") not in _UNTRANSLATED
            self.start_text(_SIDES[name])

    def end_outside(self, name: str) -> None:
        if name in _UNITS and self._is_translated:
            self.end_unit()

    def start_inside(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in _PAIRS:
            self.read(f"<{name} id={quoteattr(attributes.get('id', ''))}>")

    def end_inside(self, name: str, *, is_empty: bool) -> None:
        if name in _PAIRS:
            self.read(f"</{name}>")
        elif is_empty and name not in _MARKS:
            self.read(f"<{name}/>")
