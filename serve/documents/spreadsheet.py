"""Spreadsheets (xlsx): texts of cells, text boxes and charts are translated; formulas, numbers and names stay.

The header of a table stays, because formulas name it. Cells share equal texts: if only some of them are chosen, these
get a text of their own, without its formatting. A translation is never read as a formula.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.office import PackedDocument, content_types, drawn_members, read_members
from dragoman.serve.documents.office_paragraphs import SHEET, run_parts
from dragoman.serve.documents.package import Package
from dragoman.serve.documents.splice import Part
from dragoman.serve.documents.tagged import value_part
from dragoman.serve.documents.xml import XmlText, decode_xml, escape, local, with_attribute
from dragoman.serve.documents.xml_values import children, element_part, named_elements
from dragoman.serve.protect.markup.tokens import Kind, names

_STRINGS, _SHEETS, _TABLES, _BOOK = "sharedStrings+xml", "worksheet+xml", ".table+xml", "main+xml"
_PLACE = re.compile("([A-Z]{1,3})[0-9]*")
_NUMBER = re.compile("0{0,9}[1-9][0-9]{0,5}")
_DIGITS = re.compile("[0-9]{1,9}")
_ALL = "*"
_COLUMN, _SHEET = names("tableColumn"), names("sheet")
# How names of tables write characters, such as line ends.
_CODED = re.compile("_x([0-9A-Fa-f]{4})_")


class _Cell(NamedTuple):
    """A cell of a sheet: its start tag, column from 1, whether it is in the first row, and the type of its value."""

    start: int
    column: int
    is_first: bool
    kind: str


def parse_spreadsheet(content: bytes, request: DocumentRequest) -> Document:
    """Parses an xlsx file; raises DocumentError if it lacks a column that the request names."""
    package = Package(content, request.unpacked_bytes)
    kinds = dict(content_types(package))
    sheets = [name for name, kind in kinds.items() if kind.endswith(_SHEETS)]
    if not sheets:
        raise DocumentError("not a document of this format: no sheet")
    strings = next((name for name, kind in kinds.items() if kind.endswith(_STRINGS)), "")
    tables = [name for name, kind in kinds.items() if kind.endswith(_TABLES)]
    reader = _Reader(request, _texts(package, strings), frozenset(_headers(package, tables)))
    if request.columns:
        titles = _titles(package, next((name for name, kind in kinds.items() if kind.endswith(_BOOK)), ""))
        reader.choose({name: _read(package, name) for name in sheets}, titles)
    # Most sheets have no texts of their own. The parser does not read them, however large they are.
    read = [name for name in sheets if request.columns or b"inlineStr" in package.read(name)]
    members = {name: partial(reader.cell_parts, sheet=name) for name in read}
    shared = {strings: reader.shared_parts} if strings else {}
    parts = read_members(package, [*shared.items(), *members.items(), *drawn_members(package)], request)
    return PackedDocument(content, package, parts)


class _Reader:
    def __init__(self, request: DocumentRequest, texts: Sequence[str], headers: frozenset[str]) -> None:
        """Creates the reader.

        Args:
            texts: those that cells share, without formatting.
            headers: texts that stay.
        """
        self._request = request
        self._texts = texts
        self._headers = headers
        # The start tags of the chosen cells of each sheet, if not all are, and the shared texts of other cells.
        self._chosen = dict[str, set[int]]()
        self._others = set[int]()
        self._forms = dict[str, str]()

    def choose(self, sheets: dict[str, XmlText], titles: dict[str, str]) -> None:
        """Chooses cells by their columns; raises DocumentError if no sheet has one. `titles`: names of sheets."""
        found = set[str]()
        for sheet, document in sheets.items():
            cells = list(_cells(document))
            first = {cell.column: self._text(document, cell) for cell in cells if cell.is_first}
            columns, named = _columns(self._request.columns, titles.get(sheet, ""), first, found)
            chosen = self._chosen.setdefault(sheet, set())
            for cell in cells:
                if (None in columns or cell.column in columns) and not (named and cell.is_first):
                    chosen.add(cell.start)
                elif cell.kind == "s":
                    self._others.add(self._number(document, cell))
        if missing := [name for name in self._request.columns if name not in found]:
            raise DocumentError(f"columns: {missing[0]!r}, expected a letter or number, or a name of a first row")

    def shared_parts(self, document: XmlText) -> Iterator[Part]:
        """Yields the parts of the texts that cells share, but for those of cells that are not chosen."""
        for number, (index, _) in enumerate(children(document, document.root)):
            if number not in self._others:
                yield from self._text_parts(document, index)

    def cell_parts(self, document: XmlText, sheet: str) -> Iterator[Part]:
        """Yields the parts of the texts that stand in the cells of a sheet, or will."""
        chosen = self._chosen.get(sheet)
        for cell in _cells(document):
            if chosen is not None and cell.start not in chosen:
                continue
            if cell.kind == "inlineStr":
                for index, _ in children(document, cell.start):
                    yield from self._text_parts(document, index)
            elif cell.kind == "s" and (number := self._number(document, cell)) in self._others:
                part = self._own_part(document, cell.start, self._texts[number])
                if part is not None:
                    yield part

    def _text_parts(self, document: XmlText, index: int) -> Iterator[Part]:
        """Yields the parts of an element with either one text or runs."""
        if _decoded(_plain(document, index)) in self._headers:
            return
        found = list(children(document, index))
        text = next((child for child, name in found if name == "t"), None)
        spoken = [document.span(child) for child, name in found if name == "rPh"]
        if text is None:
            yield from run_parts(document, SHEET, index, (), self._forms)
        elif (part := element_part(document, text, self._request, spoken)) is not None:
            yield part

    def _own_part(self, document: XmlText, index: int, text: str) -> Part | None:
        if _decoded(text) in self._headers:
            return None
        first, last = document.tokens[index], document.tokens[document.ends[index]]
        tag = with_attribute(document.text[first.start : first.end], "t", "inlineStr")
        prefix = first.name.removesuffix("c")
        return value_part(text, ((first.start, last.end),), self._request.ignore_tags, _write_own, tag, prefix)

    def _number(self, document: XmlText, cell: _Cell) -> int:
        """Returns the number of the shared text of a cell; raises DocumentError if there is none."""
        value = next((index for index, name in children(document, cell.start) if name == "v"), cell.start)
        text = document.plain(value, document.ends[value]).strip()
        if _DIGITS.fullmatch(text) is None or int(text) >= len(self._texts):
            raise DocumentError(f"not a document of this format: {text[:20]!r}, expected the number of a text")
        return int(text)

    def _text(self, document: XmlText, cell: _Cell) -> str:
        if cell.kind == "s":
            return self._texts[self._number(document, cell)]
        return document.plain(cell.start, document.ends[cell.start]) if cell.kind == "inlineStr" else ""


def _columns(wanted: Sequence[str], title: str, first: dict[int, str], found: set[str]) -> tuple[set[int | None], bool]:
    """Returns the chosen columns of a sheet, None for all of them, and whether its first row names any.

    Adds to `found` what exists, here or in any sheet of another title.
    """
    chosen, named = set[int | None](), False
    for name in wanted:
        sheet, mark, column = name.rpartition("!")
        if mark and sheet != title:
            continue
        if column in first.values():
            chosen.update(number for number, text in first.items() if text == column)
            named = True
        elif column == _ALL:
            chosen.add(None)
        elif _NUMBER.fullmatch(column):
            chosen.add(int(column))
        elif _PLACE.fullmatch(column):
            chosen.add(_column(column))
        else:
            continue
        found.add(name)
    return chosen, named


def _column(place: str) -> int:
    """Returns the number of a column from 1, given its letters and perhaps a row, as in `AB7`; 0: it has none."""
    match, number = _PLACE.fullmatch(place), 0
    for letter in match[1] if match else "":
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _cells(document: XmlText) -> Iterator[_Cell]:
    for data, name in children(document, document.root):
        if name != "sheetData":
            continue
        for number, (row, _) in enumerate(children(document, data)):
            column = 0
            for index, _ in children(document, row):
                attributes, is_empty = document.attributes(index), document.tokens[index].kind is Kind.EMPTY
                column = _column(attributes.get("r", "")) or column + 1
                yield _Cell(index, column, number == 0, "" if is_empty else attributes.get("t", ""))


def _read(package: Package, name: str) -> XmlText:
    return XmlText(decode_xml(package.read(name))[0])


def _texts(package: Package, strings: str) -> list[str]:
    if not strings:
        return []
    document = _read(package, strings)
    return [_plain(document, index) for index, _ in children(document, document.root)]


def _plain(document: XmlText, index: int) -> str:
    """Returns the text of an element without its formatting and the pronunciation of its words."""
    texts = [(child, name) for child, name in children(document, index) if name in ("t", "r")]
    return "".join(document.plain(child, document.ends[child]) for child, _ in texts)


def _headers(package: Package, tables: Sequence[str]) -> Iterator[str]:
    for name in tables:
        document = _read(package, name)
        for index in named_elements(document, _COLUMN):
            yield _decoded(document.attributes(index).get("name", ""))


def _decoded(text: str) -> str:
    """Returns a text with line ends as in cells, in place of the codes that names of tables have."""
    return _CODED.sub(lambda found: chr(int(found[1], 16)), text).replace("\r\n", "\n")


def _titles(package: Package, book: str) -> dict[str, str]:
    """Returns the titles of the sheets by their members."""
    folder, file = posixpath.split(book)
    relations = _read(package, posixpath.join(folder, "_rels", f"{file}.rels"))
    targets = {}
    for index, _ in children(relations, relations.root):
        found = relations.attributes(index)
        targets[found.get("Id", "")] = posixpath.normpath(posixpath.join("/", folder, found.get("Target", "")))
    document, titles = _read(package, book), dict[str, str]()
    for index in named_elements(document, _SHEET):
        found = {local(name): value for name, value in document.attributes(index).items()}
        titles[targets.get(found.get("id", ""), "").removeprefix("/")] = found.get("name", "")
    return titles


def _write_own(before: str, after: str, tag: str, prefix: str, text: str) -> tuple[str]:
    value = escape(f"{before}{text}{after}")
    return (f'{tag}<{prefix}is><{prefix}t xml:space="preserve">{value}</{prefix}t></{prefix}is></{prefix}c>',)
