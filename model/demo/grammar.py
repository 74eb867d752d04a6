"""The demo grammar: all sentence rules with their weights. One call makes one sentence pair.

The grammar is a function: each of its English sentences has exactly one German translation, because no word of the
lexicon is ambiguous where it can stand, and no rule makes a choice that only German shows. Called by corpus.py.

The rules for questions: yes-no questions and questions that start with a question word.

Shows English do-support and the German verb in first or second place. Called by grammar.py, which weighs these rules.

The rules for sentences of one main clause that state something.

Shows the verb-second order, with the subject or something else in front, and descriptions, ages, prices and `there is`.
Called by grammar.py, which weighs these rules.
"""

from model.demo.clauses import Clauses
from model.demo.compounds import Compounds
from model.demo.inflection import Agreement, Case
from model.demo.lexicon import (
    ANIMALS,
    AT_HOME,
    CHILDREN,
    DRINKS,
    FRUIT,
    FURNITURE,
    MEALS,
    OUTDOORS,
    PARENTS,
    PEOPLE,
    RELATIVES,
    ROLES,
    TEXTS,
    THINGS,
    TRADING,
    VEHICLES,
    Chance,
    Kind,
    Pair,
    join,
    sentence,
    spread,
)
from model.demo.noun_phrase import HOW_MANY, THERE, WHICH, WHO, Reading, Reference, noun_phrase
from model.demo.predicates import Clause, VerbPhrase
from model.demo.times import AGES_OF_ADULTS, AGES_OF_CHILDREN, PRICES
from model.demo.verb_form import Mood, VerbForm, tenses_of, verb_form
from model.demo.verbs import (
    ACTIVITIES,
    BE,
    COST,
    DEALINGS,
    EXIST,
    GIVINGS,
    MOTIONS,
    PERSON_EVENTS,
    PREPOSITIONAL_DEALINGS,
    Verb,
)

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
_NEGATIVE_STATEMENT_SHARE = 0.2
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
        negative = self._chance.happens(_NEGATIVE_STATEMENT_SHARE)
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


class Grammar:
    """Makes sentence pairs, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = Chance(seed)
        clauses = Clauses(self._chance)
        statements, questions, compounds = Statements(clauses), Questions(clauses), Compounds(clauses)
        self._rules = spread(
            {
                statements.plain: 24,
                statements.fronted: 14,
                statements.description: 6,
                statements.location: 2,
                statements.age: 2,
                statements.price: 2,
                statements.existence: 3,
                questions.yes_no: 7,
                questions.subject: 2,
                questions.object: 3,
                questions.choice: 3,
                questions.time: 2,
                questions.reason: 2,
                questions.place: 1,
                compounds.coordinated: 5,
                compounds.subordinate_last: 8,
                compounds.subordinate_first: 5,
                compounds.reported: 5,
                compounds.subject_with_relative: 3,
                compounds.object_with_relative: 3,
            }
        )

    def sentence(self) -> Pair:
        """Makes the next sentence; the same one may come again."""
        return self._chance.pick(self._rules)()
