"""Noun phrases: determiner, adjective and noun in English and in all four German cases.

Knows how phrases are built, not which are chosen: that is nominals.py. The plain ones are cached, since a corpus uses
them again and again.
"""

from functools import cache
from itertools import combinations
from typing import NamedTuple

from model.demo.adjectives import Adjective
from model.demo.determiners import NAMES, Determiner
from model.demo.inflection import (
    Agreement,
    Case,
    Gender,
    contract,
    decline_adjective,
    decline_determiner,
    indefinite_article,
    relative_pronoun,
)
from model.demo.lexicon import Noun
from model.demo.pair import Pair, join


class NounPhrase(NamedTuple):
    """A noun phrase or pronoun, with what the words around it need to know."""

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
    """Puts a determiner, an adjective (or none) and a noun together."""
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
    """Says whose: `the man's` + `old dog`, `der alte Hund` + `des Mannes`. The English phrase comes without article."""
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
