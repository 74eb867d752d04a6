"""The rules for sentences of one main clause that state something.

Shows the verb-second order, with the subject or something else in front, and descriptions, ages, prices and `there is`.
Called by grammar.py, which weighs these rules.
"""

from model.demo.clause import Clause, VerbPhrase
from model.demo.clauses import Clauses
from model.demo.determiners import Reading
from model.demo.inflection import Agreement, Case
from model.demo.lexicon import (
    ANIMALS,
    CHILDREN,
    DRINKS,
    FRUIT,
    FURNITURE,
    MEALS,
    PARENTS,
    PEOPLE,
    RELATIVES,
    ROLES,
    TEXTS,
    THINGS,
    VEHICLES,
)
from model.demo.noun_phrase import THERE
from model.demo.pair import Pair, sentence
from model.demo.places import AT_HOME, OUTDOORS, TRADING
from model.demo.times import AGES_OF_ADULTS, AGES_OF_CHILDREN, PRICES
from model.demo.verb_form import Mood, VerbForm, tenses_of, verb_form
from model.demo.verbs import BE, COST, EXIST, PERSON_EVENTS

_DESCRIBED = (*PEOPLE, ANIMALS, ANIMALS, THINGS, THINGS, THINGS, TEXTS, FRUIT, FURNITURE, VEHICLES)
_AGED = (
    (ROLES, AGES_OF_ADULTS),
    (RELATIVES, AGES_OF_ADULTS),
    (PARENTS, AGES_OF_ADULTS),
    (CHILDREN, AGES_OF_CHILDREN),
    (ANIMALS, AGES_OF_CHILDREN),
)
_PRICED = (THINGS, THINGS, THINGS, TEXTS, FURNITURE, FRUIT)
_EXISTING = (
    (ANIMALS, OUTDOORS),
    (THINGS, TRADING),
    (FRUIT, TRADING),
    (FURNITURE, AT_HOME),
    (MEALS, AT_HOME),
    (DRINKS, AT_HOME),
)
_LEFT_LYING = (THINGS, TEXTS, ANIMALS)
_PLACE_FIRST_SHARE = 0.25
_NEGATIVE_SHARE = 0.2
_QUESTION_SHARE = 0.25


class Statements:
    """Makes statements, and the questions that ask for the same."""

    def __init__(self, clauses: Clauses) -> None:
        self._clauses = clauses
        self._chance = clauses.chance
        self._nominals = clauses.nominals

    def plain(self) -> Pair:
        """Puts the subject first: `Anna buys a red hat today.`, Anna kauft heute einen roten Hut."""
        return sentence(self._clauses.full(Mood.ANY).statement())

    def fronted(self) -> Pair:
        """Puts time or place first, in German then the verb: `Today Anna buys a hat.`, Heute kauft Anna einen Hut."""
        clause = self._clauses.brief(Mood.ANY, PERSON_EVENTS)
        places = self._clauses.places(clause)
        if places and self._chance.happens(_PLACE_FIRST_SHARE):
            return sentence(clause.statement_after(self._nominals.place(places)))
        return sentence(self._clauses.with_place(clause).statement_after(self._clauses.time(clause)))

    def description(self) -> Pair:
        """Says how something is: `The hat is not cheaper than the coat.`, Der Hut ist nicht billiger als der Mantel."""
        noun_class = self._chance.pick(_DESCRIBED)
        negative = self._chance.happens(_NEGATIVE_SHARE)
        subject = self._nominals.phrase(noun_class, Reading.DEFINITE)
        phrase = self._clauses.predicates.description(noun_class, subject, negative=negative)
        return sentence(self._clauses.of(subject, phrase, Mood.ANY, negative=negative).statement())

    def location(self) -> Pair:
        """Says or asks where something is: `The key is under the table.`, Der Schlüssel ist unter dem Tisch."""
        subject = self._nominals.phrase(self._chance.pick(_LEFT_LYING), Reading.DEFINITE)
        spot = self._nominals.spot(Case.DATIVE)
        clause = self._clauses.of(subject, VerbPhrase(BE).with_rest(spot), Mood.ANY)
        return self._told_or_asked(clause, Pair("where", "wo"))

    def age(self) -> Pair:
        """Says or asks how old somebody is: `My son is forty years old.`, Mein Sohn ist vierzig Jahre alt."""
        noun_class, ages = self._chance.pick(_AGED)
        subject = self._nominals.phrase(noun_class, Reading.DEFINITE)
        phrase = VerbPhrase(BE).with_rest(self._chance.pick(ages))
        return self._told_or_asked(self._clauses.of(subject, phrase, Mood.ANY), Pair("how old", "wie alt"))

    def price(self) -> Pair:
        """Says or asks what something costs: `This old book costs ten euros.`, Dieses alte Buch kostet zehn Euro."""
        subject = self._nominals.phrase(self._chance.pick(_PRICED), Reading.DEFINITE)
        phrase = VerbPhrase(COST).with_rest(self._chance.pick(PRICES))
        return self._told_or_asked(self._clauses.of(subject, phrase, Mood.PRESENT), Pair("how much", "wie viel"))

    def _told_or_asked(self, clause: Clause, asked: Pair) -> Pair:
        """Says the clause, or leaves out its complement and asks for it."""
        if self._chance.happens(_QUESTION_SHARE):
            return sentence(clause._replace(phrase=VerbPhrase(clause.phrase.verb)).question_after(asked), "?")
        return sentence(clause.statement())

    def existence(self) -> Pair:
        """Says or asks what there is: `There is no milk in the house.`, Im Haus gibt es keine Milch."""
        noun_class, places = self._chance.pick(_EXISTING)
        thing, place = self._nominals.phrase(noun_class, Reading.NEW), self._nominals.place(places)
        tense = self._chance.pick(tenses_of(EXIST, Mood.ANY))
        english = verb_form(EXIST, tense, thing.agreement).english
        german = verb_form(EXIST, tense, Agreement.THIRD).german
        clause = Clause(THERE, tense, VerbForm(english, german), VerbPhrase(EXIST).with_object(thing, Case.ACCUSATIVE))
        # German puts the place first (or early, in a question), English puts it last.
        if self._chance.happens(_QUESTION_SHARE):
            german_question = clause._replace(phrase=clause.phrase._replace(known=place.german)).question().german
            return sentence(Pair(f"{clause.question().english} {place.english}", german_question), "?")
        return sentence(Pair(f"{clause.statement().english} {place.english}", clause.statement_after(place).german))
