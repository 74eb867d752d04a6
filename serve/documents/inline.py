"""Text with formatting: becomes a segment with tags, whose translation becomes formatting again.

A segment has four tags: `<g>` around formatted text, `<x/>` for something without text, `<b/>` for something that ends
a sentence, and `<k>` around text that is not translated. Formatting around the whole text is not part of the segment,
and text without other formatting is plain.
"""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from html import unescape
from itertools import chain
from typing import Any, NamedTuple

from dragoman.serve.documents.document import Segment, is_translatable
from dragoman.serve.documents.splice import Span
from dragoman.serve.documents.xml import INVALID, escape

# The tags that end a sentence, those that end none, and those with text that is not translated, as of a request.
TAGS: dict[str, Any] = {"splitting_tags": ("b",), "non_splitting_tags": ("g", "x", "k"), "ignore_tags": ("k",)}
# Deeper formatting is translated as points.
MAX_LEVELS = 50
# Longer text that is not translated becomes a point: the model does not read it.
MAX_KEPT_CHARACTERS = 150
_TOKEN = re.compile(
    r'<g id="(?P<OPEN>\d+)">|(?P<CLOSE></g>)|<x id="(?P<POINT>\d+)"/>|<b id="(?P<BREAK>\d+)"/>'
    r'|<k id="(?P<KEPT>\d+)">[^<]*</k>|(?P<TEXT>[^<]+)'
)
_INVALID_RUN = re.compile(f"({INVALID.pattern}+)")


class ItemKind(Enum):
    """Kinds of items: text, start and end of formatting, something without text, text that is not translated.

    A BREAK is something without text that ends a sentence.
    """

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    POINT = auto()
    KEPT = auto()
    BREAK = auto()


class Item(NamedTuple):
    """A part of a text with formatting.

    Attributes:
        raw: characters of the document; of text, what they stand for.
        key: of OPEN and CLOSE: an end belongs to the last start with its key. Of KEPT: the text that the model reads.
    """

    kind: ItemKind
    raw: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Inline:
    """A text with formatting, each start with its end, and the formatting and white space around it."""

    before: str
    items: tuple[Item, ...]
    after: str

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Inline":
        """Returns the text of items; a start without an end, or an end without a start, becomes a point."""
        inline = _trim(_pair(items))
        return (
            inline if inline.is_plain else replace(inline, items=tuple(chain.from_iterable(map(_valid, inline.items))))
        )

    @property
    def segment(self) -> Segment:
        """What is translated."""
        if self.is_plain:
            return Segment("".join(item.raw for item in self.items))
        return Segment("".join(_tag(number, item) for number, item in enumerate(self.items)), "xml")

    @property
    def is_plain(self) -> bool:
        """Whether the segment has no tags."""
        return all(item.kind is ItemKind.TEXT for item in self.items)

    @property
    def is_translatable(self) -> bool:
        """Whether the text has a letter."""
        return any(item.kind is ItemKind.TEXT and is_translatable(item.raw) for item in self.items)

    def read(self, translation: str) -> Iterator[Item]:
        """Yields the items of a translation, without what stands around it."""
        if self.is_plain:
            yield Item(ItemKind.TEXT, translation)
            return
        ends, open_numbers = _ends(self.items), list[int]()
        for token in _TOKEN.finditer(translation):
            kind = ItemKind[str(token.lastgroup)]
            if kind is ItemKind.TEXT:
                yield Item(kind, unescape(token[0]))
            elif kind is ItemKind.CLOSE:
                yield self.items[ends[open_numbers.pop()]]
            else:
                number = int(token[kind.name])
                if kind is ItemKind.OPEN:
                    open_numbers.append(number)
                yield self.items[number]

    def render(
        self, translation: str, write_text: Callable[[str], str] = str, dropped: Container[str] = frozenset()
    ) -> str:
        """Returns the document's form of a translation; `dropped`: keys of formatting that is left out if empty."""
        items = list[Item]()
        for item in self.read(translation):
            if item.kind is ItemKind.CLOSE and item.key in dropped and items and items[-1].kind is ItemKind.OPEN:
                items.pop()
            else:
                items.append(item)
        parts = (write_text(item.raw) if item.kind is ItemKind.TEXT else item.raw for item in items)
        return "".join((self.before, *parts, self.after))


