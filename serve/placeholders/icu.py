"""Messages of ICU: finds the text of their branches, such as in `{n, plural, one {# file} other {# files}}`."""

import re
from collections.abc import Iterator

# Deeper messages are plain text.
MOST_LEVELS = 16
_BRANCHING = re.compile(r"\{\s*+[\w.-]++\s*+,\s*+(?:plural|select|selectordinal)\s*+,(?:\s*+offset:\d++)?")
_BRANCH = re.compile(r"\s*+=?\w++\s*+\{")
_END = re.compile(r"\s*+\}")
# An apostrophe before a brace begins a quotation. Two apostrophes mean one, also inside of a quotation.
_SPECIAL = re.compile(r"''|'[{}](?:[^']|'')*+'?|[{}]")

Span = tuple[int, int]


class _MalformedError(Exception):
    """A text is no message."""


def find_texts(text: str) -> list[Span]:
    """Returns the parts of a text that are translated: all of it, or what is outside of the syntax of branches."""
    if not _BRANCHING.search(text):
        return [(0, len(text))]
    spans = list[Span]()
    try:
        _read_message(text, 0, 0, spans)
    except _MalformedError:
        return [(0, len(text))]
    return sorted(span for span in spans if text[slice(*span)].strip())


def _read_message(text: str, position: int, level: int, spans: list[Span]) -> int:
    """Adds the texts of a message; returns the place of the brace that ends it, or the end of the text."""
    if level > MOST_LEVELS:
        raise _MalformedError
    start = position
    for found in _specials(text, position):
        if found < position:
            continue
        if text[found] == "}":
            if level == 0:
                raise _MalformedError
            spans.append((start, found))
            return found
        if branching := _BRANCHING.match(text, found):
            spans.append((start, found))
            start = position = _read_branches(text, branching.end(), level, spans)
        else:
            position = _end_of_argument(text, found)
    if level:
        raise _MalformedError
    spans.append((start, len(text)))
    return len(text)


def _specials(text: str, position: int) -> Iterator[int]:
    """Yields the places of braces that are not quoted."""
    for found in _SPECIAL.finditer(text, position):
        if not found[0].startswith("'"):
            yield found.start()


def _read_branches(text: str, position: int, level: int, spans: list[Span]) -> int:
    """Adds the texts of all branches; returns the place after the argument."""
    while branch := _BRANCH.match(text, position):
        position = _read_message(text, branch.end(), level + 1, spans) + 1
    end = _END.match(text, position)
    if end is None:
        raise _MalformedError
    return end.end()


def _end_of_argument(text: str, position: int) -> int:
    level = 0
    for found in _specials(text, position):
        level += 1 if text[found] == "{" else -1
        if level == 0:
            return found + 1
    raise _MalformedError
