"""The inflection of noun phrases and verbs, in both languages, with links. `lexicon.yaml` has and explains the words.

A gender is the last letter of its article; `p` is the plural.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dragoman.model.demo.text import Text, join, mark

DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("lexicon.yaml").read_text(encoding="utf-8"))
# The agreement of a finite verb: the first person is 0. Both languages have one plural form for first and third person.
THIRD, PLURAL = 1, 2

_CONJUGATIONS = {forms[1]: forms for forms in DATA["conjugations"]}


class NounPhrase(NamedTuple):
    """A phrase in the German cases. `head` is its noun; a `known` object precedes the German time."""

    nominative: Text
    accusative: Text
    dative: Text
    head: str
    agreement: int = THIRD
    known: bool = True


@cache
def noun_phrase(
    determiner: str, adjective: str, english: str, german: str, *, plural: bool = False, count: Sequence[str] = ("", "")
) -> NounPhrase:
    """Combines a determiner or a count, an adjective and a noun of the lexicon; the adjective may be empty."""
    *articles, stem, declension, known = DATA["determiners"][determiner]
    gender, nominative, oblique, *plurals = german.split()
    forms = (plurals[0], *plurals) if plural else (nominative, oblique, oblique)
    article, noun = articles[plural], english.split("/")[plural]
    words = join(mark(adjective, "b"), mark(noun, "c"))
    words = join(count[0], mark("an" if article == "a" and words[0] in "aeiou" else article, "a"), words)
    cases = []
    for form, endings in zip(forms, DATA["declensions"][declension]["p" if plural else gender], strict=True):
        ending, of_adjective = endings.split(" ")
        described = mark(adjective and DATA["adjectives"][adjective].split()[-1] + of_adjective, "b")
        declined = mark(stem + ending, "a")
        cases.append(Text(words, join(count[1], declined, described, mark(form, "c"))))
    head, agreement = english.split("/", maxsplit=1)[0], PLURAL if plural else THIRD
    return NounPhrase(cases[0], cases[1], cases[2], head, agreement, known)


def pronoun(subject: str, other: str, *german: str, agreement: int = THIRD) -> NounPhrase:
    """Combines the forms of a pronoun: English subject and object, German cases."""
    nominative, accusative, dative = map(Text.parse, map(" = ".join, zip((subject, other, other), german, strict=True)))
    return NounPhrase(nominative, accusative, dative, subject, agreement)


def prepositional(prepositions: str, phrase: Text) -> Text:
    """Puts a preposition of both languages before a phrase: `in in` makes `in the garden` and im Garten."""
    english, _, german = prepositions.rpartition(" ")
    first, link, rest = phrase.german.partition("~")
    fused = DATA["contractions"].get(f"{german} {first}")
    start = f"{fused}~p~" if fused else f"{german}~p {first}{link}"
    return Text(join(mark(english, "p"), phrase.english), f"{start}{rest}")


@cache
def verb_form(english: str, german: str, tense: str, agreement: int, *, negative: bool = False) -> tuple[str, ...]:
    """Conjugates a verb: returns three pieces of the English word orders, and three of the German ones.

    English: `does` + `buy`, or `buys` where no operator is necessary. German: macht + auf, or aufmacht as last words.
    Negation changes one form only: `must not` is darf nicht.
    """
    return *_english_verb(english, tense, agreement), *_german_verb(german, tense, agreement, negative)


def _english_verb(entry: str, tense: str, agreement: int) -> tuple[str, str, str]:
    be = {name: forms[agreement] for name, forms in DATA["be"].items()}
    if entry == "be":
        return mark(be[tense], "v"), "", ""
    words = dict(zip(("base", "past", "third", "ing"), (mark(form, "v") for form in entry.split("/")), strict=True))
    third = agreement == THIRD
    words |= {"present": words["third" if third else "base"], "be": be["present"]}
    words |= {"do": "does", "want": "wants"} if third else {"do": "do", "want": "want"}
    pattern = DATA["tenses"][tense]
    operator, rest, plain = (pattern.get(piece, "").format(**words) for piece in ("operator", "rest", "plain"))
    return operator, rest, plain


def _german_verb(entry: str, tense: str, agreement: int, negative: bool) -> tuple[str, str, str]:
    parts, third, perfect, preterite = (*entry.split(", "), "")[:4]
    prefix, _, infinitive = parts.rpartition("|")
    modal = DATA["tenses"][tense].get("modal")
    if not modal and (preterite or tense != "past"):
        third = preterite if tense == "past" else third
        finite = _CONJUGATIONS.get(third, (infinitive[:-1], third, infinitive))[agreement]
        return f"{finite}~v", mark(prefix, "v"), f"{prefix}{finite}~v"
    auxiliary, last = (modal, prefix + infinitive) if modal else perfect.split()
    auxiliary = "darf" if negative and auxiliary == "muss" else auxiliary
    finite = f"{_CONJUGATIONS[auxiliary][agreement]}~{'m' if modal else 'v'}"
    return finite, f"{last}~v", f"{last}~v {finite}"
