"""Values of programs: texts, or texts with tags, such as `Read <b>this</b> &amp; that`.

The tags of a value become tags of its segment, and so do placeholders next to them. Branches of an ICU message with
tags are sentences of their own. A translation has character references only for characters that the value has as
references.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from html import unescape
from html.entities import html5
from itertools import islice

from dragoman.serve.documents.document import DocumentError, Segment, is_translatable, without
from dragoman.serve.documents.inline import ElementEnds, Inline, Item, ItemKind
from dragoman.serve.documents.splice import Part, Span
from dragoman.serve.protect.markup.elements import BLOCKS
from dragoman.serve.protect.markup.html import VOID, read_translate
from dragoman.serve.protect.markup.tokens import names
from dragoman.serve.protect.placeholders.icu import find_texts
from dragoman.serve.protect.placeholders.patterns import Finder

_PLACEHOLDERS = Finder(("url", "email", "mustache", "interpolation", "brace", "printf"))
_FIELD = r"(?:y{2,4}|M{1,4}|d{1,2}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,3}|E{1,4}|a)"
# Every repetition is possessive, or ends where the next one begins.
_CODE = re.compile(
    # `mailto:anna`, `#ff8800`, `:symbol`, `@mixin`, `$name`, `/usr/bin`, `./a`
    r"(?:mailto|tel|data|javascript):\S++|[#:@$/][\w(]\S*+|\.{1,2}/\S*+"
    # `user_name`, `MAX_SIZE`, `userName`, `menu.open`, `btn-primary--wide`; not `E_xit`, whose mark is that of a key
    r"|[a-z0-9]++(?:_[a-z0-9]++)++|[A-Z0-9]++(?:_[A-Z0-9]++)++|[a-z]++(?:[A-Z][a-z0-9]*+)++"
    r"|[a-z][\w-]*+(?:\.[a-z][\w-]*+)++|[a-z0-9]++(?:-[a-z0-9]++)*+(?:--|__)[a-z0-9-]++"
    # `image/png`
    r"|(?:application|audio|font|image|multipart|text|video)/[\w.+-]++"
    # Identifiers in hexadecimal digits, `2024-01-01T00:00:00Z`, `v1.2.3-beta`, `10px`
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|\d{4}-\d\d-\d\d\S*+|v?\d++(?:\.\d++)++[\w.+-]*+"
    r"|\d++(?:\.\d++)?+(?:px|em|rem|vh|vw|pt|ms)"
    # `%Y-%m-%d`, `yyyy-MM-dd HH:mm`
    rf"|(?:[^\w%]*+%[-^_0]?[A-Za-z])++[^\w%]*+|{_FIELD}(?:[-/.:, ]++{_FIELD})++",
    re.ASCII,
)


# Each takes about 300 bytes.
MAX_ITEMS = 100_000
# A name may be a number, as in `<0>here</0>`. A comment has no start of another one: that takes linear time.
_TAG = re.compile(
    r"<!--(?:[^-<]|-(?!->)|<(?!!--))*+-->|<(?P<CLOSE>/)?(?P<NAME>[A-Za-z0-9][^\s<>/\"'=]*+)"
    r"(?:[\s/](?:[^<>\"'/]|/(?!>)|\"[^\"]*+\"|'[^']*+')*+)?(?P<EMPTY>/)?>"
)
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# In a message, two apostrophes mean one.
_REFERENCE_OF_MESSAGE = re.compile(rf"{_REFERENCE.pattern}|''")
_QUOTED = re.compile(r"'[{}|#][^']*+'")
_UNTRANSLATED = names("code kbd pre samp script style textarea var")
_PLACEHOLDERS = Finder(("mustache", "interpolation", "brace", "printf"))


def value_part(
    value: str, spans: Sequence[Span], ignore_tags: Collection[str], write: Callable[..., Sequence[str]], *given: object
) -> Part | None:
    """Returns the part of a value that has a letter; None: it is code, or its only letters are in markup.

    Args:
        value: with white space around its text.
        spans: characters of the document that are written anew.
        ignore_tags: names of elements whose content stays, besides those of code.
        write: called with the white space before and after the text, `given`, and the new text.
        given: arguments of `write`.
    """
    text = value.strip()
    if _CODE.fullmatch(text) or not is_translatable(without(_PLACEHOLDERS, text)):  # only programs read it
        return None
    start = value.index(text)
    written = partial(write, value[:start], value[start + len(text) :], *given)
    if not _TAG.search(text) and not any(_character(match[0]) != match[0] for match in _REFERENCE.finditer(text)):
        return Part(Segment(text), spans, written)
    inline = _TagReader(text, ignore_tags).inline
    return Part(inline.segment, spans, partial(_render, text, ignore_tags, written)) if inline.is_translatable else None


def _character(reference: str) -> str:
    """Returns what a reference stands for; of an unknown name, the reference."""
    return unescape(reference) if reference.startswith("&#") else html5.get(reference[1:], reference)


def _render(
    text: str, ignore_tags: Collection[str], write: Callable[[str], Sequence[str]], translation: str
) -> Sequence[str]:
    """Renders the translation of a text with tags, which is read again: its items would take memory until then."""
    reader = _TagReader(text, ignore_tags)
    return write(reader.inline.render(translation, reader.escape))


class _TagReader:
    """Reads a text with tags; `inline`: the text."""

    def __init__(self, text: str, ignore_tags: Collection[str]) -> None:
        """Reads the text; raises DocumentError if it has too many tags."""
        self._text = text
        self._ignore_tags = _UNTRANSLATED.union(map(str.lower, ignore_tags))
        # How the text writes characters, and those that it has without references.
        self._written = dict[str, str]()
        self._bare = set[str]()
        spans = find_texts(text)
        self._is_message = spans != [(0, len(text))]
        items = list(islice(self._items(spans), MAX_ITEMS + 1))
        if len(items) > MAX_ITEMS:
            raise DocumentError(f"a value has more than {MAX_ITEMS:,} tags and texts")
        self.inline = Inline.of(items)

    def escape(self, text: str) -> str:
        """Returns characters with references where the text has them."""
        table = {ord(character): raw for character, raw in self._written.items() if character not in self._bare}
        if "<" not in self._bare:
            table.setdefault(ord("<"), "&lt;")
        return text.translate(table)

    def _items(self, spans: Sequence[Span]) -> Iterator[Item]:
        """Yields the items of texts, and breaks for the syntax of a message around them."""
        position = 0
        for start, end in spans:
            if position < start:
                yield Item(ItemKind.BREAK, self._text[position:start])
            yield from self._read(start, end)
            position = end
        if position < len(self._text):
            yield Item(ItemKind.BREAK, self._text[position:])

    def _read(self, position: int, end: int) -> Iterator[Item]:
        ends = ElementEnds(self._text, position, end)
        while tag := _TAG.search(self._text, position, end):
            yield from self._read_text(position, tag.start())
            position = tag.end()
            raw, name = tag[0], (tag["NAME"] or "").lower()
            last = self._end_of_kept(tag, ends) if name and not tag["CLOSE"] and not tag["EMPTY"] else None
            if last is not None:
                raw = self._text[tag.start() : last[1]]
                yield Item(ItemKind.KEPT, raw, unescape(_TAG.sub("", self._text[position : last[0]])))
                position = last[1]
            elif name in BLOCKS:
                yield Item(ItemKind.BREAK, raw)
            elif not name or tag["EMPTY"] or name in VOID:
                yield Item(ItemKind.POINT, raw)
            else:
                yield Item(ItemKind.CLOSE if tag["CLOSE"] else ItemKind.OPEN, raw, name)
        yield from self._read_text(position, end)

    def _end_of_kept(self, tag: re.Match[str], ends: ElementEnds) -> Span | None:
        """Returns the characters of the tag that ends an element without translation; None: it is none."""
        name = tag["NAME"]
        if name.lower() not in self._ignore_tags and read_translate(tag[0]) is not False:
            return None
        return ends.find(name, tag.end())

    def _read_text(self, start: int, end: int) -> Iterator[Item]:
        """Yields the text and the placeholders of a part without tags."""
        text = self._text[start:end]
        kept = [(placeholder.start, placeholder.end) for placeholder in _PLACEHOLDERS.find(text)]
        if self._is_message:
            kept = sorted(kept + [match.span() for match in _QUOTED.finditer(text)])
        position = 0
        for first, last in kept:
            if first >= position:
                yield Item(ItemKind.TEXT, self._unescape(text[position:first]))
                yield Item(ItemKind.KEPT, text[first:last], text[first:last])
                position = last
        yield Item(ItemKind.TEXT, self._unescape(text[position:]))

    def _unescape(self, text: str) -> str:
        """Returns a text without references, and notes which characters it writes in which way."""
        reference = _REFERENCE_OF_MESSAGE if self._is_message else _REFERENCE

        def read(found: re.Match[str]) -> str:
            value = "'" if found[0] == "''" else _character(found[0])
            if len(value) == 1:
                self._written.setdefault(value, found[0])
            return value

        self._bare.update(reference.sub("", text))
        return reference.sub(read, text)
