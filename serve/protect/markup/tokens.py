"""Tokens of markup, and the error for markup that is refused."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from dragoman.tables import read_table


def names(text: str) -> frozenset[str]:
    """Returns a set of names, which blanks separate."""
    return frozenset(text.split())


HTML_ELEMENTS: dict[str, Any] = read_table(__file__, "elements.yaml")


class MarkupError(Exception):
    """Markup that is malformed or exceeds a limit, at a character of the document from 0."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"{problem} at character {position}")
        self.position = position
        self.problem = problem


class Kind(Enum):
    """Kinds of tokens.

    TEXT has character references. EMPTY is a tag without content and end. OTHER is everything that is neither text nor
    tag: comments, declarations, instructions, CDATA sections, scripts.
    """

    TEXT = auto()
    START = auto()
    END = auto()
    EMPTY = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a document.

    Attributes:
        name: of a tag; in lower case in HTML.
        translate: what a start tag states about its content; None: nothing.
    """

    kind: Kind
    start: int
    end: int
    name: str = ""
    translate: bool | None = None
