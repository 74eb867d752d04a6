"""The determiners of the demo corpus, and which of them go with which kind of noun.

Knows words only; inflection.py declines them. Called by noun_phrase.py and by the rules that choose noun phrases.
"""

from dataclasses import dataclass
from enum import IntEnum, auto

from model.demo.chance import spread
from model.demo.inflection import Pattern
from model.demo.lexicon import Kind


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """What stands before adjective and noun in both languages; it may be nothing."""

    english: str
    german: str
    pattern: Pattern
    english_plural: str | None = None
    """The English plural, if it differs from the singular."""
    definite: bool = False
    """Whether the hearer knows what is meant: German puts a known object before the time, a new one after it."""


THE = Determiner("the", "", Pattern.ARTICLE, definite=True)
OWNED = Determiner("", "", Pattern.ARTICLE, definite=True)
"""The German article where English has none: `the man's dog`, der Hund des Mannes."""
THIS = Determiner("this", "dies", Pattern.DER_WORD, "these", definite=True)
EVERY = Determiner("every", "jed", Pattern.DER_WORD)
WHICH = Determiner("which", "welch", Pattern.DER_WORD)
A = Determiner("a", "ein", Pattern.EIN_WORD)
NOT_A = Determiner("a", "kein", Pattern.EIN_WORD, "")
"""An indefinite object of a negated verb: `does not buy a hat`, kauft keinen Hut."""
NOT_ANY = Determiner("", "kein", Pattern.EIN_WORD)
"""The same of what is not counted: `does not drink milk`, trinkt keine Milch."""
NO = Determiner("no", "kein", Pattern.EIN_WORD)
BARE = Determiner("", "", Pattern.FIXED)
NUMBERED = Determiner("", "", Pattern.FIXED)
"""A bare plural that shall get a numeral in front."""
HOW_MANY = Determiner("how many", "wie viel", Pattern.QUANTITY)
MANY = Determiner("many", "viel", Pattern.QUANTITY)
SOME = Determiner("some", "einig", Pattern.QUANTITY)

POSSESSIVES = tuple(
    Determiner(english, german, Pattern.EIN_WORD, definite=True)
    for english, german in (("my", "mein"), ("his", "sein"), ("her", "ihr"), ("our", "unser"), ("their", "ihr"))
)
# No name ends in an s sound, so that every German genitive is the name with an s.
NAMES = ("Anna", "Maria", "Emma", "Julia", "Peter", "Paul", "Martin", "Oskar")
OF_NAMES = tuple(Determiner(f"{name}'s", f"{name}s", Pattern.FIXED, definite=True) for name in NAMES)


@dataclass(frozen=True, slots=True)
class Reference:
    """A way to refer to something: a determiner with a number."""

    determiner: Determiner
    plural: bool = False


class Reading(IntEnum):
    """How much a sentence lets a noun phrase be."""

    DEFINITE = auto()
    """Something known. A negated clause needs it as subject: `A man does not sleep` would be ambiguous."""
    ANY = auto()
    """Something known or new."""
    OBJECT = auto()
    """An object: known or new, and perhaps counted."""
    NEGATED = auto()
    """An object of a negated verb: known, or else German negates it with kein."""
    NEW = auto()
    """What `there is`."""
    PRECISE = auto()
    """What a relative clause follows."""


def _weigh(singular: dict[Determiner, int], plural: dict[Determiner, int]) -> dict[Reference, int]:
    """Gives each determiner its weight in the singular and in the plural."""
    return {Reference(determiner): weight for determiner, weight in singular.items()} | {
        Reference(determiner, plural=True): weight for determiner, weight in plural.items()
    }


_POSSESSIVES = dict.fromkeys(POSSESSIVES, 2)
_KNOWN = _weigh({THE: 40, THIS: 6}, {THE: 12, THIS: 4})
_INDEFINITE = _weigh({A: 20, EVERY: 4}, {MANY: 4, SOME: 4, NUMBERED: 4})
_INDEFINITE_OBJECT = _weigh({A: 28}, {BARE: 10, MANY: 4, SOME: 4, NUMBERED: 12})
_OWN = _weigh(_POSSESSIVES, _POSSESSIVES)
_SOMEBODYS = _weigh({THE: 4} | dict.fromkeys(POSSESSIVES, 6) | dict.fromkeys(OF_NAMES, 1), {})

_WEIGHTS: dict[tuple[Kind, Reading], dict[Reference, int]] = {
    (Kind.COUNTED, Reading.DEFINITE): _KNOWN | _OWN,
    (Kind.COUNTED, Reading.ANY): _KNOWN | _OWN | _INDEFINITE,
    (Kind.COUNTED, Reading.OBJECT): _KNOWN | _OWN | _INDEFINITE_OBJECT,
    (Kind.COUNTED, Reading.NEGATED): _KNOWN | _OWN | _weigh({NOT_A: 24}, {NOT_A: 16}),
    (Kind.COUNTED, Reading.NEW): _weigh({A: 8, NO: 4}, {MANY: 3, SOME: 2, NUMBERED: 4, NO: 3}),
    (Kind.COUNTED, Reading.PRECISE): _KNOWN,
    (Kind.ROLE, Reading.DEFINITE): _KNOWN,
    (Kind.ROLE, Reading.ANY): _KNOWN | _INDEFINITE,
    (Kind.ROLE, Reading.OBJECT): _KNOWN | _weigh({A: 16}, {MANY: 2, SOME: 2, NUMBERED: 2}),
    (Kind.ROLE, Reading.NEGATED): _KNOWN | _weigh({NOT_A: 12}, {}),
    (Kind.ROLE, Reading.PRECISE): _KNOWN,
    (Kind.UNCOUNTED, Reading.DEFINITE): _weigh({THE: 20} | _POSSESSIVES, {}),
    (Kind.UNCOUNTED, Reading.OBJECT): _weigh({THE: 20, BARE: 30} | _POSSESSIVES, {}),
    (Kind.UNCOUNTED, Reading.NEGATED): _weigh({THE: 20, NOT_ANY: 30} | _POSSESSIVES, {}),
    (Kind.UNCOUNTED, Reading.NEW): _weigh({BARE: 2, NO: 1}, {}),
    **{(Kind.RELATIVE, reading): _SOMEBODYS | _OWN for reading in Reading},
    **{(Kind.PARENT, reading): _SOMEBODYS for reading in Reading},
}
REFERENCES = {key: spread(weights) for key, weights in _WEIGHTS.items()}
"""The references to choose from, each as often as it shall occur."""
