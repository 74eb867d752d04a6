"""Noun phrases: determiners, their choice, and the forms in English and in all four German cases.

Plain phrases are cached, because a corpus repeats them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cache
from itertools import combinations
from typing import NamedTuple

from model.demo.inflection import (
    Agreement,
    Case,
    Gender,
    Pattern,
    contract,
    decline_adjective,
    decline_determiner,
    indefinite_article,
    relative_pronoun,
)
from model.demo.lexicon import (
    ADJECTIVES,
    ANIMALS,
    FURNITURE,
    PEOPLE,
    ROLES,
    SPOTS,
    Adjective,
    Chance,
    City,
    Kind,
    Noun,
    NounClass,
    Pair,
    Place,
    join,
    spread,
)
from model.demo.verb_form import NUMERALS


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """The words before adjective and noun in both languages; may be empty."""

    english: str
    german: str
    pattern: Pattern
    english_plural: str | None = None
    """The English plural, if it differs from the singular."""
    definite: bool = False
    """Whether the hearer can identify the object: German puts a known object before the time, a new one after it."""


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
"""The same for an uncounted noun: `does not drink milk`, trinkt keine Milch."""
NO = Determiner("no", "kein", Pattern.EIN_WORD)
BARE = Determiner("", "", Pattern.FIXED)
NUMBERED = Determiner("", "", Pattern.FIXED)
"""A bare plural for a numeral."""
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
    """The readings that a sentence allows a noun phrase."""

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
    """The antecedent of a relative clause."""


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
"""The references to choose from, repeated by weight."""


class NounPhrase(NamedTuple):
    """A noun phrase or pronoun, with its agreement features."""

    english: str
    german: tuple[str, ...]
    """The four forms, by `Case`."""
    agreement: Agreement = Agreement.THIRD
    gender: Gender = Gender.MASCULINE
    definite: bool = True
    noun: Noun | None = None

    def extended(self, english: str, before: str = "", after: str = "") -> "NounPhrase":
        """Returns the phrase with another English text, and German text before or after each of its forms."""
        return self._replace(english=english, german=tuple([join(before, form, after) for form in self.german]))


@cache
def noun_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun, *, plural: bool = False) -> NounPhrase:
    """Combines a determiner, an optional adjective and a noun."""
    gender = Gender.PLURAL if plural else noun.gender
    return NounPhrase(
        _english_phrase(determiner, adjective, noun, plural=plural),
        tuple(_german_phrase(determiner, adjective, noun, gender, case) for case in Case),
        Agreement.PLURAL if plural else Agreement.THIRD,
        gender,
        determiner.definite,
        noun,
    )


def _english_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun, *, plural: bool) -> str:
    words = join(adjective.english if adjective else "", noun.english_form(plural=plural))
    article = determiner.english
    if plural and determiner.english_plural is not None:
        article = determiner.english_plural
    return join(indefinite_article(words) if article == "a" else article, words)


def _german_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun, gender: Gender, case: Case) -> str:
    return join(
        decline_determiner(determiner.german, determiner.pattern, gender, case),
        decline_adjective(adjective.stem, determiner.pattern, gender, case) if adjective else "",
        noun.german_form(case, plural=gender is Gender.PLURAL),
    )


def counted(numeral: Pair, phrase: NounPhrase) -> NounPhrase:
    """Puts a numeral, which German does not decline, before a bare plural."""
    return phrase.extended(f"{numeral.english} {phrase.english}", before=numeral.german)


def possessed(owner: NounPhrase, phrase: NounPhrase) -> NounPhrase:
    """Adds an owner: `the man's` + `old dog`, `der alte Hund` + `des Mannes`.

    The English phrase has no article.
    """
    return phrase.extended(f"{owner.english}'s {phrase.english}", after=owner.german[Case.GENITIVE])


def both(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Joins two phrases into a plural one."""
    german = tuple(f"{one} und {other}" for one, other in zip(first.german, second.german, strict=True))
    return NounPhrase(f"{first.english} and {second.english}", german, Agreement.PLURAL, Gender.PLURAL)


def prepositional(english: str, german: str, case: Case, phrase: NounPhrase) -> Pair:
    """Puts a preposition before a noun phrase: `in the garden`, `im Garten`."""
    return Pair(join(english, phrase.english), contract(german, phrase.german[case]))


def relative(english: str, antecedent: NounPhrase) -> NounPhrase:
    """Returns the relative pronoun that stands for `antecedent` in its own clause."""
    german = tuple(relative_pronoun(antecedent.gender, case) for case in Case)
    return antecedent._replace(english=english, german=german)


def _pronoun(english: str, german: str, agreement: Agreement) -> NounPhrase:
    """Makes a pronoun from its nominative, accusative and dative; no rule asks for the genitive."""
    return NounPhrase(english, (*german.split(), ""), agreement)


I = _pronoun("I", "ich mich mir", Agreement.FIRST)  # noqa: E741 - the pronoun is written so
HE = _pronoun("he", "er ihn ihm", Agreement.THIRD)
SHE = _pronoun("she", "sie sie ihr", Agreement.THIRD)
WE = _pronoun("we", "wir uns uns", Agreement.PLURAL)
THEY = _pronoun("they", "sie sie ihnen", Agreement.PLURAL)
WHO = _pronoun("who", "wer wen wem", Agreement.THIRD)
THERE = _pronoun("there", "es es es", Agreement.THIRD)
"""The subject of `there is`, es gibt. The English verb agrees with what there is, the German one with es."""

