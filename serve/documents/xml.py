"""XML documents: the tokens of a document by their offsets, and text that becomes part of one.

Entities other than the five of XML are refused, because a document may declare none.
"""

import re
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

from dragoman.serve.documents.document import DocumentError
from dragoman.serve.documents.splice import Span, decode, decode_as
from dragoman.serve.protect.markup.tokens import Kind, MarkupError, Token
from dragoman.serve.protect.markup.xml import check_xml, xml_tokens

MAX_TOKENS = 1_000_000
MAX_LEVELS = 200
_DECLARED = re.compile(rb"\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
# Encodings with the same ASCII characters as UTF-8, by the names of Python.
_ENCODINGS = {
    **{name: name for name in ("us-ascii", "iso-8859-1", "koi8-r", "gb18030", "gbk", "big5", "euc-jp", "euc-kr")},
    **{f"iso-8859-{number}": f"iso8859-{number}" for number in (2, 5, 7, 9, 15)},
    **{f"windows-{number}": f"cp{number}" for number in range(1250, 1259)},
}
_KINDS = tuple(Kind)
_ATTRIBUTE = re.compile(r"\s([^\s=/<>\"']++)\s*+=\s*+(?:\"([^\"]*)\"|'([^']*)')")
# Characters that XML cannot have.
INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_REFERENCE = re.compile("&(?:#x0*+([0-9A-Fa-f]{1,6})|#0*+([0-9]{1,7})|(amp|lt|gt|quot|apos));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def decode_xml(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Returns the text of a file, and a function that encodes it again; raises DocumentError for another encoding."""
    declared = _DECLARED.match(content)
    encoding = _ENCODINGS.get(declared[1].decode().lower()) if declared else None
    return decode(content) if encoding is None else decode_as(content, encoding, "xmlcharrefreplace")


def escape(text: str) -> str:
    """Returns text as content of an element; characters that XML cannot have are left out."""
    return INVALID.sub("", text).translate(_ESCAPES)


def unescape(text: str) -> str:
    """Returns text of a well-formed document with characters in place of references."""
    return _REFERENCE.sub(_referred, text) if "&" in text else text


def _referred(found: re.Match[str]) -> str:
    hexadecimal, decimal, name = found.groups()
    return _ENTITIES[name] if name else chr(int(hexadecimal, 16) if hexadecimal else int(decimal))


def local(name: str) -> str:
    """Returns a name without its prefix."""
    return name.rpartition(":")[2]


def with_attribute(tag: str, name: str, value: str) -> str:
    """Returns a start tag or an empty tag with a new value of an attribute, which needs no references."""
    written = f' {name}="{value}"'
    changed, number = re.subn(rf"\s{re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')", written, tag, count=1)
    return changed if number else re.sub(r"(?<!\s)\s*+(/?>)\Z", rf"{written}\1", tag)


class _Tokens(Sequence[Token]):
    """The tokens of a document, in few objects. Together they are its text."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        """Stores tokens; raises DocumentError if there are too many."""
        self._kinds, self._names = bytearray(), list[str]()
        self._offsets = array("I", [0])
        known = dict[str, str]()
        for number, token in enumerate(tokens, 1):
            if number > MAX_TOKENS:
                raise DocumentError(f"more than {MAX_TOKENS} tags and texts")
            self._kinds.append(_KINDS.index(token.kind))
            self._names.append(known.setdefault(token.name, token.name))
            self._offsets.append(token.end)

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, index: int) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> list[Token]: ...
    def __getitem__(self, index: int | slice) -> Token | list[Token]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        kind, start, end = _KINDS[self._kinds[index]], self._offsets[index], self._offsets[index + 1]
        return Token(kind, start, end, self._names[index])


class XmlText:
    """A document and its tokens; `ends` has the index of each start tag's end tag, and of others their own."""

    def __init__(self, text: str) -> None:
        """Reads a document; raises DocumentError if it is malformed, declares entities, or exceeds a limit."""
        self.text = text
        try:
            check_xml(text)
        except MarkupError as error:
            raise DocumentError(str(error)) from error
        self.tokens = _Tokens(xml_tokens(text))
        self.ends = _ends(self.tokens)

    def raw(self, first: int, last: int) -> str:
        """Returns the document from a token to another one, with both."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def span(self, index: int) -> Span:
        """Returns the characters of the element of a start tag."""
        return self.tokens[index].start, self.tokens[self.ends[index]].end

    def content(self, index: int) -> str:
        """Returns what is inside of the element of a start tag."""
        return self.text[self.tokens[index].end : self.tokens[self.ends[index]].start]

    def attributes(self, index: int) -> dict[str, str]:
        """Returns the attributes of a tag, by their names with prefixes."""
        tag = self.text[self.tokens[index].start : self.tokens[index].end]
        return {name: unescape(one or two) for name, one, two in _ATTRIBUTE.findall(tag)}

    def plain(self, first: int, last: int) -> str:
        """Returns the text between two tokens, without tags."""
        texts = []
        for token in self.tokens[first : last + 1]:
            raw = self.text[token.start : token.end]
            if token.kind is Kind.TEXT:
                texts.append(unescape(raw))
            elif raw.startswith("<![CDATA["):
                texts.append(raw[9:-3])
        return "".join(texts)

    @cached_property
    def root(self) -> int:
        """The index of the first tag; raises DocumentError if there is none."""
        tags = (index for index, token in enumerate(self.tokens) if token.kind in (Kind.START, Kind.EMPTY))
        first = next(tags, None)
        if first is None:
            raise DocumentError("not XML: no element")
        return first

    def elements(self, name: str, namespaces: frozenset[str]) -> Iterator[int]:
        """Yields the start tags of elements with a name of any of the namespaces."""
        # Per prefix: the ends of the elements that declare it, and its namespaces; the last one that is open counts.
        declared = defaultdict[str, list[tuple[int, str]]](list)
        for index, token in enumerate(self.tokens):
            if token.kind is not Kind.START:
                continue
            if self.text.find("xmlns", token.start, token.end) >= 0:
                for key, value in self.attributes(index).items():
                    declared[key].append((self.ends[index], value))
            if local(token.name) == name:
                prefix = token.name.removesuffix(name)
                scopes = declared[f"xmlns:{prefix}".rstrip(":")]
                while scopes and scopes[-1][0] < index:
                    scopes.pop()
                if scopes and scopes[-1][1] in namespaces:
                    yield index


def any_inside(numbers: Sequence[int], first: int, end: int) -> bool:
    """Returns whether a sorted sequence has a number from `first` on and below `end`."""
    index = bisect_left(numbers, first)
    return index < len(numbers) and numbers[index] < end


def _ends(tokens: Sequence[Token]) -> Sequence[int]:
    ends, levels = array("I", range(len(tokens))), list[int]()
    for index, token in enumerate(tokens):
        if token.kind is Kind.START:
            levels.append(index)
            if len(levels) > MAX_LEVELS:
                raise DocumentError(f"more than {MAX_LEVELS} levels of elements")
        elif token.kind is Kind.END:
            ends[levels.pop()] = index
    return ends
