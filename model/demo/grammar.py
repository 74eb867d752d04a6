"""The demo grammar fills the sentences of `sentences.yaml` with clauses. One call makes one sentence in both languages.

The grammar is a function: each English sentence has exactly one German translation, because no word of the lexicon is
ambiguous in its place, and no rule makes a choice that only German shows. Choices use `Random.random()` only, the one
method with a guaranteed sequence per seed.
"""

import re
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import yaml

from dragoman.model.demo.inflection import DATA, NounPhrase, noun_phrase, prepositional, pronoun, verb_form
from dragoman.model.demo.text import Text, join

T = TypeVar("T")
# A part of a clause, and its rank between the German verbs. English has the order in which the rules add the parts.
Part = tuple[int, Text]
KNOWN, TIME, NEGATION, PLACE, NEW, REST = range(6)

_SLOT = re.compile(r"<(\w+)>")
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
_NAMES = [NounPhrase(name, name, name, name.plain().english) for name in PHRASES["name"]]


@cache
def _weighted(options: str) -> list[str]:
    """Repeats each option by its weight: `the*2 a` becomes the, the, a. The name of a list stands for its options."""
    split = [option.partition("*") for option in _RULES["lists"].get(options, options).split()]
    return [name for name, _, weight in split for _ in range(int(weight or 1))]


@cache
def _verbs(kind: str) -> list[tuple[dict[str, Any], str, str]]:
    """Returns the group and both entries of each verb of a kind."""
    return [(group, *words) for group in DATA["verbs"] if group["kind"] == kind for words in group["words"].items()]