FIRST_PERSONS = (I, WE)
SUBJECT_PRONOUNS = (I, HE, SHE, WE, THEY)
THIRD_PERSON_OBJECTS = (HE._replace(english="him"), SHE._replace(english="her"), THEY._replace(english="them"))
OBJECT_PRONOUNS = (I._replace(english="me"), WE._replace(english="us"), *THIRD_PERSON_OBJECTS)
NAMED_PEOPLE = tuple(NounPhrase(name, (name, name, name, f"{name}s")) for name in NAMES)
COUPLES = tuple(both(one, other) for one, other in combinations(NAMED_PEOPLE, 2))


_ADJECTIVE_SHARE = 0.35
_OWNER_SHARE = 0.1
_READY_SUBJECT_SHARE = 0.4
_READY_OBJECT_SHARE = 0.35
_PLACE_ADJECTIVE_SHARE = 0.2

_READY_SUBJECTS = spread({SUBJECT_PRONOUNS: 6, NAMED_PEOPLE: 3, COUPLES: 1})
_READY_OBJECTS = spread({OBJECT_PRONOUNS: 3, NAMED_PEOPLE: 1})
_OBJECTS_OF_FIRST_PERSONS = spread({THIRD_PERSON_OBJECTS: 3, NAMED_PEOPLE: 1})
_PLACE_DETERMINERS = spread({THE: 10, A: 1, THIS: 1})


def alike(one: NounPhrase, other: NounPhrase) -> bool:
    """Returns whether two phrases share a noun or a name."""
    if one.noun or other.noun:
        return one.noun is other.noun
    return not _names(one).isdisjoint(_names(other))


def _names(phrase: NounPhrase) -> set[str]:
    return {word for word in phrase.english.split() if word in NAMES}


class Nominals:
    """Chooses noun phrases."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def phrase(self, noun_class: NounClass, reading: Reading) -> NounPhrase:
        """Returns a phrase about a noun of the class: `the old man`, `twenty-three apples`, `her milk`."""
        chance = self._chance
        reference = chance.pick(REFERENCES[noun_class.kind, reading])
        determiner = reference.determiner
        noun = chance.pick(noun_class.nouns)
        adjective = chance.pick(noun_class.adjectives) if chance.happens(_ADJECTIVE_SHARE) else None
        ownable = determiner is THE and noun_class.kind is not Kind.ROLE and reading is not Reading.PRECISE
        if ownable and chance.happens(_OWNER_SHARE):
            owner = noun_phrase(THE, None, chance.pick(ROLES.nouns))
            return possessed(owner, noun_phrase(OWNED, adjective, noun, plural=reference.plural))
        phrase = noun_phrase(determiner, adjective, noun, plural=reference.plural)
        return counted(chance.pick(NUMERALS), phrase) if determiner is NUMBERED else phrase

    def subject(self, reading: Reading) -> NounPhrase:
        """Returns a person or an animal as subject of an action."""
        return self._somebody((*PEOPLE, ANIMALS, ANIMALS), reading)

    def person(self, reading: Reading) -> NounPhrase:
        """Returns a person as subject of an action that animals cannot perform."""
        return self._somebody(PEOPLE, reading)

    def _somebody(self, noun_classes: tuple[NounClass, ...], reading: Reading) -> NounPhrase:
        if self._chance.happens(_READY_SUBJECT_SHARE):
            return self._chance.pick(self._chance.pick(_READY_SUBJECTS))
        return self.phrase(self._chance.pick(noun_classes), reading)

    def object_of(self, subject: NounPhrase, noun_classes: tuple[NounClass, ...], reading: Reading) -> NounPhrase:
        """Returns the object of the subject's action, never of its own kind: no `The dog sees a dog`."""
        while True:
            noun_class = self._chance.pick(noun_classes)
            ready_made = noun_class.of_people and reading is not Reading.PRECISE
            if ready_made and self._chance.happens(_READY_OBJECT_SHARE):
                ready = _OBJECTS_OF_FIRST_PERSONS if subject in FIRST_PERSONS else _READY_OBJECTS
                phrase = self._chance.pick(self._chance.pick(ready))
            else:
                phrase = self.phrase(noun_class, reading)
            if not alike(phrase, subject):
                return phrase

    def place(self, places: Sequence[Place | City]) -> Pair:
        """Returns the place of an action."""
        place = self._chance.pick(places)
        if isinstance(place, City):
            return Pair(f"in {place.english}", f"in {place.german}")
        return prepositional(place.english, place.german, Case.DATIVE, self._spatial(place.noun, ADJECTIVES))

    def destination(self, places: Sequence[Place | City]) -> Pair:
        """Returns a destination."""
        place = self._chance.pick(places)
        if isinstance(place, City):
            return Pair(f"to {place.english}", f"nach {place.german}")
        return prepositional("to", place.to, place.case_of_destination, self._spatial(place.noun, ADJECTIVES))

    def spot(self, case: Case) -> Pair:
        """Returns a spot at a piece of furniture: dative for being there, accusative for getting there."""
        preposition = self._chance.pick(SPOTS)
        furniture = self._spatial(self._chance.pick(FURNITURE.nouns), FURNITURE.adjectives)
        return prepositional(preposition.english, preposition.german, case, furniture)

    def _spatial(self, noun: Noun, adjectives: tuple[Adjective, ...]) -> NounPhrase:
        adjective = self._chance.pick(adjectives) if self._chance.happens(_PLACE_ADJECTIVE_SHARE) else None
        return noun_phrase(self._chance.pick(_PLACE_DETERMINERS), adjective, noun)
