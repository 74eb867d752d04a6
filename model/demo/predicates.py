"""Verb phrases with their complements, clauses, and the German word orders.

The German orders differ in the place of the finite verb only:

    verb second   Die Frau macht die Tür heute auf
    verb first    Macht die Frau die Tür heute auf
    verb last     (weil) die Frau die Tür heute aufmacht
"""

from typing import NamedTuple

from model.demo.inflection import Case
from model.demo.lexicon import NOTHING, PEOPLE, Chance, NounClass, Pair, join
from model.demo.noun_phrase import Nominals, NounPhrase, Reading, prepositional
from model.demo.verb_form import Tense, VerbForm
from model.demo.verbs import BE, PUT, Verb


class VerbPhrase(NamedTuple):
    """A verb with its complements. English lists them in one piece; German sorts them around time and negation."""

    verb: Verb
    english: str = ""
    known: str = ""
    """Objects that the hearer can identify: before the time."""
    circumstances: str = ""
    """Manner and place: after the negation."""
    new: str = ""
    """Objects that are new."""
    rest: str = ""
    """All other complements: `auf den Bus`, `nach Wien`, `müde`."""
    negation: str = ""
    """`nicht` in a negated clause, unless `new` already has its kein."""

    def with_object(self, thing: NounPhrase, case: Case) -> "VerbPhrase":
        """Returns the phrase with one more object, at the place that German has for it."""
        english, german = join(self.english, thing.english), thing.german[case]
        if thing.definite:
            return self._replace(english=english, known=join(self.known, german))
        return self._replace(english=english, new=join(self.new, german))

    def with_circumstance(self, circumstance: Pair) -> "VerbPhrase":
        """Returns the phrase with a manner or a place."""
        return self._replace(
            english=join(self.english, circumstance.english),
            circumstances=join(self.circumstances, circumstance.german),
        )

    def with_rest(self, rest: Pair) -> "VerbPhrase":
        """Returns the phrase with one more piece at its end."""
        return self._replace(english=join(self.english, rest.english), rest=join(self.rest, rest.german))


class Clause(NamedTuple):
    """A subject, a finite verb and a verb phrase, in no order yet."""

    subject: NounPhrase
    tense: Tense
    form: VerbForm
    phrase: VerbPhrase
    negative: bool = False
    time: Pair = NOTHING
    frequency: Pair = NOTHING
    """An adverb like `often`: before the English verb, in the place of the time in German."""

    def statement(self) -> Pair:
        """Returns a main clause that starts with its subject."""
        german = self.form.german
        second = join(self.subject.german[Case.NOMINATIVE], german.finite, self._middle(), german.end)
        return Pair(self._english_statement(), second)

    def statement_after(self, first: Pair) -> Pair:
        """Returns a main clause that starts with `first`; the German subject then follows the verb."""
        return Pair(f"{first.english} {self._english_statement()}", f"{first.german} {self._verb_first()}")

    def question(self) -> Pair:
        """Returns a yes-no question."""
        return Pair(self._english_question(), self._verb_first())

    def question_after(self, asked: Pair) -> Pair:
        """Returns a question for `asked`, which is not the subject: `When ...`, `Which book ...`."""
        return Pair(f"{asked.english} {self._english_question()}", f"{asked.german} {self._verb_first()}")

    def subordinate(self) -> Pair:
        """Returns a subordinate clause without its conjunction."""
        last = join(self.subject.german[Case.NOMINATIVE], self._middle(), self.form.german.final)
        return Pair(self._english_statement(), last)

    def _verb_first(self) -> str:
        german = self.form.german
        return join(german.finite, self.subject.german[Case.NOMINATIVE], self._middle(), german.end)

    def _middle(self) -> str:
        phrase = self.phrase
        return join(
            phrase.known,
            self.time.german,
            self.frequency.german,
            phrase.negation,
            phrase.circumstances,
            phrase.new,
            phrase.rest,
        )

    def _english_statement(self) -> str:
        english = self.form.english
        if self.negative:
            verb = join(english.negated_support, english.bare)
        else:
            verb = join(english.helper, self.frequency.english, english.main)
        return join(self.subject.english, verb, self.phrase.english, self.time.english)

    def _english_question(self) -> str:
        english = self.form.english
        adverb = "not" if self.negative else self.frequency.english
        return join(english.support, self.subject.english, adverb, english.bare, self.phrase.english, self.time.english)


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
        """Returns a verb with all its complements."""
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
        """Adds the recipient, if the verb is one of giving."""
        if not phrase.verb.recipients:
            return phrase
        recipient = self._nominals.object_of(subject, phrase.verb.recipients, Reading.DEFINITE)
        return phrase.with_object(recipient, Case.DATIVE)

    def description(self, noun_class: NounClass, subject: NounPhrase, *, negative: bool = False) -> VerbPhrase:
        """Describes the subject, a phrase of the class: `is very old`, `is older than her friend`."""
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
