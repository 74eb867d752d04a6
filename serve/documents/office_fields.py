"""Fields of office documents: links become pairs around their text, all others become points."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dragoman.serve.documents.office_runs import RunTags, write_pieces
from dragoman.serve.documents.stretches import Piece, Role

_LINK = re.compile(r"\s*HYPERLINK\b", re.IGNORECASE)
_PARTS = (Role.FIELD_BEGIN, Role.FIELD_SEPARATE, Role.FIELD_END, Role.INSTRUCTION)


@dataclass(slots=True)
class _Field:
    """A field: indices of the pieces of its begin, separators and end, -1 without; `barriers` are before its begin."""

    begin: int
    barriers: int
    separate: int = -1
    end: int = -1
    instruction: list[str] = field(default_factory=list)

    @property
    def is_link(self) -> bool:
        return self.separate >= 0 and _LINK.match("".join(self.instruction)) is not None


def resolve_fields(pieces: Sequence[Piece], tags: RunTags) -> Iterator[Piece]:
    """Yields the pieces with fields as pairs, if they are links, or as points.

    A field with a barrier divides with all of its pieces, and so does what belongs to no field.
    """
    fields, ends = _find_fields(pieces), set[int]()
    index = 0
    while index < len(pieces):
        found, piece = fields.get(index), pieces[index]
        last = index if found is None else found.end
        if found is None:
            divides = piece.role in _PARTS and index not in ends
            yield replace(piece, role=Role.BARRIER if divides else Role.CLOSE) if piece.role in _PARTS else piece
        elif found.barriers:
            yield from (replace(item, role=Role.BARRIER) for item in pieces[index : last + 1])
        elif found.is_link:
            ends.add(last)
            last = found.separate
            yield _joined(Role.OPEN, pieces[index : last + 1], tags)
        else:
            yield _joined(Role.POINT, pieces[index : last + 1], tags)
        index = last + 1


def _find_fields(pieces: Sequence[Piece]) -> dict[int, _Field]:
    """Returns the fields by the indices of their first pieces. None of them crosses a pair of tags."""
    found, barriers = dict[int, _Field](), 0
    # Open fields; None: the start of a pair of tags.
    levels = list[_Field | None]()
    for index, piece in enumerate(pieces):
        inner = levels[-1] if levels else None
        if piece.role is Role.FIELD_BEGIN:
            levels.append(_Field(index, barriers))
        elif piece.role is Role.OPEN:
            levels.append(None)
        elif piece.role is Role.CLOSE:
            while levels and levels.pop() is not None:
                barriers += 1
        elif piece.role is Role.BARRIER or (piece.role in _PARTS and inner is None):
            barriers += 1
        elif inner is not None and piece.role is Role.FIELD_END:
            found[inner.begin] = inner
            inner.end, inner.barriers = index, barriers - inner.barriers
            levels.pop()
        elif inner is not None and inner.separate < 0 and piece.role is Role.FIELD_SEPARATE:
            inner.separate = index
        elif inner is not None and inner.separate < 0 and piece.role is Role.INSTRUCTION:
            inner.instruction.append(piece.text)
    return found


def _joined(role: Role, pieces: Sequence[Piece], tags: RunTags) -> Piece:
    first, last = pieces[0], pieces[-1]
    if all(piece.opening == first.opening for piece in pieces):
        opening, raw = first.opening, "".join(piece.raw for piece in pieces)
    else:
        opening, raw = "", write_pieces(pieces, tags)
    return Piece(role, first.start, last.end, raw, "", opening, first.opens, last.closes)
