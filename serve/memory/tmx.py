"""Pairs as TMX 1.4b, with inline codes as tags.

Reads no DTD: entities that it may declare are those of HTML, or stay as they are. All bounds are checked while a file
is read. The content of an inline code is its text; a code without content becomes a tag of its name.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from dragoman.serve.memory.entry import Entry, Pair
from dragoman.serve.memory.pattern import slots

MakeError = Callable[[str], Exception]
MAX_TEXT_CHARACTERS = 100_000
MAX_LEVELS = 64
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header creationtool="Dragoman" '
    'creationtoolversion="1" segtype="sentence" o-tmf="Dragoman" adminlang="en" '
    'srclang={} datatype="plaintext"/><body>\n'
)


def read_tmx(parts: Iterable[bytes], pair: Pair, make_error: MakeError) -> Iterator[Entry]:
    """Yields the units of a file that have both texts; raises what `make_error` makes of a problem with the file."""
    return read_units(parts, _TmxReader(pair, make_error))


def read_units(parts: Iterable[bytes], reader: "UnitReader") -> Iterator[Entry]:
    """Yields the units of a file that have both texts, with a new reader."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.start_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.read
    parser.SkippedEntityHandler = lambda name, _: reader.read(html.unescape(f"&{name};"))
    try:
        for part in parts:
            parser.Parse(part)
            yield from reader.take()
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # also an encoding that Python does not have
        raise reader.make_error(f"malformed XML: {error}") from error
    yield from reader.take()


def write_tmx(entries: Iterable[Entry], pair: Pair) -> Iterator[str]:
    """Yields the parts of a file."""
    codes = [quoteattr(code) for code in pair]
    yield _HEAD.format(codes[0])
    for entry in entries:
        texts = zip(codes, map(write_content, entry[:2]), strict=True)
        yield f"<tu>{''.join(f'<tuv xml:lang={code}><seg>{text}</seg></tuv>' for code, text in texts)}</tu>\n"
    yield "</body></tmx>\n"


def write_content(text: str, identifier: str = "x") -> str:
    """Returns a text as content of an element, with its tags as inline codes; `identifier`: the attribute of each."""
    clean = "".join(item for item in text if (item >= " " or item in "\t\n\r") and item not in "\ufffe\uffff")
    written = (
        f'<ph {identifier}="{number}">{escape(part.text)}</ph>'
        if part.slot and part.text[0] == "<"
        else escape(part.text)
        for number, part in enumerate(slots(clean), 1)
    )
    return "".join(written)


class UnitReader:
    """Collects the pairs of a file, with `root` as outermost element and `levels` as names of the open ones."""

    root = ""

    def __init__(self, pair: Pair, make_error: MakeError) -> None:
        self.languages, self.make_error = [language_code(code) for code in pair], make_error
        self.levels = list[str]()
        self._entries = list[Entry]()
        self._unit = ["", ""]
        # Which text of the unit is read, the level of its element, and its parts; None: none.
        self._side: int | None = None
        self._level = 0
        self._text = list[str]()
        self._characters = 0
        # Where the codes that are open begin in the parts.
        self._codes = list[int]()

    def take(self) -> list[Entry]:
        """Returns the pairs of the units that have ended since the last call."""
        taken, self._entries = self._entries, []
        return taken

    def start_doctype(self, _name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
        """Refuses what a file may not declare."""
        if has_subset:
            raise self.make_error("XML with an internal DTD subset, expected none")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Reads a start tag."""
        name = name.rpartition(":")[2]
        if not self.levels and name != self.root:
            raise self.make_error(f"expected the element {self.root}, got {name[:64]!r}")
        self.levels.append(name)
        if len(self.levels) > MAX_LEVELS:
            raise self.make_error(f"more than {MAX_LEVELS} levels of elements")
        if self._side is None:
            self.start_outside(name, attributes)
        else:
            self._codes.append(len(self._text))
            self.start_inside(name, attributes)

    def end(self, _name: str) -> None:
        """Reads an end tag."""
        name = self.levels.pop()
        if self._side is None:
            self.end_outside(name)
        elif len(self.levels) < self._level:
            self._unit[self._side], self._side = "".join(self._text), None
        else:
            self.end_inside(name, is_empty=len(self._text) == self._codes.pop())

    def read(self, text: str) -> None:
        """Adds characters to the text that is read, if there is one."""
        if self._side is not None:
            self._characters += len(text)
            if self._characters > MAX_TEXT_CHARACTERS:
                raise self.make_error(f"a text of more than {MAX_TEXT_CHARACTERS} characters")
            self._text.append(text)

    def start_unit(self) -> None:
        """Begins a unit."""
        self._unit = ["", ""]

    def end_unit(self) -> None:
        """Ends a unit, which counts if it has both texts."""
        if all(map(str.strip, self._unit)):
            self._entries.append(Entry(*self._unit))

    def start_text(self, side: int) -> None:
        """Begins the text of an element; `side`: 0 for the source, 1 for its translation."""
        self._side, self._level, self._text, self._characters = side, len(self.levels), [], 0

    def start_outside(self, name: str, attributes: Mapping[str, str]) -> None:
        """Reads a start tag outside of texts."""

    def end_outside(self, name: str) -> None:
        """Reads an end tag outside of texts."""

    def start_inside(self, name: str, attributes: Mapping[str, str]) -> None:
        """Reads a start tag inside of a text."""

    def end_inside(self, name: str, *, is_empty: bool) -> None:
        """Reads an end tag inside of a text; `is_empty`: the element has no text."""


class _TmxReader(UnitReader):
    root = "tmx"
    _language = ""

    def start_outside(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "tu":
            self.start_unit()
        elif name == "tuv":
            self._language = language_code(attributes.get("xml:lang", attributes.get("lang", "")))
        elif name == "seg":
            sides = (side for side, code in enumerate(self.languages) if covers(code, self._language))
            if (side := next(sides, None)) is not None:
                self.start_text(side)

    def end_outside(self, name: str) -> None:
        if name == "tu":
            self.end_unit()

    def end_inside(self, name: str, *, is_empty: bool) -> None:
        if name in _CODES and is_empty:
            self.read(f"<{name}/>")


def language_code(language: str) -> str:
    """Returns the form of a code in which codes are compared."""
    return language.lower().replace("_", "-")


def covers(wanted: str, language: str) -> bool:
    """Returns whether a language is a wanted one; a region counts if the wanted language names one."""
    return f"{language}-".startswith(f"{wanted}-")
