"""The demo grammar fills the sentences of `sentences.yaml` with clauses. One call makes one sentence in both languages.

The grammar is a function: each English sentence has exactly one German translation, because no word of the lexicon is
ambiguous in its place, and no rule makes a choice that only German shows. Choices use `Random.random()` only, the one
method with a guaranteed sequence per seed.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import yaml

from dragoman.model.demo.inflection import (
    ACCUSATIVE,
    DATA,
    DATIVE,
    NOMINATIVE,
    NounPhrase,
    VerbForm,
    noun_phrase,
    prepositional,
    pronoun,
    verb_form,
)
from dragoman.model.demo.text import Text, join

T = TypeVar("T")
Linked = TypeVar("Linked", Text, NounPhrase, VerbForm)
# A clause in each of its forms in a language: "" is a statement.
Forms = dict[str, str]

_SLOT = re.compile(r"<(\w+)(?:\.(\w+))?>")
_PERSONS = ("role", "kin", "parent")
_RULES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8"))
_SENTENCES = [row for row in _RULES["sentences"] for _ in range(row["weight"])]
PHRASES = {name: list(map(Text.parse, texts)) for name, texts in DATA["phrases"].items()}
# The numbers from 2 to 99, as in twenty-one and einundzwanzig, and the days of a month.
_ONES = [("one", "ein"), *(text.plain() for text in PHRASES["hour"][:8])]
_COMPOUNDS = [
    Text.parse(f"{ten}-{one} = {eins}und{zehn}") for ten, zehn in map(Text.plain, PHRASES["ten"]) for one, eins in _ONES
]
PHRASES["number"] = 3 * (PHRASES["hour"] + PHRASES["teen"]) + PHRASES["ten"] + _COMPOUNDS
PHRASES["day"] = [Text.parse(f"{day} = {day}.") for day in range(1, 29)]
_PRONOUNS = [pronoun(*forms, agreement=agreement) for *forms, agreement in DATA["pronouns"]]
_WHO = pronoun("who", "who", "wer", "wen", "wem")
_NAMES = [NounPhrase((name,) * 3, name.plain().english) for name in PHRASES["name"]]


class Rank(IntEnum):
    """The order of the parts between the German verbs. English has the order in which the rules add them."""

    KNOWN = 0
    TIME = 1
    NEGATION = 2
    PLACE = 3
    NEW = 4
    REST = 5


@cache
def _weighted(options: str) -> list[str]:
    """Repeats each option by its weight: `the*2 a` becomes the, the, a. The name of a list stands for its options."""
    split = [option.partition("*") for option in _RULES["lists"].get(options, options).split()]
    return [name for name, _, weight in split for _ in range(int(weight or 1))]


@cache
def _verbs(kind: str) -> list[tuple[dict[str, Any], str, str]]:
    """Returns the group and both entries of each verb of a kind."""
    groups = [group for group in DATA["verbs"] if group["kind"] == kind]
    return [(group, *words) for group in groups for words in group["words"].items()]


class Grammar:
    """Makes sentences, reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        self._texts = 0

    def sentence(self) -> Text:
        """Makes the next sentence, possibly a repeated one."""
        self._texts = 0
        row = self._pick(_SENTENCES)
        mood = self._choose(row.get("moods", "any"))
        clauses = {name: self._clause(row.get(name, {}), mood) for name in "ab" if f"<{name}" in row["text"]}
        sides = self._new(Text.parse(row["text"]))
        filled = (
            _SLOT.sub(lambda slot: clauses[slot[1]][side][slot[2] or ""], text)  # noqa: B023 - called in this pass
            for side, text in enumerate(sides)
        )
        return Text(*filled).sentence()

    def _clause(self, rule: dict[str, Any], mood: str) -> tuple[Forms, Forms]:
        """Returns a clause in English and in German.

        English has do-support. The German orders differ in the place of the finite verb only:

        second   Die Frau macht die Tür heute auf
        first    Macht die Frau die Tür heute auf
        last     (weil) die Frau die Tür heute aufmacht
        """
        group, english, german = self._pick(_verbs(self._choose(rule.get("verbs", "actions"))))
        tense = self._tense(group, english, rule.get("mood", mood))
        negative = not rule.get("affirmative") and self._happens(0.18)
        subject, described = self._subject(rule, group, negative=negative)
        negation = self._new(Text("not~n", "nicht~n") if negative else Text())
        form = self._new(verb_form(english, german, tense, subject.agreement, negative=negative))
        parts = [(Rank.REST, described)] if group.get("describes") else []
        parts += [] if rule.get("bare") else self._complements(group, subject, negation)
        # A new object of a negated verb has `kein` already.
        if negative and all(rank is not Rank.NEW for rank, _ in parts):
            parts.append((Rank.NEGATION, Text("", negation.german)))
        time = self._phrase(DATA["tenses"][tense]["times"])
        if not group.get("state"):
            adverbials = rule.get("adverbials", "")
            if "place" in adverbials and "goes" not in group and self._happens(0.25):
                parts.append((Rank.PLACE, self._place("anywhere")))
            if "time" in adverbials and self._happens(0.35):
                parts.append((Rank.TIME, time))
        who, wer = subject.cases[NOMINATIVE]
        rest = join(*(part.english for _, part in parts))
        middle = join(*(part.german for _, part in sorted(parts, key=itemgetter(0))))
        verb = form.plain if form.plain and not negative else join(form.operator, negation.english, form.rest)
        return (
            {"": join(who, verb, rest), "ask": join(form.operator, who, negation.english, form.rest, rest)}
            | {"time": time.english},
            {"": join(wer, form.finite, middle, form.end), "first": join(form.finite, wer, middle, form.end)}
            | {"last": join(wer, middle, form.last), "time": time.german},
        )

    def _tense(self, group: dict[str, Any], english: str, mood: str) -> str:
        """Chooses a tense, but no past that equals the base (`They read`): it would be ambiguous."""
        tenses = _weighted(DATA["moods"][mood])
        if group.get("state"):
            tenses = [tense for tense in tenses if tense in ("present", "past")]
        elif group.get("event"):
            tenses = [tense for tense in tenses if tense != "progressive"]
        base, *others = english.split("/")
        return self._pick([tense for tense in tenses if tense != "past" or base not in others[:1]])

    def _subject(self, rule: dict[str, Any], group: dict[str, Any], *, negative: bool) -> tuple[NounPhrase, Text]:
        """Returns the subject, and an adjective for it if the verb describes it."""
        if rule.get("subject") == "who":
            return self._new(_WHO), Text()
        subjects = "living" if group.get("animals") else "people"
        name = self._choose(rule.get("subject", subjects))
        reading = "known" if negative or self._happens(0.65) else "new"
        if not group.get("describes"):
            return self._participant(name, reading), Text()
        adjective = self._choose(DATA["nouns"][name]["adjectives"])
        text = Text.parse(f"{adjective} = {DATA['adjectives'][adjective].split()[0]}")
        return self._new(self._noun_phrase(name, reading, but=adjective)), self._new(text)

    def _complements(self, group: dict[str, Any], subject: NounPhrase, negation: Text) -> list[tuple[Rank, Text]]:
        parts = list[tuple[Rank, Text]]()
        if group.get("gives"):
            parts.append((Rank.KNOWN, self._object("people", "known", subject).cases[DATIVE]))
        if objects := group.get("objects"):
            is_known = "by" in group or self._happens(0.55)
            thing = self._object(objects, "known" if is_known else "negated" if negation.german else "object", subject)
            text = thing.cases[DATIVE if group.get("dative") else ACCUSATIVE]
            if "by" in group:
                parts.append((Rank.REST, self._new(prepositional(group["by"], text))))
            # After a recipient, even a known object may follow the time.
            elif thing.known and (negation.german or not group.get("gives")):
                parts.append((Rank.KNOWN, text))
            else:  # `kein` translates `not` too
                link = negation.german.removeprefix("nicht")
                parts.append((Rank.NEW, Text(text.english, text.german.replace(" ", f"{link} ", 1))))
        if "goes" in group:
            parts.append((Rank.REST, self._place(group["goes"], going=True)))
        return parts

    def _object(self, classes: str, reading: str, subject: NounPhrase) -> NounPhrase:
        """Returns the object of the subject's action, never of its own kind: no `The dog sees a dog`."""
        while True:
            phrase = self._participant(self._choose(classes), reading)
            if phrase.head != subject.head:
                return phrase

    def _participant(self, name: str, reading: str) -> NounPhrase:
        """Returns a phrase about a noun of a class; of a person, it may be a pronoun or a name."""
        if DATA["nouns"][name].get("kind") in _PERSONS and self._happens(0.38):
            return self._new(self._pick(_PRONOUNS if self._happens(0.7) else _NAMES))
        return self._new(self._noun_phrase(name, reading))

    def _noun_phrase(self, name: str, reading: str, but: str = "") -> NounPhrase:
        """Returns a phrase such as `the old man`, `twenty-three apples`, `her milk`, with no adjective `but`."""
        noun_class = DATA["nouns"][name]
        references = DATA["determiners_of"][noun_class.get("kind", "counted")]
        chosen = self._choose(references.get(reading, references["known"]))
        determiner = chosen.removesuffix("+")
        adjective = self._choose(noun_class["adjectives"]) if self._happens(0.35) else ""
        noun = self._pick(tuple(noun_class["words"].items()))
        phrase = noun_phrase(determiner, "" if adjective == but else adjective, *noun, plural=chosen != determiner)
        if determiner == "number":
            number = self._pick(PHRASES["number"])
            phrase = phrase._replace(cases=tuple([Text.joined(number, text) for text in phrase.cases]))
        return phrase

    def _place(self, places: str, *, going: bool = False) -> Text:
        place = self._choose(DATA.get(places, places))
        german, at, to = DATA["places"][place]
        prepositions = to if going else at
        if " " not in german:  # a city
            return self._new(prepositional(prepositions, Text(f"{place}~a", f"{german}~a")))
        adjective = self._choose(DATA["place_adjectives"]) if self._happens(0.2) else ""
        phrase = noun_phrase(self._choose(DATA["place_determiners"]), adjective, place, german)
        case = ACCUSATIVE if going and not to.endswith(" zu") else DATIVE
        return self._new(prepositional(prepositions, phrase.cases[case]))

    def _phrase(self, name: str) -> Text:
        """Returns a phrase of a name, with a phrase in each of its slots."""
        text = self._pick(PHRASES[name])
        for slot in _SLOT.findall(text.english):
            value = self._phrase(slot[0])
            text = Text(*(side.replace(f"<{slot[0]}>", filler) for side, filler in zip(text, value, strict=True)))
        return self._new(text)

    def _new(self, text: Linked) -> Linked:
        """Returns a text whose links differ from all others of the sentence."""
        self._texts += 1
        return text.numbered(self._texts)

    def _choose(self, options: str) -> str:
        return self._pick(_weighted(options))

    def _pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def _happens(self, probability: float) -> bool:
        return self._random() < probability
