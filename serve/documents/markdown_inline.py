"""The text of Markdown with emphasis, links, code and HTML, as items of a segment.

`markdown-it` finds the blocks, but cannot read this text: its inline tokens have no positions, decode escapes and
references, and drop how a link was written, while a document keeps these bytes. It has no tokens for formulas, links of
wikis, emoji, notes and attributes, which are half of the forms here.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection
from html import unescape
from typing import NamedTuple

from markdown_it.common.utils import normalizeReference

from dragoman.serve.documents.document import DocumentError
from dragoman.serve.documents.inline import ElementEnds, Item, ItemKind
from dragoman.serve.protect.markup.html import VOID, read_translate
from dragoman.tables import read_table

_FORMS: dict[str, list[str]] = read_table(__file__, "markdown_inline.yaml")
_TOKEN = re.compile("|".join(f"(?P<{name}>{'|'.join(forms)})" for name, forms in _FORMS.items()), re.DOTALL)
# Signs of formulas; words with blanks between them, without any of these, are prices and their text.
_MATH = re.compile(r"\$[^$]*[\\^_=<>+*/|{}][^$]*\$|\$\S*\$")
_MATH_SIGN = re.compile(r"[\\^_=<>+{}]")
# Marks that are characters of the text if nothing is between them.
EMPHASIS = frozenset({"*", "**", "_", "__", "~~"})
_DESTINATION = re.compile(r"\]\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)", re.DOTALL)
_LABEL = re.compile(r"\]\[([^\[\]]*)\]")
# Longer texts are no labels (CommonMark).
_MAX_LABEL_CHARACTERS = 999
# While this many brackets are open, further ones are text.
_MAX_BRACKETS = 1000
_OPEN_BRACKETS, _CLOSE_BRACKETS = re.compile(r"[!^\[]*\["), re.compile(r"\]+")
_TICKS = re.compile(r"`+")
_TAG = re.compile(r"<[^<>]*+>")
# Bounds the time and the memory that one paragraph takes.
_MAX_ITEMS = 20_000
_TASK = re.compile(r"\[[ xX]\](?=\s)")
_SPECIAL = re.compile(r"[\\`*\[\]<]|(?<![^\W_])_|_(?![^\W_])|&(?=#?[A-Za-z0-9]+;)|~(?=~)")
_BLOCK_START = re.compile(r"(?:#{1,6}|[-+:~]|\d{1,9}(?=[.)]))(?=[.)\s]|$)|>|~~~|:::|\$\$|!!!|\?\?\?|=+$|-+$")


class InlineSyntax(NamedTuple):
    """What the text of a document means.

    Attributes:
        labels: of the definitions of references.
        ignore_tags: names of elements whose content stays.
    """

    labels: Collection[str] = ()
    ignore_tags: Collection[str] = ()


class InlineReader:
    """Reads the text of a block."""

    def __init__(self, raw: str, syntax: InlineSyntax) -> None:
        """Starts at the beginning."""
        self._raw = raw
        self._labels, self._ignore_tags = syntax
        self._ends = ElementEnds(raw, 0, len(raw))
        self._items = list[Item]()
        # Text that is no item yet.
        self._text = list[str]()
        # Index of the item and offset of each open bracket.
        self._brackets = list[tuple[int, int]]()
        self._marks = list[str]()
        self._last_comment_end = raw.rfind("-->")
        # Where runs of backticks begin, by their length.
        self._ticks = defaultdict[int, list[int]](list)
        for run in _TICKS.finditer(raw):
            self._ticks[len(run[0])].append(run.start())

    def read(self) -> list[Item]:
        """Returns the items, with neighboring texts as one; raises DocumentError if there are too many."""
        position = 0
        if task := _TASK.match(self._raw):
            self._add(ItemKind.POINT, task[0])
            position = task.end()
        while position < len(self._raw):
            token = _TOKEN.match(self._raw, position)
            if token is None:
                raise AssertionError("every character is a token")
            position = self._read(token)
        self._end_text()
        return self._items

    def _add(self, kind: ItemKind, raw: str, key: str = "") -> None:
        if kind is ItemKind.TEXT:
            self._text.append(raw)
            return
        self._end_text()
        self._append(Item(kind, raw, key))

    def _end_text(self) -> None:
        if self._text:
            self._append(Item(ItemKind.TEXT, "".join(self._text)))
            self._text = []

    def _append(self, item: Item) -> None:
        if len(self._items) == _MAX_ITEMS:
            raise DocumentError(f"a paragraph has more than {_MAX_ITEMS:,} tags and texts")
        self._items.append(item)

    def _read(self, token: re.Match[str]) -> int:
        """Adds the items of a token; returns the offset after it."""
        match token.lastgroup:
            case "TICKS":
                return self._read_code(token)
            case "OPEN" | "CLOSE":
                return self._open_bracket(token) if token["OPEN"] else self._close_bracket(token.start())
            case "TAG":
                return self._read_tag(token)
            case "MATH" | "BRACKETED":
                return self._read_math(token)
            case "COMMENT":
                return self._read_comment(token)
            case _:
                self._add_token(token)
                return token.end()

    def _add_token(self, token: re.Match[str]) -> None:
        """Adds the items of a token that ends where it matches."""
        match token.lastgroup:
            case "MARKS":
                self._read_marks(token)
            case "ADDRESS" | "URL":
                self._add(ItemKind.KEPT, token[0], token[0].strip("<>"))
            case "WIKI":
                self._read_wiki(token)
            case "NOTE" | "ATTRIBUTES" | "EMOJI":
                self._add(ItemKind.POINT, token[0])
            case "BREAK":
                self._add(ItemKind.TEXT, " ")
            case "REFERENCE":
                self._add(ItemKind.TEXT, unescape(token[0]))
            case "ESCAPE":
                self._add(ItemKind.TEXT, token[0][1:])
            case _:
                self._add(ItemKind.TEXT, token[0])

    def _read_code(self, token: re.Match[str]) -> int:
        ticks = token[0]
        offsets = self._ticks.get(len(ticks), [])
        found = bisect_left(offsets, token.end())
        if found == len(offsets):
            self._add(ItemKind.TEXT, ticks)
            return token.end()
        start = offsets[found]
        end = start + len(ticks)
        code = self._raw[token.end() : start]
        self._add(ItemKind.KEPT, self._raw[token.start() : end], " ".join(code.split()) or ticks)
        return end

    def _read_comment(self, token: re.Match[str]) -> int:
        if token.end() > self._last_comment_end:
            self._add(ItemKind.TEXT, "<")
            return token.start() + 1
        end = self._raw.index("-->", token.end()) + 3
        self._add(ItemKind.POINT, self._raw[token.start() : end])
        return end

    def _read_wiki(self, token: re.Match[str]) -> None:
        """Adds a link to a page of a wiki; only a text after the name of the page is translated."""
        if token["SHOWN"] is None:
            self._add(ItemKind.KEPT, token[0], token["PAGE"])
            return
        offset = token.start("SHOWN") - token.start()
        self._add(ItemKind.OPEN, token[0][:offset], "[[")
        self._add(ItemKind.TEXT, token["SHOWN"])
        self._add(ItemKind.CLOSE, "]]", "[[")

    def _read_math(self, token: re.Match[str]) -> int:
        if token["BRACKETED"]:
            return self._read_bracketed(token)
        if token[0].startswith("$$") or _MATH.fullmatch(token[0]):
            self._add(ItemKind.KEPT, token[0], token[0].strip("$"))
            return token.end()
        self._add(ItemKind.TEXT, "$")
        return token.start() + 1

    def _read_bracketed(self, token: re.Match[str]) -> int:
        inside = token[0][2:-2]
        if len(inside.strip()) == 1 or _MATH_SIGN.search(inside):
            self._add(ItemKind.KEPT, token[0], inside.strip())
            return token.end()
        self._add(ItemKind.TEXT, token[0][1])
        return token.start() + 2

    def _read_tag(self, token: re.Match[str]) -> int:
        name = token["NAME"].lower()
        if name in VOID or token[0].endswith("/>"):
            self._add(ItemKind.POINT, token[0])
        elif token["SLASH"]:
            self._add(ItemKind.CLOSE, token[0], f"<{name}>")
        elif end := self._end_of_ignored(token, name):
            code = _TAG.sub("", self._raw[token.end() : end])
            self._add(ItemKind.KEPT, self._raw[token.start() : end], " ".join(unescape(code).split()))
            return end
        else:
            self._add(ItemKind.OPEN, token[0], f"<{name}>")
        return token.end()

    def _end_of_ignored(self, token: re.Match[str], name: str) -> int:
        """Returns the offset after an element whose content stays; 0: it is none, or has no end."""
        if not (name in self._ignore_tags or read_translate(token[0]) is False):
            return 0
        end = self._ends.find(name, token.end())
        return end[1] if end else 0

    def _open_bracket(self, token: re.Match[str]) -> int:
        if len(self._brackets) == _MAX_BRACKETS:
            return self._read_text(_OPEN_BRACKETS, token.start())
        self._end_text()
        self._brackets.append((len(self._items), token.end()))
        self._append(Item(ItemKind.TEXT, token[0]))
        return token.end()

    def _read_text(self, run: re.Pattern[str], offset: int) -> int:
        """Adds a run of characters as text; returns the offset after it."""
        match = run.match(self._raw, offset)
        if match is None:
            raise AssertionError("the run has begun")
        self._add(ItemKind.TEXT, match[0])
        return match.end()

    def _close_bracket(self, offset: int) -> int:
        if not self._brackets:
            return self._read_text(_CLOSE_BRACKETS, offset)
        index, start = self._brackets.pop()
        is_note = self._items[index].raw.startswith("^")
        raw, end = ("]", offset + 1) if is_note else self._link_end(start, offset)
        if raw is None:
            self._add(ItemKind.TEXT, "]")
            return end
        key = f"[{index}]"
        self._items[index] = Item(ItemKind.OPEN, self._items[index].raw, key)
        self._add(ItemKind.CLOSE, raw, key)
        return end

    def _link_end(self, start: int, offset: int) -> tuple[str | None, int]:
        """Returns the end of a link, and the offset after it; None: it is none."""
        if match := _DESTINATION.match(self._raw, offset):
            return match[0], match.end()
        text = self._raw[start:offset] if offset - start <= _MAX_LABEL_CHARACTERS else ""
        match = _LABEL.match(self._raw, offset)
        if match and normalizeReference(match[1] or text) in self._labels:
            return f"][{match[1] or text}]", match.end()
        # The text of such a link is its label.
        return (f"][{text}]" if normalizeReference(text) in self._labels else None), offset + 1

    def _read_marks(self, token: re.Match[str]) -> None:
        mark, rest = token[0][0], len(token[0])
        before, after = self._raw[token.start() - 1 : token.start()], self._raw[token.end() : token.end() + 1]
        opens, closes = _flanks(before, after), _flanks(after, before)
        if mark == "_":
            opens, closes = opens and not before.isalnum(), closes and not after.isalnum()
        while rest:
            if closes and self._marks and self._marks[-1][0] == mark and len(self._marks[-1]) <= rest:
                key, kind = self._marks.pop(), ItemKind.CLOSE
            else:
                key, kind = mark * min(rest, 2), ItemKind.OPEN if opens else ItemKind.TEXT
                if opens:
                    self._marks.append(key)
            self._add(kind, key, key)
            rest -= len(key)


def _flanks(outside: str, inside: str) -> bool:
    """Returns whether a mark may stand between two characters: a simplified rule of CommonMark."""
    if not inside or inside.isspace():
        return False
    return inside.isalnum() or not outside.isalnum()


def write_text(text: str, *, in_cell: bool = False) -> str:
    """Returns text with a backslash before characters that mean something in Markdown."""
    escaped = _SPECIAL.sub(r"\\\g<0>", text)
    return escaped.replace("|", r"\|") if in_cell else escaped


def write_block(raw: str) -> str:
    """Returns the text of a paragraph that must not begin another kind of block."""
    match = _BLOCK_START.match(raw)
    if not match:
        return raw
    offset = match.end() if match[0].isdigit() else match.start()
    return f"{raw[:offset]}\\{raw[offset:]}"
