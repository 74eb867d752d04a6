"""The demo grammar fills the sentences of `sentences.yaml` with clauses. One call makes one sentence in both languages.

The grammar is a function: each English sentence has exactly one German translation, because no word of the lexicon is
ambiguous in its place, and no rule makes a choice that only German shows. Choices use `Random.random()` only, the one
method with a guaranteed sequence per seed.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from operator import itemgetter
from random import Random
from typing import NamedTuple, TypeVar

from dragoman.model.demo import inflection, lexicon
from dragoman.model.demo.inflection import (
    ACCUSATIVE,
    DATIVE,
    NOMINATIVE,
    NounPhrase,
    VerbForm,
    noun_phrase,
    prepositional,
)
from dragoman.model.demo.lexicon import CLASSES, DATA, PHRASES, REFERENCES, ClauseRule, Verb, VerbGroup, weighted
from dragoman.model.demo.text import Text, join

T = TypeVar("T")
Linked = TypeVar("Linked", Text, NounPhrase, VerbForm)

_SLOT = re.compile(r"<(\w+)(?:\.(\w+))?>")
_PEOPLE, _SOMEBODY, _ANY = map(weighted, ("people", "somebody", "any"))
_ANYWHERE, _OUTDOORS = DATA["anywhere"].split(), DATA["outdoors"].split()
_PLACE_ADJECTIVES, _PLACE_DETERMINERS = DATA["place_adjectives"].split(), weighted(DATA["place_determiners"])
_STATES = frozenset(DATA["states"].split())
_FIRST_PERSONS = {"I", "we"}
_NOTHING = Text()
_ACTION = ClauseRule()
_ACTION_UPON = ClauseRule(subject="people", verbs="see trade*3", value="-", affirmative=True)


class Rank(IntEnum):
    """The order of the parts between the German verbs. English has the order in which the rules add them."""

    KNOWN = 0
    TIME = 1
    NEGATION = 2
    PLACE = 3
    NEW = 4
    REST = 5


Part = tuple[Rank, Text]


class Clause(NamedTuple):
    """A subject, a finite verb and the other parts, in English order. `adverb` stands at the English verb.

    English has do-support. The German orders differ in the place of the finite verb only:

        second   Die Frau macht die Tür heute auf
        first    Macht die Frau die Tür heute auf
        last     (weil) die Frau die Tür heute aufmacht
    """

    subject: NounPhrase
    verb: VerbForm
    parts: Sequence[Part]
    adverb: Text
    negative: bool
    others: dict[str, Text]
    """Texts of the clause: its time, the part that a question asks for, and a relative clause."""

    def english(self, form: str) -> str:
        """Returns a statement, or a question if `form` is `ask`."""
        if form in self.others:
            return self.others[form].english
        subject, verb = self.subject.cases[NOMINATIVE].english, self.verb
        parts = (part.english for _, part in self.parts)
        if form == "ask":
            return join(verb.operator, subject, self.adverb.english, verb.rest, *parts)
        plain = bool(verb.plain) and not self.negative
        predicate = (self.adverb.english, verb.plain) if plain else (verb.operator, self.adverb.english, verb.rest)
        return join(subject, *predicate, *parts)

    def german(self, form: str) -> str:
        """Returns a clause with its finite verb `first`, `last` or, by default, second."""
        if form in self.others:
            return self.others[form].german
        subject, verb = self.subject.cases[NOMINATIVE].german, self.verb
        middle = join(*(part.german for _, part in sorted(self.parts, key=itemgetter(0))))
        if form == "last":
            return join(subject, middle, verb.last)
        start = (verb.finite, subject) if form == "first" else (subject, verb.finite)
        return join(*start, middle, verb.end)


class Grammar:
    """Makes sentences, reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        self._texts = 0

    def sentence(self) -> Text:
        """Makes the next sentence, possibly a repeated one."""
        self._texts = 0
        pattern = self._pick(lexicon.SENTENCES)
        mood = self._pick(pattern.moods)
        clauses = {"a": self._clause(pattern.a, mood)}
        if "<b" in pattern.text.english:
            clauses["b"] = self._clause(pattern.b, mood, avoid=clauses["a"].subject.head)
        english, german = self._new(pattern.text)
        return Text(
            _SLOT.sub(lambda slot: clauses[slot[1]].english(slot[2] or ""), english),
            _SLOT.sub(lambda slot: clauses[slot[1]].german(slot[2] or ""), german),
        ).sentence()

    def _clause(self, rule: ClauseRule, mood: str, *, avoid: str = "", subject: NounPhrase | None = None) -> Clause:
        mood = rule.mood or mood
        negative = not rule.affirmative and self._happens(0.18)
        subject = subject or self._subject(rule, mood, avoid, negative=negative)
        verb, tense = self._verb(rule, subject, mood)
        negation = self._new(Text("not~n", "nicht~n") if negative else _NOTHING)
        form = inflection.verb_form(verb.english, verb.german, tense, subject.agreement, negative=negative)
        parts, others = self._complements(rule, verb, subject, negation, mood)
        # A new object of a negated verb has `kein` already.
        if negative and all(rank is not Rank.NEW for rank, _ in parts):
            parts.append((Rank.NEGATION, Text("", negation.german)))
        others["time"] = self._phrase(lexicon.TENSES[tense].times)
        clause = Clause(subject, self._new(form), parts, negation, negative, others)
        return self._with_adverbials(clause, verb, tense) if rule.full else clause

    def _subject(self, rule: ClauseRule, mood: str, avoid: str, *, negative: bool) -> NounPhrase:
        """Returns the subject: never the noun or the name `avoid`."""
        if rule.subject == ["who"]:
            return self._new(inflection.WHO)
        classes = rule.subject or _SOMEBODY
        while True:
            name = self._pick(classes)
            if CLASSES[name].of_people and not rule.relative and not rule.value.startswith("<") and self._happens(0.4):
                subject = self._new(self._pick(inflection.SUBJECTS if self._happens(0.65) else inflection.NAMES))
            else:
                known = negative or bool(rule.subject) or self._happens(0.65)
                subject = self._noun_phrase(name, "precise" if rule.relative else "known" if known else "new")
            if subject.head != avoid or not subject.noun_class:
                break
        if rule.relative:
            modifier = self._relative_clause(subject, mood)
            subject = subject.joined(_NOTHING, Text(modifier.english, f", {modifier.german} ,"))
        return subject

    def _verb(self, rule: ClauseRule, subject: NounPhrase, mood: str) -> tuple[Verb, str]:
        """Chooses a verb and a tense, but no past that equals the base (`They read`): it would be ambiguous."""
        kinds = rule.verbs or _ANY
        verbs = lexicon.VERBS[self._pick(kinds)]
        if subject.noun_class == "animals":
            verbs = [verb for kind in kinds for verb in lexicon.VERBS[kind] if verb.group.animals] or verbs
        verb = self._pick(verbs)
        tenses = lexicon.MOODS[mood]
        if verb.group.kind in _STATES:
            tenses = [tense for tense in tenses if tense in ("present", "past")]
        elif verb.group.event:
            tenses = [tense for tense in tenses if tense != "progressive"]
        base, past, *_ = verb.english.split("/")
        return verb, self._pick([tense for tense in tenses if tense != "past" or base != past])

    def _with_adverbials(self, clause: Clause, verb: Verb, tense: str) -> Clause:
        """Adds a place, and a time or a frequency."""
        group, parts = verb.group, list(clause.parts)
        if group.kind in _STATES:
            return clause
        if not group.goes and self._happens(0.25):
            parts.append((Rank.PLACE, self._place(_OUTDOORS if clause.subject.noun_class == "animals" else _ANYWHERE)))
        if self._happens(0.35):
            parts.append((Rank.TIME, clause.others["time"]))
        elif not clause.negative and tense in ("present", "past") and self._happens(0.2):
            often = self._phrase("frequency")
            return clause._replace(parts=[*parts, (Rank.TIME, Text("", often.german))], adverb=often)
        return clause._replace(parts=parts)

    def _complements(
        self, rule: ClauseRule, verb: Verb, subject: NounPhrase, negation: Text, mood: str
    ) -> tuple[list[Part], dict[str, Text]]:
        """Returns the complements of the verb, and the texts about its object that stand outside of the clause."""
        group, parts = verb.group, list[Part]()
        if rule.value:
            return [] if rule.value == "-" else [(Rank.REST, self._value(rule.value, subject))], {}
        if group.gives:
            parts.append((Rank.KNOWN, self._object(subject, _PEOPLE, "known").cases[DATIVE]))
        others = dict[str, Text]()
        if group.objects:
            new = "negated" if negation.german else "object"
            reading = rule.object or ("known" if group.by or self._happens(0.55) else new)
            thing = self._object(subject, group.objects, reading)
            text = thing.cases[DATIVE if group.dative else ACCUSATIVE]
            if rule.object == "asked":
                return parts, {"asked": text}
            if rule.object == "precise":
                others["which"] = self._relative_clause(thing, mood)
            parts.append(self._object_part(group, thing, text, negation))
        if group.goes:
            parts.append((Rank.REST, self._place(group.goes, going=True)))
        return parts, others

    def _object_part(self, group: VerbGroup, thing: NounPhrase, text: Text, negation: Text) -> Part:
        """Returns the object at its German place. After a recipient, even a known one may follow the time."""
        if group.by:
            return Rank.REST, self._new(prepositional(group.by, text))
        if thing.known and (negation.german or not group.gives):
            return Rank.KNOWN, text
        # `kein` translates `not` too.
        link = negation.german.removeprefix("nicht")
        return Rank.NEW, Text(text.english, text.german.replace(" ", f"{link} ", 1))

    def _value(self, pattern: str, subject: NounPhrase) -> Text:
        """Returns a predicate of `to be` or `to cost`: `very old`, `older than her friend`, `ten euros`."""
        if pattern != "<adjective>":
            return self._filled(Text.parse(pattern))
        noun_class = CLASSES[subject.noun_class]
        said = subject.cases[NOMINATIVE].english
        adjective = self._pick([word for word in noun_class.adjectives if f"{word}~" not in said])
        german, *comparison = DATA["adjectives"][adjective]
        if comparison and self._happens(0.4):
            other = self._object(subject, [subject.noun_class], "known").cases[NOMINATIVE]
            more = self._new(Text.parse(f"{comparison[0]} = {comparison[1]}"))
            return Text.joined(more, self._new(Text("than~a", "als~a")), other)
        degree = self._phrase("degree") if self._happens(0.3) else _NOTHING
        return Text.joined(degree, self._new(Text.parse(f"{adjective} = {german}")))

    def _relative_clause(self, phrase: NounPhrase, mood: str) -> Text:
        """Returns a relative clause about the phrase: an action of a person or an animal, or with a thing."""
        of_people = CLASSES[phrase.noun_class].of_people
        pronoun = self._new(inflection.relative("who" if of_people else "that", phrase))
        if of_people or phrase.noun_class == "animals":
            clause = self._clause(_ACTION, mood, subject=pronoun)
            return Text(clause.english(""), clause.german("last"))
        clause = self._clause(_ACTION_UPON, mood)
        return Text.joined(pronoun.cases[ACCUSATIVE], Text(clause.english(""), clause.german("last")))

    def _object(self, subject: NounPhrase, classes: Sequence[str], reading: str) -> NounPhrase:
        """Returns the object of the subject's action, never of its own kind: no `The dog sees a dog`."""
        while True:
            name = self._pick(classes)
            of_people = CLASSES[name].of_people
            if reading == "asked" and (of_people or reading not in REFERENCES[CLASSES[name].kind]):
                return self._new(inflection.WHO if of_people else inflection.WHAT)
            if of_people and reading != "precise" and self._happens(0.35):
                phrase = self._new(self._pick(inflection.OBJECTS if self._happens(0.75) else inflection.NAMES))
            else:
                phrase = self._noun_phrase(name, reading)
            if phrase.head != subject.head and {phrase.head, subject.head} != _FIRST_PERSONS:
                return phrase

    def _noun_phrase(self, name: str, reading: str) -> NounPhrase:
        """Returns a phrase about a noun of a class: `the old man`, `twenty-three apples`, `her milk`."""
        noun_class = CLASSES[name]
        references = REFERENCES[noun_class.kind]
        chosen = self._pick(references.get(reading, references["known"]))
        determiner = chosen.removesuffix("+")
        adjective = self._pick(noun_class.adjectives) if self._happens(0.35) else ""
        noun = self._pick(tuple(noun_class.words.items()))
        phrase = noun_phrase(determiner, adjective, *noun, plural=chosen.endswith("+"))._replace(noun_class=name)
        if determiner == "number":
            phrase = phrase.joined(self._pick(PHRASES["number"]), _NOTHING)
        return self._new(phrase)

    def _place(self, places: Sequence[str], *, going: bool = False) -> Text:
        place = self._pick(places)
        german, at, to = DATA["places"][place]
        prepositions = to if going else at
        if " " not in german:  # a city
            return self._new(prepositional(prepositions, Text(f"{place}~a", f"{german}~a")))
        adjective = self._pick(_PLACE_ADJECTIVES) if self._happens(0.2) else ""
        phrase = noun_phrase(self._pick(_PLACE_DETERMINERS), adjective, place, german)
        case = ACCUSATIVE if going and not to.endswith(" zu") else DATIVE
        return self._new(prepositional(prepositions, phrase.cases[case]))

    def _phrase(self, name: str) -> Text:
        return self._filled(self._pick(PHRASES[name]))

    def _filled(self, text: Text) -> Text:
        """Fills the slots of a phrase, and numbers it."""
        for slot in _SLOT.findall(text.english):
            value = self._phrase(slot[0])
            text = Text(*(side.replace(f"<{slot[0]}>", filler) for side, filler in zip(text, value, strict=True)))
        return self._new(text)

    def _new(self, text: Linked) -> Linked:
        """Returns a text whose links differ from all others of the sentence."""
        self._texts += 1
        return text.numbered(self._texts)

    def _pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def _happens(self, probability: float) -> bool:
        return self._random() < probability
