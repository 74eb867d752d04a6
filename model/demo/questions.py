"""The rules for questions: yes-no questions and questions that start with a question word.

Shows English do-support and the German verb in first or second place. Called by grammar.py, which weighs these rules.
"""

from model.demo.clause import VerbPhrase
from model.demo.clauses import Clauses
from model.demo.determiners import HOW_MANY, WHICH, Reading, Reference
from model.demo.lexicon import Kind
from model.demo.noun_phrase import WHO, noun_phrase
from model.demo.pair import Pair, join, sentence
from model.demo.verb_form import Mood
from model.demo.verbs import ACTIVITIES, DEALINGS, GIVINGS, MOTIONS, PERSON_EVENTS, PREPOSITIONAL_DEALINGS, Verb

_ASKED_FOR_OBJECT = (*DEALINGS, *GIVINGS, *(verb for verb in PREPOSITIONAL_DEALINGS if verb.takes_people))
_ASKED_FOR_PLACE = (*ACTIVITIES, *MOTIONS)
_ASKED_FOR_CHOICE = tuple(
    (verb, noun_class)
    for verb in (*DEALINGS, *GIVINGS)
    for noun_class in verb.objects
    if noun_class.kind in (Kind.COUNTED, Kind.ROLE)
)
_CHOICES = (Reference(WHICH), Reference(WHICH, plural=True), Reference(HOW_MANY, plural=True))
_ADJECTIVE_SHARE = 0.3


class Questions:
    """Makes questions."""

    def __init__(self, clauses: Clauses) -> None:
        self._clauses = clauses
        self._chance = clauses.chance
        self._nominals = clauses.nominals

    def yes_no(self) -> Pair:
        """Asks for yes or no: `Does Anna buy a hat today?`, Kauft Anna heute einen Hut?"""
        subject = self._nominals.subject(Reading.DEFINITE)
        return sentence(self._clauses.with_adverbials(self._clauses.about(subject, Mood.ANY)).question(), "?")

    def subject(self) -> Pair:
        """Asks for the subject, in the order of a statement: `Who buys a hat today?`, Wer kauft heute einen Hut?"""
        return sentence(self._clauses.with_adverbials(self._clauses.about(WHO, Mood.ANY)).statement(), "?")

    def object(self) -> Pair:
        """Asks for the object, in its case: `Who does Anna wait for?`, Auf wen wartet Anna?"""
        verb = self._chance.pick(_ASKED_FOR_OBJECT)
        pronoun = WHO.german[verb.case] if verb.takes_people else "was"
        asked = Pair("who" if verb.takes_people else "what", join(verb.preposition, pronoun))
        return self._about_object(verb, asked)

    def choice(self) -> Pair:
        """Asks for one of several, or their number: `Which red hat does Anna buy?`, Welchen roten Hut kauft Anna?"""
        verb, noun_class = self._chance.pick(_ASKED_FOR_CHOICE)
        reference = self._chance.pick(_CHOICES)
        adjective = self._chance.pick(noun_class.adjectives) if self._chance.happens(_ADJECTIVE_SHARE) else None
        noun = self._chance.pick(noun_class.nouns)
        asked = noun_phrase(reference.determiner, adjective, noun, plural=reference.plural)
        return self._about_object(verb, Pair(asked.english, asked.german[verb.case]))

    def _about_object(self, verb: Verb, asked: Pair) -> Pair:
        subject = self._nominals.person(Reading.DEFINITE)
        phrase = self._clauses.predicates.with_recipient(VerbPhrase(verb), subject)
        return sentence(self._clauses.of(subject, phrase, Mood.ANY).question_after(asked), "?")

    def time(self) -> Pair:
        """Asks for the time: `When does Anna buy the hat?`, Wann kauft Anna den Hut?"""
        clause = self._clauses.about(self._nominals.subject(Reading.DEFINITE), Mood.DATED, PERSON_EVENTS)
        return sentence(clause.question_after(Pair("when", "wann")), "?")

    def reason(self) -> Pair:
        """Asks for the reason: `Why does Anna not buy the hat?`, Warum kauft Anna den Hut nicht?"""
        return sentence(self._clauses.full(Mood.ANY).question_after(Pair("why", "warum")), "?")

    def place(self) -> Pair:
        """Asks for the place, Wo arbeitet Anna?, or for the destination: `Where does Anna go?`, Wohin geht Anna?"""
        verb = self._chance.pick(_ASKED_FOR_PLACE)
        clause = self._clauses.of(self._nominals.person(Reading.DEFINITE), VerbPhrase(verb), Mood.ANY)
        return sentence(clause.question_after(Pair("where", "wohin" if verb.destinations else "wo")), "?")
