"""The rules for clauses: who does what, in which tense, when and where, negated or not.

Knows no word order: that is clause.py, which the sentence rules of grammar.py apply to what is chosen here.
"""

from collections.abc import Sequence

from model.demo.lexicon import ANIMALS, OUTDOORS, Chance, City, Pair, Place
from model.demo.noun_phrase import Nominals, NounPhrase, Reading
from model.demo.predicates import Clause, Predicates, VerbPhrase
from model.demo.times import FREQUENCIES, TIMES
from model.demo.verb_form import Mood, Tense, tenses_of, verb_form
from model.demo.verbs import ANIMAL_VERBS, PERSON_VERBS, PUT, Aspect, Verb

_NEGATIVE_SHARE = 0.18
_TIME_SHARE = 0.35
_FREQUENCY_SHARE = 0.2
_PLACE_SHARE = 0.25
_TENSES_WITH_FREQUENCY = (Tense.PRESENT, Tense.PAST)

_ANIMAL_NOUNS = frozenset(ANIMALS.nouns)


class Clauses:
    """Chooses clauses."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.nominals = Nominals(chance)
        self.predicates = Predicates(chance, self.nominals)

    def brief(self, mood: Mood, verbs: tuple[Verb, ...] = PERSON_VERBS) -> Clause:
        """Returns a clause without adverbials: `My sister does not buy the hat`."""
        negative = self.chance.happens(_NEGATIVE_SHARE)
        subject = self.nominals.subject(Reading.DEFINITE if negative else Reading.ANY)
        return self.about(subject, mood, verbs, negative=negative)

    def full(self, mood: Mood) -> Clause:
        """Returns a clause that may have adverbials: `My sister does not buy the hat at the market today`."""
        return self.with_adverbials(self.brief(mood))

    def about(
        self, subject: NounPhrase, mood: Mood, verbs: tuple[Verb, ...] = PERSON_VERBS, *, negative: bool = False
    ) -> Clause:
        """Returns a clause without adverbials about a given person, or about an animal, which has verbs of its own."""
        verb = self.chance.pick(ANIMAL_VERBS if subject.noun in _ANIMAL_NOUNS else verbs)
        phrase = self.predicates.of_verb(verb, subject, negative=negative)
        return self.of(subject, phrase, mood, negative=negative)

    def of(self, subject: NounPhrase, phrase: VerbPhrase, mood: Mood, *, negative: bool = False) -> Clause:
        """Puts a subject and a verb phrase together in some tense."""
        tense = self.chance.pick(tenses_of(phrase.verb, mood))
        form = verb_form(phrase.verb, tense, subject.agreement, negative=negative)
        return Clause(subject, tense, form, phrase, negative)

    def with_adverbials(self, clause: Clause) -> Clause:
        """Adds a place to some clauses, and a time or frequency to some."""
        clause = self.with_place(clause)
        if clause.phrase.verb.aspect is Aspect.STATE:
            return clause
        if self.chance.happens(_TIME_SHARE):
            return clause._replace(time=self.time(clause))
        frequent = clause.tense in _TENSES_WITH_FREQUENCY and not clause.negative
        if frequent and self.chance.happens(_FREQUENCY_SHARE):
            return clause._replace(frequency=self.chance.pick(FREQUENCIES))
        return clause

    def with_place(self, clause: Clause) -> Clause:
        """Adds a place to some of the clauses that have room for one."""
        if not self.places(clause) or not self.chance.happens(_PLACE_SHARE):
            return clause
        place = self.nominals.place(self.places(clause))
        return clause._replace(phrase=clause.phrase.with_circumstance(place))

    def places(self, clause: Clause) -> Sequence[Place | City]:
        """Returns where the clause can happen: nowhere, if it is a state or has a destination."""
        verb = clause.phrase.verb
        if verb.destinations or verb is PUT or verb.aspect is Aspect.STATE:
            return ()
        return OUTDOORS if clause.subject.noun in _ANIMAL_NOUNS else verb.places

    def time(self, clause: Clause) -> Pair:
        """Returns a time that fits the clause's tense."""
        return self.chance.pick(self.chance.pick(TIMES[clause.tense]))
