"""Pairs as TMX 1.4b, with inline codes as tags.

Reads no internal DTD subset and expands no entity. All bounds are checked while a file is read. The content of an
inline code is its text; a code without content becomes a tag of its name.
"""

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
    reader = _UnitReader(pair, make_error)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.start_doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.read
    try:
        for part in parts:
            parser.Parse(part)
            yield from reader.take()
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # also an encoding that Python does not have
        raise make_error(f"malformed XML: {error}") from error
    yield from reader.take()


def write_tmx(entries: Iterable[Entry], pair: Pair) -> Iterator[str]:
    """Yields the parts of a file."""
    codes = [quoteattr(code) for code in pair]
    yield _HEAD.format(codes[0])
    for entry in entries:
        texts = zip(codes, map(_content, entry[:2]), strict=True)
        yield f"<tu>{''.join(f'<tuv xml:lang={code}><seg>{text}</seg></tuv>' for code, text in texts)}</tu>\n"
    yield "</body></tmx>\n"


def _content(text: str) -> str:
    """Returns a text as content of an element, with its tags as inline codes."""
    clean = "".join(item for item in text if item >= " " or item in "\t\n\r")
    written = (
        f'<ph x="{number}">{escape(part.text)}</ph>' if part.slot and part.text[0] == "<" else escape(part.text)
        for number, part in enumerate(slots(clean), 1)
    )
    return "".join(written)


class _UnitReader:
    """Collects the pairs of a file."""

    def __init__(self, pair: Pair, make_error: MakeError) -> None:
        self._languages, self._make_error = [_code(code) for code in pair], make_error
        self._entries = list[Entry]()
        self._levels = list[str]()
        self._unit = ["", ""]
        # Which text of the unit is read, and its parts; None: none.
        self._side: int | None = None
        self._text = list[str]()
        self._characters = self._code_start = 0
        self._language = ""

    def take(self) -> list[Entry]:
        """Returns the pairs of the units that have ended since the last call."""
        taken, self._entries = self._entries, []
        return taken

    def start_doctype(self, _name: str, _system: str | None, _public: str | None, has_subset: bool) -> None:
        if has_subset:
            raise self._make_error("XML with an internal DTD subset, expected none")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if not self._levels and name != "tmx":
            raise self._make_error(f"expected the element tmx, got {name[:64]!r}")
        self._levels.append(name)
        if len(self._levels) > MAX_LEVELS:
            raise self._make_error(f"more than {MAX_LEVELS} levels of elements")
        if self._side is not None:
            self._code_start = len(self._text)
        elif name == "tu":
            self._unit = ["", ""]
        elif name == "tuv":
            self._language = _code(attributes.get("xml:lang", attributes.get("lang", "")))
        elif name == "seg":
            # A region counts if the pair names one.
            sides = (side for side, code in enumerate(self._languages) if f"{self._language}-".startswith(f"{code}-"))
            self._side, self._text, self._characters = next(sides, None), [], 0

    def read(self, text: str) -> None:
        if self._side is not None:
            self._characters += len(text)
            if self._characters > MAX_TEXT_CHARACTERS:
                raise self._make_error(f"a text of more than {MAX_TEXT_CHARACTERS} characters")
            self._text.append(text)

    def end(self, name: str) -> None:
        self._levels.pop()
        if name == "tu":
            if all(map(str.strip, self._unit)):
                self._entries.append(Entry(*self._unit))
        elif name in _CODES and len(self._text) == self._code_start:
            self.read(f"<{name}/>")
        elif name == "seg" and self._side is not None:
            self._unit[self._side], self._side = "".join(self._text), None


def _code(language: str) -> str:
    return language.lower().replace("_", "-")
