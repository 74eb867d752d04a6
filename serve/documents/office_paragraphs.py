"""Paragraphs of WordprocessingML and DrawingML: their runs become segments with tags, and translations become runs.

A tab, a line break, or anything that has paragraphs of its own divides a paragraph. Of a stretch between them, all runs
are written anew. Runs with the format of most of its characters are plain text; other formats are tags.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from xml.sax.saxutils import quoteattr

from serve.documents.inline import Inline, Item, ItemKind
from serve.documents.splice import Part
from serve.documents.stretches import Piece, Role, stretches
from serve.documents.xml import XmlText, escape, local
from serve.markup.tokens import Kind, names


@dataclass(frozen=True, slots=True)
class Dialect:
    """Names of a markup language, without prefixes.

    Attributes:
        namespaces: of the names, any of them.
        wrappers: elements around runs, whose tags go with their text.
        containers: elements around runs, whose tags stay and divide the paragraph.
        points: elements without translated text that go with the text around them.
        dropped: elements that mean nothing once the text changes.
        noise: properties that do not make another format.
        text_start: start tag of text, without prefix.
    """

    namespaces: frozenset[str]
    wrappers: frozenset[str]
    containers: frozenset[str]
    points: frozenset[str]
    dropped: frozenset[str]
    noise: re.Pattern[str]
    text_start: str


WORD = Dialect(
    namespaces=frozenset(
        {
            "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
            "http://purl.oclc.org/ooxml/wordprocessingml/main",
        }
    ),
    wrappers=names("hyperlink ins moveTo smartTag bdo dir"),
    containers=names("sdt sdtContent customXml"),
    points=names(
        "del moveFrom bookmarkStart bookmarkEnd commentRangeStart commentRangeEnd permStart permEnd fldSimple "
        "footnoteReference endnoteReference commentReference sym noBreakHyphen drawing pict object"
    ),
    dropped=names("proofErr lastRenderedPageBreak softHyphen"),
    noise=re.compile(r"<(?:\w+:)?(?:lang|noProof)(?=[\s/])[^<>]*/>"),
    text_start='t xml:space="preserve"',
)
DRAWING = Dialect(
    namespaces=frozenset(
        {
            "http://schemas.openxmlformats.org/drawingml/2006/main",
            "http://purl.oclc.org/ooxml/drawingml/main",
        }
    ),
    wrappers=frozenset(),
    containers=frozenset(),
    points=names("fld"),
    dropped=frozenset(),
    noise=re.compile(r"\s(?:lang|altLang|dirty|err|smtClean|noProof)=\"[^\"]*\""),
    text_start="t",
)
# Elements of other languages that go with the text: formulas, and drawings in two versions.
_FOREIGN_POINTS = names("m:oMath mc:AlternateContent")
_FIELD, _INSTRUCTION, _DELETED = "fldChar", "instrText", "delText"
_LINK = re.compile(r"\s*HYPERLINK\b", re.IGNORECASE)
_EMPTY_PROPERTIES = re.compile(r"<([^\s<>/]*rPr)\s*(?:/>|></\1>)$")
# Characters that no text has.
_SYMBOL_START, _SYMBOL_END = "\ufdd0", "\ufdd1"
_SYMBOL = re.compile(f"{_SYMBOL_START}([0-9]+){_SYMBOL_END}")
_NO_SYMBOLS = {ord(_SYMBOL_START): None, ord(_SYMBOL_END): None}


def paragraph_parts(document: XmlText, dialect: Dialect) -> Iterator[Part]:
    """Yields the parts of all paragraphs of a document, those inside of others too."""
    paragraphs = dict(document.elements("p", dialect.namespaces))
    for index, prefix in paragraphs.items():
        pieces = _Reader(document, dialect, prefix, paragraphs).pieces(index)
        for stretch in stretches(_resolve_fields(list(pieces))):
            part = _part(stretch, dialect, prefix)
            if part is not None:
                yield part


class _Reader:
    """Reads the pieces of paragraphs with a prefix; `paragraphs` has the start tags of all."""

    def __init__(self, document: XmlText, dialect: Dialect, prefix: str, paragraphs: Container[int]) -> None:
        self._document = document
        self._dialect = dialect
        self._prefix = prefix
        self._paragraphs = paragraphs

    def pieces(self, paragraph: int) -> Iterator[Piece]:
        """Yields the pieces of the paragraph of a start tag."""
        document, index = self._document, paragraph + 1
        while index < document.ends[paragraph]:
            token, last = document.tokens[index], document.ends[index]
            name = self._name(index)
            raw = document.raw(index, index)
            if token.kind in (Kind.TEXT, Kind.OTHER) or name in self._dialect.dropped:
                pass
            elif name in self._dialect.wrappers and token.kind is not Kind.EMPTY:
                yield Piece(Role.OPEN if token.kind is Kind.START else Role.CLOSE, token.start, token.end, raw)
                last = index
            elif name in self._dialect.containers:
                yield Piece(Role.BARRIER, token.start, token.end)
                last = index
            elif name == "r":
                yield from self._run_pieces(index)
            else:
                role = Role.POINT if self._is_point(index) else Role.BARRIER
                yield Piece(role, token.start, document.tokens[last].end, document.raw(index, last))
            index = last + 1

    def _run_pieces(self, run: int) -> Iterator[Piece]:
        document = self._document
        children = list(self._children(run))
        # Properties and content may need the namespaces that the run declares.
        attributes = document.attributes(run).items()
        namespaces = (f" {name}={quoteattr(value)}" for name, value in attributes if name.partition(":")[0] == "xmlns")
        opening = f"<{self._prefix}r{''.join(namespaces)}>"
        if children and self._name(children[0]) == "rPr":
            opening += document.raw(children[0], document.ends[children[0]])
            children = children[1:]
        children = [each for each in children if self._name(each) not in self._dialect.dropped]
        for number, child in enumerate(children):
            piece = self._run_piece(child, opening)
            first, last = number == 0, number == len(children) - 1
            yield replace(
                piece,
                start=document.tokens[run].start if first else piece.start,
                end=document.tokens[document.ends[run]].end if last else piece.end,
                opens=not first,
                closes=not last,
            )

    def _children(self, run: int) -> Iterator[int]:
        index = run + 1
        while index < self._document.ends[run]:
            if self._document.tokens[index].kind in (Kind.START, Kind.EMPTY):
                yield index
            index = self._document.ends[index] + 1

    def _run_piece(self, child: int, opening: str) -> Piece:
        document, name = self._document, self._name(child)
        last = document.ends[child]
        text = ""
        if name == "t":
            role, text = Role.TEXT, document.plain(child, last)
        elif name == _FIELD:
            kind = {local(key): value for key, value in document.attributes(child).items()}.get("fldCharType", "")
            role = {"begin": Role.FIELD_BEGIN, "separate": Role.FIELD_SEPARATE}.get(kind, Role.FIELD_END)
        elif name == _INSTRUCTION:
            role, text = Role.INSTRUCTION, document.plain(child, last)
        else:
            role = Role.POINT if self._is_point(child) else Role.BARRIER
        raw = f"{opening}{document.raw(child, last)}</{self._prefix}r>"
        start, end = document.tokens[child].start, document.tokens[last].end
        return Piece(role, start, end, raw, text, opening)

    def _is_point(self, index: int) -> bool:
        document = self._document
        if self._name(index) not in self._dialect.points and document.tokens[index].name not in _FOREIGN_POINTS:
            return False
        return all(inside not in self._paragraphs for inside in range(index + 1, document.ends[index]))

    def _name(self, index: int) -> str:
        """Returns a name without the prefix of the dialect; other names keep theirs."""
        return self._document.tokens[index].name.removeprefix(self._prefix)


def _resolve_fields(pieces: list[Piece]) -> list[Piece]:
    """Returns the pieces with fields as pairs, if they are links, or as points; what is left of others divides."""
    resolved, begins = list[Piece](), list[int]()
    for piece in pieces:
        if piece.role is Role.FIELD_BEGIN:
            begins.append(len(resolved))
        if piece.role is Role.FIELD_END and begins:
            first = begins.pop()
            resolved[first:] = _field([*resolved[first:], piece])
        else:
            resolved.append(piece)
    left = (Role.FIELD_BEGIN, Role.FIELD_SEPARATE, Role.FIELD_END, Role.INSTRUCTION)
    return [replace(each, role=Role.BARRIER) if each.role in left else each for each in resolved]


def _field(pieces: list[Piece]) -> list[Piece]:
    roles = [each.role for each in pieces]
    if Role.BARRIER in roles:
        return [replace(each, role=Role.BARRIER) for each in pieces]
    separate = roles.index(Role.FIELD_SEPARATE) if Role.FIELD_SEPARATE in roles else len(pieces)
    instruction = "".join(each.text for each in pieces[:separate] if each.role is Role.INSTRUCTION)
    if separate < len(pieces) and _LINK.match(instruction):
        opening = _joined(Role.OPEN, pieces[: separate + 1])
        return [opening, *pieces[separate + 1 : -1], replace(pieces[-1], role=Role.CLOSE)]
    return [_joined(Role.POINT, pieces)]


def _joined(role: Role, pieces: Sequence[Piece]) -> Piece:
    first, last = pieces[0], pieces[-1]
    raw = "".join(each.raw for each in pieces)
    return replace(first, role=role, end=last.end, closes=last.closes, raw=raw, text="")


def _part(stretch: list[Piece], dialect: Dialect, prefix: str) -> Part | None:
    """Returns the part of a stretch; None: it has no text."""
    formats = [_format(each.opening, dialect) for each in stretch]
    characters = Counter[str]()
    for piece, form in zip(stretch, formats, strict=True):
        characters[form] += len(piece.text)
    if not any(characters.values()):
        return None
    writer = _Writer(characters.most_common(1)[0][0], prefix, dialect.text_start)
    inline = Inline.of(writer.items(stretch, formats))
    if not inline.is_translatable:
        return None
    first, last = stretch[0], stretch[-1]
    opening = f"</{prefix}r>" if first.opens else ""
    closing = last.opening if last.closes else ""

    def render(translation: str) -> tuple[str]:
        return (f"{opening}{writer.write(inline.render(translation, _without_symbols))}{closing}",)

    return Part(inline.segment, [(first.start, last.end)], render)


def _format(opening: str, dialect: Dialect) -> str:
    return _EMPTY_PROPERTIES.sub("", dialect.noise.sub("", opening))


def _without_symbols(text: str) -> str:
    return text.translate(_NO_SYMBOLS)


class _Writer:
    """Turns pieces into items, and items into runs. The markup of an item is a symbol for one of `atoms`."""

    def __init__(self, base: str, prefix: str, text_start: str) -> None:
        """Creates the writer; `base` is the opening of runs outside of other formats."""
        self._base = base
        self._text_start, self._text_end = f"<{prefix}{text_start}>", f"</{prefix}t></{prefix}r>"
        # Markup, the opening of runs from here on, or the end of these.
        self._atoms = list[tuple[Literal["markup", "format", "end"], str]]()

    def items(self, stretch: Sequence[Piece], formats: Sequence[str]) -> list[Item]:
        """Returns the items of a stretch, given the format of each piece."""
        items = list[Item]()
        for piece, form in zip(stretch, formats, strict=True):
            text = Item(ItemKind.TEXT, piece.text)
            if piece.role is not Role.TEXT:
                self._atoms.append(("markup", piece.raw))
                items.append(Item(ItemKind[piece.role.name], self._symbol(), "wrapper"))
            elif form == self._base:
                items.append(text)
            elif items and items[-1].kind is ItemKind.CLOSE and items[-1].key == form:
                items.insert(-1, text)
            else:
                self._atoms.append(("format", form))
                opening = Item(ItemKind.OPEN, self._symbol(), form)
                self._atoms.append(("end", ""))
                items += (opening, text, Item(ItemKind.CLOSE, self._symbol(), form))
        return items

    def _symbol(self) -> str:
        return f"{_SYMBOL_START}{len(self._atoms) - 1}{_SYMBOL_END}"

    def write(self, rendered: str) -> str:
        """Returns the runs of a text with symbols."""
        formats, parts = [self._base], list[str]()
        for number, text in enumerate(_SYMBOL.split(rendered)):
            if number % 2 == 0:
                parts.append(self._write_run(formats[-1], text))
                continue
            kind, value = self._atoms[int(text)]
            if kind == "markup":
                parts.append(value)
            elif kind == "format":
                formats.append(value)
            else:
                formats.pop()
        return "".join(parts)

    def _write_run(self, opening: str, text: str) -> str:
        return f"{opening}{self._text_start}{escape(text)}{self._text_end}" if text else ""
