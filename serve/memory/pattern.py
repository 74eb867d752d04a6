"""Patterns: what two texts have in common that one translation fits.

A pattern is a text in NFC with single spaces, with slots in place of its numbers, placeholders and tags. Two texts are
equal if their patterns are, but for letter case. The translation of an equal text has the values of that text.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dragoman.serve.protect.placeholders.patterns import KINDS, Finder

_NUMBER, _KEPT = "0", "\ufffc"
# The search skips text without digits faster since the first digit stands alone.
_NUMBERS = re.compile(r"(\d\d*+(?:[.,:]\d+)*+)")
_TAGS = re.compile(r"""(<(?:!--(?:(?!<!--|-->).)*+--|(?:[^<>"']|"[^"]*+"|'[^']*+')*+)>)""", re.DOTALL)
# A text without these has no placeholder and no tag.
_PLACEHOLDER = re.compile(r"[<{$#%:/@\\]|www\.")
_ALL, _UNTAGGED = Finder(KINDS), Finder(KINDS[1:])


class Part(NamedTuple):
    """A part of a text; `slot` is empty for words."""

    text: str
    slot: str = ""


class Pattern(NamedTuple):
    """A text by its pattern: `shape` with letter case, and the values of its slots, in their order."""

    shape: str
    values: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The pattern without letter case."""
        return self.shape.casefold()


def read_pattern(text: str, *, markup: bool = False) -> Pattern:
    """Returns the pattern of a text; with `markup`, the text has references, and its tags are those of HTML or XML."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    if not (_PLACEHOLDER.search(text) or (markup and "&" in text)):
        values = tuple(_NUMBERS.findall(text))
        return Pattern(_NUMBERS.sub(_NUMBER, text) if values else text, values)
    parts = list(_marked_parts(text) if markup else slots(text))
    shape = "".join(part.slot or part.text for part in parts)
    return Pattern(shape, tuple(part.text for part in parts if part.slot))


def fill(source: Pattern, target: str, query: Pattern, escape: Callable[[str], str] = str) -> str | None:
    """Returns the translation of a text, given another one of the same pattern and its translation.

    None if a value of the text that differs, a placeholder or a tag has no place of its own in the translation, or if
    numbers have other separators, tags nest in another way, or letter case differs by more than the first letter or
    capitals throughout. `escape` spells words in the markup of the text.
    """
    change = _change_case(source.shape, query.shape)
    if change is None or len(source.values) != len(query.values):
        return None
    wanted = dict(zip(source.values, query.values, strict=True))
    if any(wanted[own] != value for own, value in zip(source.values, query.values, strict=True)):
        return None
    parts = list(slots(target))
    found = [part.text for part in parts if part.slot]
    if not _has_places(source.values, wanted, found):
        return None
    if _unmatched_tags(query.values) != _unmatched_tags(wanted.get(text, text) for text in found):
        return None
    texts = list[str]()
    for part in parts:
        value = wanted.get(part.text, part.text) if part.slot else change(part.text, not texts)
        is_tag = part.slot == _KEPT and value.startswith("<") and part.text in wanted
        texts.append(value if is_tag else escape(value))
    return "".join(texts)


def _has_places(values: Sequence[str], wanted: Mapping[str, str], found: Sequence[str]) -> bool:
    """Returns whether the slots of a translation fit those of its text, whose values change to others."""
    counts, places = Counter(values), Counter(found)
    for own, value in wanted.items():
        is_number = _NUMBERS.fullmatch(own)
        if is_number and re.sub(r"\d+", "0", own) != re.sub(r"\d+", "0", value):
            return False
        if (own != value or not is_number) and places[own] != counts[own]:
            return False
    return all(text in counts for text in found if text.startswith("<"))


def _unmatched_tags(values: Iterable[str]) -> list[str]:
    """Returns the tags without a partner that nests, in their order."""
    left = list[str]()
    for tag in values:
        start = rf"<{re.escape(tag[2:-1].strip())}[\s>]"
        if tag.startswith("</") and left and re.match(start, left[-1], re.IGNORECASE):
            left.pop()
        elif tag.startswith("<") and not tag.endswith("/>"):
            left.append(tag)
    return left


def slots(text: str, finder: Finder = _ALL) -> Iterator[Part]:
    """Yields the parts of a text: its words, and its numbers, placeholders and tags."""
    position = 0
    for placeholder in finder.find(text) if _PLACEHOLDER.search(text) else ():
        yield from _number_parts(text[position : placeholder.start])
        yield Part(text[placeholder.start : placeholder.end], _KEPT)
        position = placeholder.end
    yield from _number_parts(text[position:])


def _number_parts(text: str) -> Iterator[Part]:
    for index, part in enumerate(_NUMBERS.split(text)):
        if part:
            yield Part(part, _NUMBER if index % 2 else "")


def _marked_parts(text: str) -> Iterator[Part]:
    for index, part in enumerate(_TAGS.split(text)):
        yield from (Part(part, _KEPT),) if index % 2 else slots(html.unescape(part), _UNTAGGED)


def _change_case(source: str, query: str) -> Callable[[str, bool], str] | None:
    """Returns what changes the case of words of a translation, given whether they begin it; None: nothing fits."""
    if source == query or (source[1:] == query[1:] and query[:1].islower()):
        return lambda words, _: words
    if source[1:] == query[1:]:
        return lambda words, first: f"{words[:1].upper()}{words[1:]}" if first else words
    if query.isupper():
        return lambda words, _: words.upper()
    return None
