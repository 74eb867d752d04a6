"""Paragraphs in pieces, and the stretches of them that are translated as one segment."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Role(Enum):
    """What a piece of a paragraph is.

    OPEN and CLOSE are around text. A POINT goes with the text. A BARRIER stays and divides the text. The others are
    parts of fields.
    """

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    POINT = auto()
    BARRIER = auto()
    FIELD_BEGIN = auto()
    FIELD_SEPARATE = auto()
    FIELD_END = auto()
    INSTRUCTION = auto()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a paragraph.

    Attributes:
        start, end: its characters; those of its run, if it is the first or the last of the run.
        raw: its markup inside of its run; empty for a BARRIER.
        text: of TEXT and INSTRUCTION.
        opening: start tag and properties of its run, which all pieces of the run share; empty: it is in no run.
        opens, closes: openings of the runs that `start` and `end` are inside of; empty: they are outside of runs.
    """

    role: Role
    start: int
    end: int
    raw: str = ""
    text: str = ""
    opening: str = ""
    opens: str = ""
    closes: str = ""


def stretches(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yields what is between barriers; a pair around a barrier divides too."""
    roles = [item.role for item in pieces]
    opened, broken = list[int](), set[int]()
    for index, role in enumerate(roles):
        if role is Role.OPEN:
            opened.append(index)
        elif role is Role.BARRIER:
            broken.update(opened)
        elif role is Role.CLOSE:
            if not opened or opened[-1] in broken:
                roles[index] = Role.BARRIER
            if opened:
                opened.pop()
    broken.update(opened)
    stretch = list[Piece]()
    for index, piece in enumerate(pieces):
        if roles[index] is Role.BARRIER or index in broken:
            yield stretch
            stretch = []
        else:
            stretch.append(piece)
    yield stretch