class Grammar:
    """Makes sentences, reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def sentence(self) -> Text:
        """Makes the next sentence, possibly a repeated one."""
        row = self._pick(_SENTENCES)
        mood = self._choose(row.get("moods", "any"))
        text = Text.parse(row["text"])
        for name in "ab":
            if f"<{name}" in row["text"]:
                for form, clause in self._clause(row.get(name, {}), mood).items():
                    if f"<{name}{form}>" in row["text"]:
                        text = text.filled(f"{name}{form}", clause.within(name))
        return text.sentence()

    def _clause(self, rule: dict[str, Any], mood: str) -> dict[str, Text]:
        """Returns the forms of a clause.

        English has do-support. The German orders differ in the place of the finite verb only:

        second   Die Frau macht die Tür heute auf
        first    Macht die Frau die Tür heute auf
        last     (weil) die Frau die Tür heute aufmacht
        """
        group, english, german = self._pick(_verbs(self._choose(rule.get("verbs", "actions"))))
        tense = self._tense(group, english, rule.get("mood", mood))
        negative = not rule.get("affirmative") and self._happens(0.18)
        subject, parts = self._subject(rule, group, negative=negative)
        parts += [] if rule.get("bare") else self._complements(group, subject, negative=negative)
        # A new object of a negated verb has `kein` already.
        if negative and all(rank != NEW for rank, _ in parts):
            parts.append((NEGATION, Text("", "nicht~n")))
        time = self._phrase(DATA["tenses"][tense]["times"])
        adverbials = "" if group.get("state") else rule.get("adverbials", "")
        if "place" in adverbials and "goes" not in group and self._happens(0.25):
            parts.append((PLACE, self._place("anywhere")))
        if "time" in adverbials and self._happens(0.35):
            parts.append((TIME, time))
        who, wer = subject.nominative.within("s")
        rest = join(*(part.english for _, part in parts))
        middle = join(*(part.german for _, part in sorted(parts, key=itemgetter(0))))
        operator, verb, plain, finite, end, last = verb_form(
            english, german, tense, subject.agreement, negative=negative
        )
        verb = join("not~n" if negative else "", verb)
        statement = join(who, plain if plain and not negative else join(operator, verb), rest)
        first = join(finite, wer, middle, end)
        return {
            "": Text(statement, join(wer, finite, middle, end)),
            ".first": Text(statement, first),
            ".last": Text(statement, join(wer, middle, last)),
            ".question": Text(join(operator, who, verb, rest), first),
            ".time": time,
        }

    def _tense(self, group: dict[str, Any], english: str, mood: str) -> str:
        """Chooses a tense, but no past that equals the base (`They read`): it would be ambiguous."""
        base, *others = english.split("/")
        excluded = group.get("without", "").split() + ["past"] * (base in others[:1])
        return self._pick([tense for tense in _weighted(DATA["moods"][mood]) if tense not in excluded])

    def _subject(self, rule: dict[str, Any], group: dict[str, Any], *, negative: bool) -> tuple[NounPhrase, list[Part]]:
        """Returns the subject, and an adjective for it if the verb describes it."""
        if rule.get("subject") == "who":
            return _WHO, []
        name = self._choose(rule.get("subject", "living" if group.get("animals") else "people"))
        reading = "known" if negative or self._happens(0.65) else "new"
        if not group.get("describes"):
            return self._participant(name, reading), []
        adjective = self._choose(DATA["nouns"][name]["adjectives"])
        text = Text.parse(f"{adjective} = {DATA['adjectives'][adjective].split()[0]}")
        return self._noun_phrase(name, reading, but=adjective), [(REST, text.within("d"))]

    def _complements(self, group: dict[str, Any], subject: NounPhrase, *, negative: bool) -> list[Part]:
        parts = list[Part]()
        if group.get("gives"):
            parts.append((KNOWN, self._object("people", "known", subject).dative.within("r")))
        if objects := group.get("objects"):
            is_known = "by" in group or self._happens(0.55)
            thing = self._object(objects, "known" if is_known else "negated" if negative else "object", subject)
            text = (thing.dative if group.get("dative") else thing.accusative).within("o")
            if "by" in group:
                parts.append((REST, prepositional(group["by"], text)))
            # After a recipient, even a known object may follow the time.
            elif thing.known and (negative or not group.get("gives")):
                parts.append((KNOWN, text))
            else:  # `kein` translates `not` too
                german = text.german.replace(" ", "~n ", 1) if negative else text.german
                parts.append((NEW, Text(text.english, german)))
        if "goes" in group:
            parts.append((REST, self._place(group["goes"], going=True)))
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
            return self._pick(_PRONOUNS if self._happens(0.7) else _NAMES)
        return self._noun_phrase(name, reading)

    def _noun_phrase(self, name: str, reading: str, but: str = "") -> NounPhrase:
        """Returns a phrase such as `the old man`, `twenty-three apples`, `her milk`, with no adjective `but`."""
        noun_class = DATA["nouns"][name]
        references = DATA["determiners_of"][noun_class.get("kind", "counted")]
        chosen = self._choose(references.get(reading, references["known"]))
        determiner = chosen.removesuffix("+")
        adjective = self._choose(noun_class["adjectives"]) if self._happens(0.35) else ""
        adjective = "" if adjective == but else adjective
        noun = self._pick(tuple(noun_class["words"].items()))
        number = self._pick(PHRASES["number"]) if determiner == "number" else Text()
        return noun_phrase(determiner, adjective, *noun, plural=chosen != determiner, count=number)

    def _place(self, places: str, *, going: bool = False) -> Text:
        place = self._choose(DATA.get(places, places))
        german, at, to = DATA["places"][place]
        if " " in german:
            adjective = self._choose(DATA["place_adjectives"]) if self._happens(0.2) else ""
            phrase = noun_phrase(self._choose(DATA["place_determiners"]), adjective, place, german)
            text = phrase.accusative if going and not to.endswith(" zu") else phrase.dative
        else:  # a city
            text = Text(f"{place}~a", f"{german}~a")
        return prepositional(to if going else at, text).within("w")

    def _phrase(self, name: str) -> Text:
        """Returns a phrase of a name, with a phrase in each of its slots."""
        text = self._pick(PHRASES[name])
        for slot in _SLOT.findall(text.english):
            text = text.filled(slot, self._phrase(slot))
        return text.within(name)

    def _choose(self, options: str) -> str:
        return self._pick(_weighted(options))

    def _pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def _happens(self, probability: float) -> bool:
        return self._random() < probability
