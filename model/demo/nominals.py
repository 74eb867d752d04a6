"""The rules for noun phrases and places: which determiner, adjective and noun a sentence gets.

Knows what is natural, not how it is inflected: that is noun_phrase.py. Called by predicates.py and grammar.py.
"""

from collections.abc import Sequence

from model.demo.adjectives import Adjective
from model.demo.chance import Chance, spread
from model.demo.determiners import NAMES, NUMBERED, OWNED, REFERENCES, THE, THIS, A, Reading
from model.demo.inflection import Case
from model.demo.lexicon import ANIMALS, FURNITURE, PEOPLE, ROLES, Kind, Noun, NounClass
from model.demo.noun_phrase import (
    COUPLES,
    FIRST_PERSONS,
    NAMED_PEOPLE,
    OBJECT_PRONOUNS,
    SUBJECT_PRONOUNS,
    THIRD_PERSON_OBJECTS,
    NounPhrase,
    counted,
    noun_phrase,
    possessed,
    prepositional,
)
from model.demo.pair import Pair
from model.demo.places import ADJECTIVES, SPOTS, City, Place
from model.demo.times import NUMERALS

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
    """Tells whether two phrases have the same noun, or a name in common."""
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
        """Returns a person or an animal that does something."""
        return self._somebody((*PEOPLE, ANIMALS, ANIMALS), reading)

    def person(self, reading: Reading) -> NounPhrase:
        """Returns a person who does something that animals do not."""
        return self._somebody(PEOPLE, reading)

    def _somebody(self, noun_classes: tuple[NounClass, ...], reading: Reading) -> NounPhrase:
        if self._chance.happens(_READY_SUBJECT_SHARE):
            return self._chance.pick(self._chance.pick(_READY_SUBJECTS))
        return self.phrase(self._chance.pick(noun_classes), reading)

    def object_of(self, subject: NounPhrase, noun_classes: tuple[NounClass, ...], reading: Reading) -> NounPhrase:
        """Returns what the subject deals with, which is never the like of itself: no `The dog sees a dog`."""
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
        """Returns where something happens."""
        place = self._chance.pick(places)
        if isinstance(place, City):
            return Pair(f"in {place.english}", f"in {place.german}")
        return prepositional(place.english, place.german, Case.DATIVE, self._spatial(place.noun, ADJECTIVES))

    def destination(self, places: Sequence[Place | City]) -> Pair:
        """Returns where somebody goes."""
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
