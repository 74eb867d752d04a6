"""Makes variants of pairs, from which a model learns to keep placeholders, tags and capitals.

A variant changes both sides in the same way. The random numbers of a pair are a function of its text, so that a corpus
with other pairs has the same variants of this one.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from random import Random

from dragoman.model.data.sources.cleaning import PLACEHOLDER

Pair = tuple[str, str]
# The share of pairs with a variant, of those that a kind of variant applies to.
SHARE = 0.15
# The share of tags around the whole text.
WHOLE_SHARE = 0.5
MAX_CAPITAL_CHARACTERS = 60

# Spellings of a placeholder, for one kind of program each: NAME is a name, 0 and 1 a number from 0 or from 1.
_SPELLINGS = (
    *("{0}", "%1$s", "%1", "%s", "%d", "{NAME}", "{{NAME}}", "{{ NAME }}"),
    *("%(NAME)s", "${NAME}", "{$NAME}", "$(NAME)", "%NAME%", "$NAME"),
)
_NAMES = ("name", "count", "file", "user", "value", "title", "date", "path", "number", "item")
_TAGS = ("b", "i", "em", "strong", "a", "code", "span")
# Values that both sides spell in the same way: numbers, and names with a capital.
_VALUE = re.compile(r"(?<![\w.,:/-])(?:\d+(?:[.,]\d+)?|[A-Z][A-Za-z]+\d*)(?![\w/-]|[.,:]\w)")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def variants(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yields a variant of some pairs."""
    for pair in pairs:
        random = Random(sha256("\t".join(pair).encode()).digest())
        kinds = [variant for make in _KINDS if (variant := make(pair, random)) is not None]
        if kinds and random.random() < SHARE:
            yield random.choice(kinds)


def respelled(pair: Pair, random: Random) -> Pair | None:
    """Spells the placeholders of a pair as another kind of program does."""
    found = dict.fromkeys(item for item in PLACEHOLDER.findall(pair[0]) if not _is_literal(item))
    if not found:
        return None
    spelling, first = random.choice(_SPELLINGS), random.randrange(len(_NAMES))
    new = {result: _spell(spelling, number, first) for number, result in enumerate(found)}
    return _replaced(pair[0], new), _replaced(pair[1], new)


def with_placeholder(pair: Pair, random: Random) -> Pair | None:
    """Replaces a number or a name that both sides have once by a placeholder."""
    value = _shared_value(pair, random)
    if value is None:
        return None
    new = _spell(random.choice(_SPELLINGS), 0, random.randrange(len(_NAMES)))
    return _replace_value(pair[0], value, new), _replace_value(pair[1], value, new)


def with_tag(pair: Pair, random: Random) -> Pair | None:
    """Encloses the whole text, or a number or a name that both sides have once, in a tag."""
    if _TAG.search(pair[0]):
        return None
    tag = random.choice(_TAGS)
    value = _shared_value(pair, random)
    if value is None or random.random() < WHOLE_SHARE:
        return f"<{tag}>{pair[0]}</{tag}>", f"<{tag}>{pair[1]}</{tag}>"
    new = f"<{tag}>{value}</{tag}>"
    return _replace_value(pair[0], value, new), _replace_value(pair[1], value, new)


def in_capitals(pair: Pair, random: Random) -> Pair | None:  # noqa: ARG001 - nothing is left to chance
    """Writes a short text without placeholders in capitals."""
    if len(pair[0]) > MAX_CAPITAL_CHARACTERS or PLACEHOLDER.search(pair[0]):
        return None
    return pair[0].upper(), pair[1].upper()


_KINDS = (respelled, with_placeholder, with_tag, in_capitals)


def _spell(spelling: str, number: int, first: int) -> str:
    """Returns a placeholder by its number in a message. The names of a message begin with that at `first`."""
    if "NAME" in spelling:
        return spelling.replace("NAME", _NAMES[(first + number) % len(_NAMES)])
    return spelling.replace("1", str(number + 1)).replace("0", str(number))


def _is_literal(placeholder: str) -> bool:
    """Returns whether a part of a text is no place for a value: a tag, an address, a percent sign."""
    return placeholder.startswith(("<", "http")) or placeholder == "%%"


def _replaced(text: str, new: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda found: new.get(found[0], found[0]), text)


def _shared_value(pair: Pair, random: Random) -> str | None:
    """Returns a value that both sides have exactly once."""
    if PLACEHOLDER.search(pair[0]):
        return None
    sides = [_VALUE.findall(text) for text in pair]
    shared = [value for value in sides[0] if sides[0].count(value) == sides[1].count(value) == 1]
    return random.choice(shared) if shared else None


def _replace_value(text: str, value: str, new: str) -> str:
    return _VALUE.sub(lambda found: new if found[0] == value else found[0], text)
