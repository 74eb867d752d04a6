"""Finds the ends of elements in texts with tags; a text takes linear time."""

import re

from dragoman.serve.documents.splice import Span

# Each takes the time to read the text once. Elements with more names have no end.
MAX_NAMES = 20


class ElementEnds:
    """The end tags of a text."""

    def __init__(self, text: str, start: int, end: int) -> None:
        """Takes a text, of which some characters are read."""
        self._text = text
        self._start = start
        self._end = end
        # Where the last end tag of a name begins; -1: nowhere.
        self._last = dict[str, int]()

    def find(self, name: str, position: int) -> Span | None:
        """Returns the characters of the first end tag of a name after a position."""
        end_tag = re.compile(rf"</{re.escape(name)}\s*+>", re.IGNORECASE)
        key = name.lower()
        if key not in self._last:
            if len(self._last) == MAX_NAMES:
                return None
            starts = (match.start() for match in end_tag.finditer(self._text, self._start, self._end))
            self._last[key] = max(starts, default=-1)
        if self._last[key] < position:
            return None
        match = end_tag.search(self._text, position, self._end)
        return match.span() if match else None
