"""Paragraphs of WordprocessingML and DrawingML, and cells: their runs become segments, and translations become runs.

A tab, a line break, or anything that has paragraphs of its own divides a paragraph. Of a stretch between them, all runs
are written anew. Runs with the format of most of its characters are plain text; other formats are tags.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

from dragoman.serve.documents.office_fields import resolve_fields
from dragoman.serve.documents.office_runs import RunTags, stretch_part
from dragoman.serve.documents.splice import Part
from dragoman.serve.documents.stretches import Piece, Role, stretches
from dragoman.serve.documents.xml import XmlText, any_inside, local
from dragoman.serve.protect.markup.tokens import Kind, names
from dragoman.tables import read_table


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

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Dialect":
        """Returns the dialect of a table."""
        sets = {kind: names(row[kind]) for kind in ("wrappers", "containers", "points", "dropped")}
        noise = re.compile(row["noise"])
        return cls(frozenset(row["namespaces"]), **sets, noise=noise, text_start=row["text_start"])


WORD, DRAWING, SHEET = map(Dialect.of, read_table(__file__, "office_paragraphs.yaml").values())
# Elements of other languages that go with the text: formulas, and drawings in two versions.
_FOREIGN_POINTS = names("m:oMath mc:AlternateContent")
_FIELD, _INSTRUCTION = "fldChar", "instrText"
_EMPTY_PROPERTIES = re.compile(r"<([^\s<>/]*rPr)\s*(?:/>|></\1>)$")


def paragraph_parts(document: XmlText, dialect: Dialect) -> Iterator[Part]:
    """Yields the parts of all paragraphs of a document, those inside of others too."""
    paragraphs = list(document.elements("p", dialect.namespaces))
    forms = dict[str, str]()
    for index in paragraphs:
        yield from run_parts(document, dialect, index, paragraphs, forms)


def run_parts(
    document: XmlText, dialect: Dialect, index: int, paragraphs: Sequence[int], forms: dict[str, str]
) -> Iterator[Part]:
    """Yields the parts of an element with runs.

    Args:
        index: of its start tag.
        paragraphs: start tags of all such elements that may be inside of it, sorted.
        forms: openings of runs; equal ones become one object.
    """
    name = document.tokens[index].name
    prefix = name.removesuffix(local(name))
    pieces = list(_ParagraphReader(document, dialect, prefix, paragraphs, forms).pieces(index))
    tags = RunTags(f"</{prefix}r>", f"<{prefix}{dialect.text_start}>", f"</{prefix}t>")
    for stretch in stretches(list(resolve_fields(pieces, tags))):
        part = stretch_part(stretch, tags)
        if part is not None:
            yield part


class _ParagraphReader:
    def __init__(
        self, document: XmlText, dialect: Dialect, prefix: str, paragraphs: Sequence[int], forms: dict[str, str]
    ) -> None:
        """Creates the reader; arguments as those of `run_parts`."""
        self._document = document
        self._dialect = dialect
        self._prefix = prefix
        self._paragraphs = paragraphs
        self._forms = forms

    def pieces(self, paragraph: int) -> Iterator[Piece]:
        """Yields the pieces of the paragraph of a start tag."""
        document, index = self._document, paragraph + 1
        while index < document.ends[paragraph]:
            token, last = document.tokens[index], document.ends[index]
            name = self._name(index)
            if token.kind in (Kind.TEXT, Kind.OTHER) or name in self._dialect.dropped:
                pass
            elif name in self._dialect.wrappers and token.kind is not Kind.EMPTY:
                role = Role.OPEN if token.kind is Kind.START else Role.CLOSE
                yield Piece(role, token.start, token.end, document.raw(index, index))
                last = index
            elif name in self._dialect.containers:
                yield Piece(Role.BARRIER, token.start, token.end)
                last = index
            elif name == "r":
                yield from self._run_pieces(index)
            else:
                role, raw = self._point(index)
                yield Piece(role, token.start, document.tokens[last].end, raw)
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
        opening = _EMPTY_PROPERTIES.sub("", self._dialect.noise.sub("", opening))
        opening = self._forms.setdefault(opening, opening)
        children = [item for item in children if self._name(item) not in self._dialect.dropped]
        for number, child in enumerate(children):
            first, last = number == 0, number == len(children) - 1
            yield self._run_piece(child, opening, run if first else None, run if last else None)

    def _children(self, run: int) -> Iterator[int]:
        index = run + 1
        while index < self._document.ends[run]:
            if self._document.tokens[index].kind in (Kind.START, Kind.EMPTY):
                yield index
            index = self._document.ends[index] + 1

    def _run_piece(self, child: int, opening: str, begun: int | None, ended: int | None) -> Piece:
        """Returns the piece of an element in a run, which is `begun` by its first one, and `ended` by its last."""
        document, name = self._document, self._name(child)
        last = document.ends[child]
        text, raw = "", document.raw(child, last)
        if name == "t":
            role, text = Role.TEXT, document.plain(child, last)
        elif name == _FIELD:
            kind = {local(key): value for key, value in document.attributes(child).items()}.get("fldCharType", "")
            role = {"begin": Role.FIELD_BEGIN, "separate": Role.FIELD_SEPARATE}.get(kind, Role.FIELD_END)
        elif name == _INSTRUCTION:
            role, text = Role.INSTRUCTION, document.plain(child, last)
        else:
            role, raw = self._point(child)
        start = document.tokens[child if begun is None else begun].start
        end = document.tokens[last if ended is None else document.ends[ended]].end
        opens, closes = opening if begun is None else "", opening if ended is None else ""
        return Piece(role, start, end, raw, text, opening, opens, closes)

    def _point(self, index: int) -> tuple[Role, str]:
        """Returns the role of an element without text of the paragraph, and its markup if it is a point."""
        document, last = self._document, self._document.ends[index]
        known = self._name(index) in self._dialect.points or document.tokens[index].name in _FOREIGN_POINTS
        if not known or any_inside(self._paragraphs, index + 1, last):
            return Role.BARRIER, ""
        return Role.POINT, document.raw(index, last)

    def _name(self, index: int) -> str:
        """Returns a name without the prefix of the dialect; other names keep theirs."""
        return self._document.tokens[index].name.removeprefix(self._prefix)
