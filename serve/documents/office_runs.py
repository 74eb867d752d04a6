"""Runs of office documents: texts and markup of a stretch become runs again.

Neighbors with the same start tag and properties share a run, so that these are written once. Text and markup inside of
a run that begins before the stretch, or ends after it, stay in that run.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.serve.documents.document import DocumentError
from dragoman.serve.documents.inline import Inline, Item, ItemKind
from dragoman.serve.documents.splice import Part
from dragoman.serve.documents.stretches import Piece, Role
from dragoman.serve.documents.xml import escape

# Start tags and properties of one stretch. A translation may move text between others that are longer than it.
MAX_PROPERTIES_CHARACTERS = 8 << 20
# Characters that no text has.
_SYMBOL_START, _SYMBOL_END = "\ufdd0", "\ufdd1"
_SYMBOL = re.compile(f"{_SYMBOL_START}([0-9]+){_SYMBOL_END}")
_NO_SYMBOLS = {ord(_SYMBOL_START): None, ord(_SYMBOL_END): None}


@dataclass(frozen=True, slots=True)
class RunTags:
    """Tags of runs, with their prefix: the end of a run, and those around its text."""

    end: str
    text_start: str
    text_end: str


@dataclass(frozen=True, slots=True)
class _Atom:
    """The markup of an item, in a run with this opening, or a format, which begins or ends; empty: in no run."""

    kind: Literal["markup", "format", "end"]
    opening: str = ""
    raw: str = ""


def stretch_part(stretch: Sequence[Piece], tags: RunTags) -> Part | None:
    """Returns the part of a stretch; None: it has no text."""
    characters = Counter[str]()
    for piece in stretch:
        characters[piece.opening] += len(piece.text)
    if not any(characters.values()):
        return None
    base = characters.most_common(1)[0][0]
    items, atoms = _items(stretch, base)
    inline = Inline.of(items)
    if not inline.is_translatable:
        return None
    first, last = stretch[0], stretch[-1]
    return Part(
        inline.segment, [(first.start, last.end)], _Render(inline, atoms, base, (first.opens, last.closes), tags)
    )


def write_pieces(pieces: Sequence[Piece], tags: RunTags) -> str:
    """Returns pieces with runs around them."""
    runs = _Runs("", tags)
    for piece in pieces:
        runs.add(piece.opening, piece.raw)
    return runs.finish("")


class _Runs:
    def __init__(self, opening: str, tags: RunTags) -> None:
        """Starts inside of a run with the given opening, or outside of runs."""
        self._opening = opening
        self._tags = tags
        self._parts = list[str]()
        self._properties = 0

    def add(self, opening: str, raw: str) -> None:
        """Writes markup into a run; an empty opening: outside of runs."""
        self._enter(opening)
        self._parts.append(raw)

    def finish(self, opening: str) -> str:
        """Returns all that is written, for a text that goes on in a run or outside of runs."""
        self._enter(opening)
        return "".join(self._parts)

    def _enter(self, opening: str) -> None:
        if opening == self._opening:
            return
        if self._opening:
            self._parts.append(self._tags.end)
        self._opening = opening
        self._properties += len(opening)
        if self._properties > MAX_PROPERTIES_CHARACTERS:
            problem = f"more than {MAX_PROPERTIES_CHARACTERS:,} characters of formatting"
            raise DocumentError(f"the translation of a paragraph has {problem}: remove formatting")
        self._parts.append(opening)


@dataclass(frozen=True, slots=True)
class _Render:
    """Renders the translation of a stretch.

    Attributes:
        base: opening of runs outside of other formats.
        edges: openings of the runs around the start and the end; empty: there is none.
    """

    inline: Inline
    atoms: Sequence[_Atom]
    base: str
    edges: tuple[str, str]
    tags: RunTags

    def __call__(self, translation: str) -> tuple[str]:
        runs, formats = _Runs(self.edges[0], self.tags), [self.base]
        rendered = self.inline.render(translation, lambda text: text.translate(_NO_SYMBOLS))
        for number, text in enumerate(_SYMBOL.split(rendered)):
            if number % 2 == 0:
                if text:
                    runs.add(formats[-1], f"{self.tags.text_start}{escape(text)}{self.tags.text_end}")
                continue
            atom = self.atoms[int(text)]
            if atom.kind == "markup":
                runs.add(atom.opening, atom.raw)
            elif atom.kind == "format":
                formats.append(atom.opening)
            else:
                formats.pop()
        return (runs.finish(self.edges[1]),)


def _items(stretch: Sequence[Piece], base: str) -> tuple[list[Item], list[_Atom]]:
    """Returns the items of a stretch, in which a symbol stands for each of the atoms."""
    items, atoms = list[Item](), list[_Atom]()

    def symbol(atom: _Atom) -> str:
        atoms.append(atom)
        return f"{_SYMBOL_START}{len(atoms) - 1}{_SYMBOL_END}"

    for piece in stretch:
        text, form = Item(ItemKind.TEXT, piece.text), piece.opening
        if piece.role is not Role.TEXT:
            items.append(Item(ItemKind[piece.role.name], symbol(_Atom("markup", form, piece.raw)), "wrapper"))
        elif form == base:
            items.append(text)
        elif items and items[-1].kind is ItemKind.CLOSE and items[-1].key == form:
            items.insert(-1, text)
        else:
            opening = Item(ItemKind.OPEN, symbol(_Atom("format", form)), form)
            items += (opening, text, Item(ItemKind.CLOSE, symbol(_Atom("end")), form))
    return items, atoms
