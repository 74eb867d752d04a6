"""The rules for sentences of two clauses: conjunctions, reported facts and relative clauses.

Shows the verb-final order of German subordinate clauses. The clauses are brief, so that the sentences stay short.
Called by grammar.py, which weighs these rules.
"""

from model.demo.clauses import Clauses
from model.demo.lexicon import ANIMALS, CHILDREN, FRUIT, ROLES, TEXTS, THINGS, NounClass, Pair, sentence
from model.demo.noun_phrase import NounPhrase, Reading, alike, relative
from model.demo.predicates import Clause, VerbPhrase
from model.demo.verb_form import Mood
from model.demo.verbs import DEALINGS, REPORTS

_COORDINATORS = (Pair(" and", " und"), Pair(", but", ", aber"))
_BECAUSE, _ALTHOUGH, _IF = Pair("because", "weil"), Pair("although", "obwohl"), Pair("if", "wenn")
_SUBORDINATORS = (
    (_BECAUSE, Mood.PRESENT, Mood.PRESENT),
    (_BECAUSE, Mood.PAST, Mood.PAST),
    (_ALTHOUGH, Mood.PRESENT, Mood.PRESENT),
    (_ALTHOUGH, Mood.PAST, Mood.PAST),
    (_IF, Mood.CONSEQUENCE, Mood.CONDITION),
)
"""Conjunctions, each with the moods of the main and of the subordinate clause."""
_MOODS = (Mood.PRESENT, Mood.PRESENT, Mood.PAST)
_NEGATIVE_REPORT_SHARE = 0.15
_ACTING = (ROLES, CHILDREN, ANIMALS)
_MODIFIED = (ROLES, CHILDREN, ANIMALS, THINGS, TEXTS, FRUIT)
_MODIFIED_OBJECTS = tuple(
    (verb, noun_class) for verb in DEALINGS for noun_class in verb.objects if noun_class in _MODIFIED
)
_VERBS_UPON = {
    noun_class: tuple(verb for verb in DEALINGS if noun_class in verb.objects)
    for noun_class in _MODIFIED
    if noun_class not in _ACTING
}


class Compounds:
    """Makes sentences of two clauses."""

    def __init__(self, clauses: Clauses) -> None:
        self._clauses = clauses
        self._chance = clauses.chance
        self._nominals = clauses.nominals

    def coordinated(self) -> Pair:
        """Links two main clauses: `Anna sings, but Peter works.`, Anna singt, aber Peter arbeitet."""
        mood = self._chance.pick(_MOODS)
        one = self._clauses.brief(mood)
        first, second = one.statement(), self._another(one, mood).statement()
        link = self._chance.pick(_COORDINATORS)
        return sentence(
            Pair(f"{first.english}{link.english} {second.english}", f"{first.german}{link.german} {second.german}")
        )

    def subordinate_last(self) -> Pair:
        """Gives a reason or condition: `Anna sings because Peter calls her.`, Anna singt, weil Peter sie anruft."""
        link, main_mood, mood = self._chance.pick(_SUBORDINATORS)
        one = self._clauses.brief(main_mood)
        main, reason = one.statement(), self._another(one, mood).subordinate()
        return sentence(
            Pair(
                f"{main.english} {link.english} {reason.english}",
                f"{main.german}, {link.german} {reason.german}",
            )
        )

    def subordinate_first(self) -> Pair:
        """Puts it first: `If Peter calls her, Anna sings.`, Wenn Peter sie anruft, singt Anna."""
        link, main_mood, mood = self._chance.pick(_SUBORDINATORS)
        one = self._clauses.brief(mood)
        reason = one.subordinate()
        first = Pair(f"{link.english} {reason.english},", f"{link.german} {reason.german},")
        return sentence(self._another(one, main_mood).statement_after(first))

    def reported(self) -> Pair:
        """Reports a fact: `Anna knows that Peter sings today.`, Anna weiß, dass Peter heute singt."""
        negative = self._chance.happens(_NEGATIVE_REPORT_SHARE)
        subject = self._nominals.person(Reading.DEFINITE if negative else Reading.ANY)
        phrase = VerbPhrase(self._chance.pick(REPORTS), negation="nicht" if negative else "")
        mood = self._chance.pick(_MOODS)
        one = self._clauses.of(subject, phrase, mood, negative=negative)
        main, fact = one.statement(), self._clauses.with_adverbials(self._another(one, mood)).subordinate()
        return sentence(Pair(f"{main.english} that {fact.english}", f"{main.german}, dass {fact.german}"))

    def subject_with_relative(self) -> Pair:
        """Tells somebody apart: `The man who sings is tired.`, Der Mann, der singt, ist müde."""
        noun_class, mood = self._chance.pick(_MODIFIED), self._chance.pick(_MOODS)
        phrase = self._nominals.phrase(noun_class, Reading.PRECISE)
        description = self._clauses.predicates.description(noun_class, phrase)
        modifier = self._relative_clause(noun_class, phrase, mood)
        subject = phrase._replace(
            english=f"{phrase.english} {modifier.english}",
            german=tuple([f"{form}, {modifier.german}," for form in phrase.german]),
        )
        return sentence(self._clauses.of(subject, description, mood).statement())

    def object_with_relative(self) -> Pair:
        """Puts the relative clause last: `Anna calls the man who sleeps.`, Anna ruft den Mann an, der schläft."""
        mood = self._chance.pick(_MOODS)
        subject = self._nominals.person(Reading.DEFINITE)
        verb, noun_class = self._chance.pick(_MODIFIED_OBJECTS)
        phrase = self._nominals.object_of(subject, (noun_class,), Reading.PRECISE)
        main = self._clauses.of(subject, VerbPhrase(verb).with_object(phrase, verb.case), mood).statement()
        modifier = self._relative_clause(noun_class, phrase, mood)
        return sentence(Pair(f"{main.english} {modifier.english}", f"{main.german}, {modifier.german}"))

    def _another(self, clause: Clause, mood: Mood) -> Clause:
        """Returns a clause about somebody else, or about the same by a pronoun: no `Anna sings because Anna works`."""
        while True:
            other = self._clauses.brief(mood)
            if not alike(other.subject, clause.subject):
                return other

    def _relative_clause(self, noun_class: NounClass, phrase: NounPhrase, mood: Mood) -> Pair:
        """Says what a person or an animal does, or what somebody does to a thing."""
        pronoun = relative("who" if noun_class.of_people else "that", phrase)
        if noun_class in _ACTING:
            return self._clauses.with_place(self._clauses.about(pronoun, mood)).subordinate()
        verb = self._chance.pick(_VERBS_UPON[noun_class])
        clause = self._clauses.of(self._nominals.person(Reading.DEFINITE), VerbPhrase(verb), mood).subordinate()
        return Pair(f"{pronoun.english} {clause.english}", f"{pronoun.german[verb.case]} {clause.german}")