def _tag(number: int, item: Item) -> str:
    match item.kind:
        case ItemKind.TEXT:
            return escape(item.raw)
        case ItemKind.OPEN:
            return f'<g id="{number}">'
        case ItemKind.CLOSE:
            return "</g>"
        case ItemKind.POINT:
            return f'<x id="{number}"/>'
        case ItemKind.BREAK:
            return f'<b id="{number}"/>'
        case ItemKind.KEPT:
            return f'<k id="{number}">{escape(item.key)}</k>'


def _valid(item: Item) -> Iterator[Item]:
    """Yields an item with points in place of characters that XML cannot have, and of long text that is kept."""
    if item.kind is ItemKind.TEXT:
        for number, raw in enumerate(_INVALID_RUN.split(item.raw)):
            if raw:
                yield Item(ItemKind.POINT if number % 2 else ItemKind.TEXT, raw)
    elif item.kind is ItemKind.KEPT and len(item.key) > MAX_KEPT_CHARACTERS:
        yield Item(ItemKind.POINT, item.raw)
    else:
        yield item


def _pair(items: Sequence[Item]) -> list[Item]:
    """Returns the items with starts and ends that belong together, and points in place of the others."""
    paired = list(items)
    open_numbers = list[int]()
    for number, item in enumerate(items):
        if item.kind is ItemKind.OPEN and len(open_numbers) < MAX_LEVELS:
            open_numbers.append(number)
        elif item.kind is ItemKind.CLOSE and item.key in (
            keys := [items[open_number].key for open_number in open_numbers]
        ):
            level = len(keys) - 1 - keys[::-1].index(item.key)
            _make_points(paired, open_numbers[level + 1 :])
            del open_numbers[level:]
        elif item.kind in (ItemKind.OPEN, ItemKind.CLOSE):
            _make_points(paired, [number])
    _make_points(paired, open_numbers)
    return paired


def _make_points(items: list[Item], numbers: Sequence[int]) -> None:
    for number in numbers:
        items[number] = Item(ItemKind.POINT, items[number].raw)


def _ends(items: Sequence[Item]) -> dict[int, int]:
    ends, open_numbers = dict[int, int](), list[int]()
    for number, item in enumerate(items):
        if item.kind is ItemKind.OPEN:
            open_numbers.append(number)
        elif item.kind is ItemKind.CLOSE:
            ends[open_numbers.pop()] = number
    return ends


def _trim(items: list[Item]) -> Inline:
    """Moves what stands around the text out of it."""
    ends, first, last = _ends(items), 0, len(items) - 1
    before, after = list[str](), list[str]()
    while first <= last:
        if _is_outside(items[first]):
            before.append(items[first].raw)
            first += 1
        elif _is_outside(items[last]):
            after.append(items[last].raw)
            last -= 1
        elif ends.get(first) == last:
            before.append(items[first].raw)
            after.append(items[last].raw)
            first, last = first + 1, last - 1
        else:
            break
    inside = items[first : last + 1]
    if inside and inside[0].kind is ItemKind.TEXT:
        bare = inside[0].raw.lstrip()
        before.append(inside[0].raw[: len(inside[0].raw) - len(bare)])
        inside[0] = Item(ItemKind.TEXT, bare)
    if inside and inside[-1].kind is ItemKind.TEXT:
        bare = inside[-1].raw.rstrip()
        after.append(inside[-1].raw[len(bare) :])
        inside[-1] = Item(ItemKind.TEXT, bare)
    return Inline("".join(before), tuple(inside), "".join(reversed(after)))


def _is_outside(item: Item) -> bool:
    return item.kind in (ItemKind.POINT, ItemKind.BREAK) or (item.kind is ItemKind.TEXT and not item.raw.strip())


# Each takes the time to read the text once. Elements with more names have no end.
MAX_NAMES = 20


class ElementEnds:
    """The end tags of a text."""

    def __init__(self, text: str, start: int, end: int) -> None:
        """Takes a text, of which some characters are read."""
        self._text = text
        self._start = start
        self._end = end
        # Where the last end tag of a name begins; -1: nowhere.
        self._last = dict[str, int]()

    def find(self, name: str, position: int) -> Span | None:
        """Returns the characters of the first end tag of a name after a position."""
        end_tag = re.compile(rf"</{re.escape(name)}\s*+>", re.IGNORECASE)
        key = name.lower()
        if key not in self._last:
            if len(self._last) == MAX_NAMES:
                return None
            starts = (match.start() for match in end_tag.finditer(self._text, self._start, self._end))
            self._last[key] = max(starts, default=-1)
        if self._last[key] < position:
            return None
        match = end_tag.search(self._text, position, self._end)
        return match.span() if match else None
