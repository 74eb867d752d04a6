"""CSV and TSV: each cell with words is a segment; the dialect stays, and so do the quotes of a cell.

If columns are chosen by name, the first row names them and stays. A translation that a spreadsheet would read as a
formula gets an apostrophe before it, unless the text of its cell began so. Formulas with `=` stay, and so do cells
with a quote before their text that is no quote of a whole cell.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.splice import Part, SplicedDocument, decode
from dragoman.serve.documents.tagged import value_part

_DELIMITERS = ",;\t|"
_FORMULA = (*"=+-@", *"\uff1d\uff0b\uff0d\uff20")
_QUOTED = r'"(?:[^"]|"")*+"'
_FIRST_ROW = re.compile(rf"(?:{_QUOTED}|[^\r\n])*+")
# A cell has line ends and a quote before its text only in quotes.
_SPECIAL = re.compile(r'[\r\n]|\A\s*+"')
_NUMBER = re.compile("0{0,9}[1-9][0-9]{0,6}")
_Cell = tuple[int, str]


def parse_csv(content: bytes, request: DocumentRequest, delimiter: str = "") -> Document:
    """Parses a table; raises DocumentError if it lacks a column that the request names.

    By default, the delimiter is the comma, semicolon, tab or bar that the first row has most often outside of quotes.
    """
    text, encode = decode(content)
    row = _FIRST_ROW.match(text)
    bare = re.sub(_QUOTED, "", row[0] if row else "")
    return Table(text, delimiter or max(_DELIMITERS, key=bare.count), encode, request)


class Table(SplicedDocument):
    """A table; `notes` are about its translations, once it is written."""

    def __init__(self, text: str, delimiter: str, encode: Callable[[str], bytes], request: DocumentRequest) -> None:
        """Reads the cells; raises DocumentError if they are too many, or a column is missing."""
        self._escaped = list[str]()
        super().__init__(text, _parts(text, delimiter, request, self._escaped), encode, request)

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the translated table; raises DocumentError if it is too long or its encoding lacks a character."""
        self._escaped.clear()
        return super().write(translations)

    @property
    def notes(self) -> list[str]:
        """How many cells got an apostrophe, if any."""
        number = len(self._escaped)
        return [f"{number} cells begin as formulas and got an apostrophe (--csv-formulas keep)"] if number else []


def _find_columns(request: DocumentRequest, first_row: Sequence[str]) -> tuple[set[int], bool]:
    """Returns the indices of the chosen columns, and whether the first row names any."""
    indices, named = set[int](), False
    for name in request.columns:
        if name in first_row:
            indices.update(index for index, cell in enumerate(first_row) if cell == name)
            named = True
        elif _NUMBER.fullmatch(name):
            indices.add(int(name) - 1)
        else:
            raise DocumentError(f"columns: {name!r}, expected a name of the first row, or a number from 1")
    return indices, named


def _parts(text: str, delimiter: str, request: DocumentRequest, escaped: list[str]) -> Iterator[Part]:
    rows = _rows(text, delimiter)
    first = next(rows)
    chosen, named = _find_columns(request, [_read(cell) for _, cell in first])
    for row in rows if named else chain((first,), rows):
        for index, (start, cell) in enumerate(row):
            if request.columns and index not in chosen:
                continue
            value = _read(cell)
            if value.lstrip().startswith("=" if value != cell else ("=", '"')):
                continue
            kept = request.csv_formulas == "keep" or value.lstrip().startswith(_FORMULA)
            given = "" if value != cell else delimiter, None if kept else escaped
            part = value_part(value, ((start, start + len(cell)),), request.ignore_tags, _write, *given)
            if part is not None:
                yield part


def _rows(text: str, delimiter: str) -> Iterator[list[_Cell]]:
    mark = re.escape(delimiter)
    cell = re.compile(rf"( *+{_QUOTED}(?=[{mark}\r\n]|\Z)|[^{mark}\r\n]*+)({mark}|\r\n|\r|\n|\Z)")
    row, position = list[_Cell](), int(text.startswith("\ufeff"))
    while found := cell.match(text, position):
        row.append((found.start(), found[1]))
        if found[2] != delimiter:
            yield row
            row = []
        if not found[2]:
            return
        position = found.end()


def _read(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if re.fullmatch(_QUOTED, cell) else cell


def _write(before: str, after: str, delimiter: str, escaped: list[str] | None, text: str) -> tuple[str]:
    """Returns a cell; an empty delimiter: it has quotes."""
    value = f"{before}{text}{after}"
    if escaped is not None and text.lstrip().startswith(_FORMULA):
        escaped.append(text)
        value = f"'{value}"
    if delimiter in value or _SPECIAL.search(value):
        return ('"{}"'.format(value.replace('"', '""')),)
    return (value,)
