"""Formatting of a sentence as in its text: letter case, and punctuation at the end."""

from collections.abc import Callable
from dataclasses import replace

from dragoman.serve.protect.alignment import Alignment, Span, find_final
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder

# Marks of other scripts, and the mark that means the same in Latin script.
_SAME = str.maketrans("\u3002\uff0e\u0964\uff01\uff1f\u061f\uff1a\uff1b\u061b\uff0c\u3001\u060c", "...!??:;;,,,")
# Fewer capital letters may be an abbreviation.
_MIN_CAPITALS = 4
_PLACEHOLDERS = Finder(KINDS)


def format_as(source: str, translation: str) -> str:
    """Returns the translation with the letter case and the final punctuation of its text.

    The case of the first letter follows that of the text. A text in capitals has a translation in capitals.
    """
    translation = _with_end(source, translation)
    letters = [item for item in _changed(source, str, placeholder="") if item.isalpha()]
    if len(letters) >= _MIN_CAPITALS and all(letter.isupper() for letter in letters):
        return _changed(translation, _upper)
    return _with_start(source, translation)


def fit(alignment: Alignment, characters: int) -> Alignment:
    """Returns the alignment of a translation that was cut or extended to a number of characters."""
    spans = (Span(min(item.start, characters), min(item.end, characters)) for item in alignment.target)
    return replace(alignment, target=tuple(spans))


def _with_end(source: str, translation: str) -> str:
    start, end = find_final(translation)
    wanted = source[slice(*find_final(source))]
    if wanted.translate(_SAME) == translation[start:end].translate(_SAME):
        return translation
    return f"{translation[:start]}{wanted}"


def _with_start(source: str, translation: str) -> str:
    offset = _first_letter(translation)
    letter = _first_letter(source)
    if offset is None or letter is None or _starts_with_placeholder(source) or _starts_with_placeholder(translation):
        return translation
    change = _upper if source[letter].isupper() else _lower if source[letter].islower() else str
    return f"{translation[:offset]}{change(translation[offset])}{translation[offset + 1 :]}"


def _first_letter(text: str) -> int | None:
    """Returns the offset of the first letter, if no digit comes before it."""
    offset = next((offset for offset, character in enumerate(text) if character.isalnum()), None)
    return offset if offset is not None and text[offset].isalpha() else None


def _starts_with_placeholder(text: str) -> bool:
    first = next(_PLACEHOLDERS.find(text), None)
    return first is not None and not any(map(str.isalnum, text[: first.start]))


def _changed(text: str, change: Callable[[str], str], placeholder: str | None = None) -> str:
    """Returns the text with other characters outside of its placeholders."""
    parts, position = list[str](), 0
    for item in _PLACEHOLDERS.find(text):
        parts += map(change, text[position : item.start])
        parts.append(text[item.start : item.end] if placeholder is None else placeholder)
        position = item.end
    return "".join((*parts, *map(change, text[position:])))


def _upper(character: str) -> str:
    # One character each, so that offsets stay.
    upper = "\u1e9e" if character == "\u00df" else character.upper()
    return upper if len(upper) == 1 else character


def _lower(character: str) -> str:
    lower = character.lower()
    return lower if len(lower) == 1 else character
