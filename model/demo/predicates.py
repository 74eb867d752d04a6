"""The rules for verb phrases: which complements a verb gets.

Knows the frames (`buys a hat`, `gives the child a hat`, `waits for the bus`, `goes to the city`), not the word order:
that is clause.py. Called by the sentence rules of grammar.py.
"""

from model.demo.chance import Chance
from model.demo.clause import VerbPhrase
from model.demo.determiners import Reading
from model.demo.inflection import Case
from model.demo.lexicon import PEOPLE, NounClass
from model.demo.nominals import Nominals
from model.demo.noun_phrase import NounPhrase, prepositional
from model.demo.pair import Pair
from model.demo.verbs import BE, PUT, Verb

_MANNER_SHARE = 0.25
_SERVED_SHARE = 0.25
_COMPARISON_SHARE = 0.4
_DEGREE_SHARE = 0.3
_DEGREES = (Pair("very", "sehr"), Pair("too", "zu"))


class Predicates:
    """Chooses verb phrases."""

    def __init__(self, chance: Chance, nominals: Nominals) -> None:
        self._chance = chance
        self._nominals = nominals

    def of_verb(self, verb: Verb, subject: NounPhrase, *, negative: bool = False) -> VerbPhrase:
        """Returns a verb with all that it takes."""
        if verb.objects:
            return self._dealing(verb, subject, negative=negative)
        phrase = VerbPhrase(verb, negation="nicht" if negative else "")
        if verb.manners and self._chance.happens(_MANNER_SHARE):
            phrase = phrase.with_circumstance(self._chance.pick(verb.manners))
        if verb.destinations:
            return phrase.with_rest(self._nominals.destination(verb.destinations))
        return phrase

    def _dealing(self, verb: Verb, subject: NounPhrase, *, negative: bool) -> VerbPhrase:
        """Returns a verb with an object: `helps her`, `waits for her`, `gives her a hat`, `puts a hat on the table`."""
        thing = self._nominals.object_of(subject, verb.objects, Reading.NEGATED if negative else Reading.OBJECT)
        # An indefinite object of a negated verb already has its kein.
        phrase = VerbPhrase(verb, negation="nicht" if negative and thing.definite else "")
        if verb.preposition:
            return phrase.with_rest(prepositional("", verb.preposition, verb.case, thing))
        if verb.recipients:
            phrase = self.with_recipient(phrase, subject)
            # After a recipient even a known object may follow the time, but not `nicht`.
            thing = thing._replace(definite=negative and thing.definite)
        phrase = phrase.with_object(thing, verb.case)
        if verb is PUT:
            return phrase.with_rest(self._nominals.spot(Case.ACCUSATIVE))
        if verb.serves and self._chance.happens(_SERVED_SHARE):
            served = self._nominals.object_of(subject, PEOPLE, Reading.DEFINITE)
            return phrase.with_rest(prepositional("for", "für", Case.ACCUSATIVE, served))
        return phrase

    def with_recipient(self, phrase: VerbPhrase, subject: NounPhrase) -> VerbPhrase:
        """Adds the one who gets something, if the verb is one of giving."""
        if not phrase.verb.recipients:
            return phrase
        recipient = self._nominals.object_of(subject, phrase.verb.recipients, Reading.DEFINITE)
        return phrase.with_object(recipient, Case.DATIVE)

    def description(self, noun_class: NounClass, subject: NounPhrase, *, negative: bool = False) -> VerbPhrase:
        """Says how the subject, a phrase of the class, is: `is very old`, `is older than her friend`."""
        adjective = self._chance.pick(noun_class.adjectives)
        while adjective.english in subject.english:
            adjective = self._chance.pick(noun_class.adjectives)
        said = Pair(adjective.english, adjective.german)
        if adjective.english_comparative and self._chance.happens(_COMPARISON_SHARE):
            other = self._nominals.object_of(subject, (noun_class,), Reading.DEFINITE)
            said = Pair(
                f"{adjective.english_comparative} than {other.english}",
                f"{adjective.german_comparative} als {other.german[Case.NOMINATIVE]}",
            )
        elif self._chance.happens(_DEGREE_SHARE):
            degree = self._chance.pick(_DEGREES)
            said = Pair(f"{degree.english} {said.english}", f"{degree.german} {said.german}")
        return VerbPhrase(BE, negation="nicht" if negative else "").with_rest(said)
