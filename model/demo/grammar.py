"""The demo grammar: all sentence rules with their weights. One call makes one sentence pair.

The grammar is a function: each English sentence has exactly one German translation, because no word of the lexicon is
ambiguous in its place, and no rule makes a choice that only German shows. Questions show English do-support and the
German verb in first or second place; statements show the verb-second order; sentences of two clauses show the
verb-final order of German subordinate clauses.
"""

from collections.abc import Sequence

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
    City,
    Kind,
    NounClass,
    Pair,
    Place,
    join,
    sentence,
    spread,
)
from model.demo.noun_phrase import (
    HOW_MANY,
    THERE,
    WHICH,
    WHO,
    Nominals,
    NounPhrase,
    Reading,
    Reference,
    alike,
    noun_phrase,
    relative,
)
from model.demo.predicates import Clause, Predicates, VerbPhrase
from model.demo.verb_form import (
    AGES_OF_ADULTS,
    AGES_OF_CHILDREN,
    FREQUENCIES,
    PRICES,
    TIMES,
    Mood,
    Tense,
    VerbForm,
    tenses_of,
    verb_form,
)
from model.demo.verbs import (
    ACTIVITIES,
    ANIMAL_VERBS,
    BE,
    COST,
    DEALINGS,
    EXIST,
    GIVINGS,
    MOTIONS,
    PERSON_EVENTS,
    PERSON_VERBS,
    PREPOSITIONAL_DEALINGS,
    PUT,
    REPORTS,
    Aspect,
    Verb,
)

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
        """Returns a clause without adverbials about a given person, or about an animal, which has its own verbs."""
        verb = self.chance.pick(ANIMAL_VERBS if subject.noun in _ANIMAL_NOUNS else verbs)
        phrase = self.predicates.of_verb(verb, subject, negative=negative)
        return self.of(subject, phrase, mood, negative=negative)

    def of(self, subject: NounPhrase, phrase: VerbPhrase, mood: Mood, *, negative: bool = False) -> Clause:
        """Combines a subject and a verb phrase in some tense."""
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
        """Returns the possible places of the clause: none for a state or with a destination."""
        verb = clause.phrase.verb
        if verb.destinations or verb is PUT or verb.aspect is Aspect.STATE:
            return ()
        return OUTDOORS if clause.subject.noun in _ANIMAL_NOUNS else verb.places

    def time(self, clause: Clause) -> Pair:
        """Returns a time that fits the clause's tense."""
        return self.chance.pick(self.chance.pick(TIMES[clause.tense]))


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
        """Identifies the subject: `The man who sings is tired.`, Der Mann, der singt, ist müde."""
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
        """Returns a clause with another subject, or with a pronoun: no `Anna sings because Anna works`."""
        while True:
            other = self._clauses.brief(mood)
            if not alike(other.subject, clause.subject):
                return other

    def _relative_clause(self, noun_class: NounClass, phrase: NounPhrase, mood: Mood) -> Pair:
        """Returns what a person or an animal does, or what a person does to a thing."""
        pronoun = relative("who" if noun_class.of_people else "that", phrase)
        if noun_class in _ACTING:
            return self._clauses.with_place(self._clauses.about(pronoun, mood)).subordinate()
        verb = self._chance.pick(_VERBS_UPON[noun_class])
        clause = self._clauses.of(self._nominals.person(Reading.DEFINITE), VerbPhrase(verb), mood).subordinate()
        return Pair(f"{pronoun.english} {clause.english}", f"{pronoun.german[verb.case]} {clause.german}")


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
        """Asks for a choice or a number: `Which red hat does Anna buy?`, Welchen roten Hut kauft Anna?"""
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
    """Makes statements, and questions for their parts."""

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
        """Describes: `The hat is not cheaper than the coat.`, Der Hut ist nicht billiger als der Mantel."""
        noun_class = self._chance.pick(_DESCRIBED)
        negative = self._chance.happens(_NEGATIVE_STATEMENT_SHARE)
        subject = self._nominals.phrase(noun_class, Reading.DEFINITE)
        phrase = self._clauses.predicates.description(noun_class, subject, negative=negative)
        return sentence(self._clauses.of(subject, phrase, Mood.ANY, negative=negative).statement())

    def location(self) -> Pair:
        """States or asks a location: `The key is under the table.`, Der Schlüssel ist unter dem Tisch."""
        subject = self._nominals.phrase(self._chance.pick(_LEFT_LYING), Reading.DEFINITE)
        spot = self._nominals.spot(Case.DATIVE)
        clause = self._clauses.of(subject, VerbPhrase(BE).with_rest(spot), Mood.ANY)
        return self._told_or_asked(clause, Pair("where", "wo"))

    def age(self) -> Pair:
        """States or asks an age: `My son is forty years old.`, Mein Sohn ist vierzig Jahre alt."""
        noun_class, ages = self._chance.pick(_AGED)
        subject = self._nominals.phrase(noun_class, Reading.DEFINITE)
        phrase = VerbPhrase(BE).with_rest(self._chance.pick(ages))
        return self._told_or_asked(self._clauses.of(subject, phrase, Mood.ANY), Pair("how old", "wie alt"))

    def price(self) -> Pair:
        """States or asks a price: `This old book costs ten euros.`, Dieses alte Buch kostet zehn Euro."""
        subject = self._nominals.phrase(self._chance.pick(_PRICED), Reading.DEFINITE)
        phrase = VerbPhrase(COST).with_rest(self._chance.pick(PRICES))
        return self._told_or_asked(self._clauses.of(subject, phrase, Mood.PRESENT), Pair("how much", "wie viel"))

    def _told_or_asked(self, clause: Clause, asked: Pair) -> Pair:
        """States the clause, or omits its complement and asks for it."""
        if self._chance.happens(_QUESTION_SHARE):
            return sentence(clause._replace(phrase=VerbPhrase(clause.phrase.verb)).question_after(asked), "?")
        return sentence(clause.statement())

    def existence(self) -> Pair:
        """States or asks existence: `There is no milk in the house.`, Im Haus gibt es keine Milch."""
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
    """Makes sentence pairs, reproducible by seed."""

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
        """Makes the next sentence, possibly a repeated one."""
        return self._chance.pick(self._rules)()
