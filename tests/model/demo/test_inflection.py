"""Noun phrases and verbs have the correct forms in English and in German."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.model.demo import inflection
from dragoman.model.demo.inflection import ACCUSATIVE, DATIVE, noun_phrase, prepositional, relative, verb_form
from dragoman.model.demo.lexicon import CLASSES, DATA, VERBS, Verb
from dragoman.model.demo.text import Text

TABLES: dict[str, list[Any]] = yaml.safe_load(Path(__file__).with_name("inflection.yaml").read_text(encoding="utf-8"))


def noun(english: str) -> tuple[str, str]:
    return next(
        (key, row[key]) for row in (c.words for c in CLASSES.values()) for key in row if key.split("/")[0] == english
    )


def phrase(determiner: str, adjective: str, english: str) -> inflection.NounPhrase:
    return noun_phrase(determiner.removesuffix("+"), adjective, *noun(english), plural=determiner.endswith("+"))


def verb(english: str) -> Verb:
    return next(item for verbs in VERBS.values() for item in verbs if item.english.split("/")[0] == english)


@pytest.mark.parametrize(("determiner", "adjective", "english", "forms"), TABLES["noun phrases"])
def test_noun_phrases_are_declined(determiner: str, adjective: str, english: str, forms: str) -> None:
    assert ", ".join(text.plain().german for text in phrase(determiner, adjective, english).cases) == forms


@pytest.mark.parametrize(("determiner", "adjective", "english", "expected"), TABLES["articles and plurals"])
def test_english_has_its_articles_and_plurals(determiner: str, adjective: str, english: str, expected: str) -> None:
    assert phrase(determiner, adjective, english).cases[0].plain().english == expected


def test_a_relative_pronoun_has_the_gender_and_number_of_its_antecedent() -> None:
    assert relative("who", phrase("a", "", "man")).cases[ACCUSATIVE].plain() == ("who", "den")
    assert relative("who", phrase("the+", "", "man")).cases[DATIVE].plain() == ("who", "denen")


@pytest.mark.parametrize(("place", "at", "to"), TABLES["prepositions"])
def test_prepositions_of_place_contract_with_the_article(place: str, at: str, to: str) -> None:
    german, being, going = DATA["places"][place]
    cases = noun_phrase("the", "", place, german).cases
    assert prepositional(being, cases[DATIVE]).plain().german == at
    assert prepositional(going, cases[DATIVE if going.endswith(" zu") else ACCUSATIVE]).plain().german == to


@pytest.mark.parametrize(("english", "tense", "agreement", "finite_end_last"), TABLES["German verbs"])
def test_german_verbs_are_conjugated(english: str, tense: str, agreement: int, finite_end_last: str) -> None:
    _, _, _, *german = verb_form(verb(english).english, verb(english).german, tense, agreement)
    assert [Text("", piece).plain().german for piece in german] == finite_end_last.split(", ")


@pytest.mark.parametrize(("english", "tense", "agreement", "operator_rest_plain"), TABLES["English verbs"])
def test_english_verbs_are_conjugated(english: str, tense: str, agreement: int, operator_rest_plain: str) -> None:
    forms = verb_form(verb(english).english, verb(english).german, tense, agreement)[:3]
    assert [Text(piece).plain().english for piece in forms] == operator_rest_plain.split(", ")


def test_must_not_is_darf_nicht() -> None:
    buy = verb("buy")
    finite = [verb_form(buy.english, buy.german, "must", 1, negative=negative).finite for negative in (False, True)]
    assert [Text("", form).plain().german for form in finite] == ["muss", "darf"]
