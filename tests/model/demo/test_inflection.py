"""Noun phrases and verbs have the correct forms in English and in German."""

from typing import Any

import pytest

from dragoman.model.demo.inflection import DATA, NounPhrase, noun_phrase, prepositional, verb_form
from dragoman.model.demo.text import Text
from tests.support.cases import cases

TABLES: dict[str, list[Any]] = cases(__file__)
NOUNS = {key.split("/")[0]: (key, row[key]) for row in (c["words"] for c in DATA["nouns"].values()) for key in row}
VERBS = {key.split("/")[0]: (key, row[key]) for row in (c["words"] for c in DATA["verbs"]) for key in row}


def phrase(determiner: str, adjective: str, english: str) -> NounPhrase:
    return noun_phrase(determiner.removesuffix("+"), adjective, *NOUNS[english], plural=determiner.endswith("+"))


@pytest.mark.parametrize(("determiner", "adjective", "english", "forms"), TABLES["noun phrases"])
def test_noun_phrases_are_declined(determiner: str, adjective: str, english: str, forms: str) -> None:
    assert ", ".join(text.plain().german for text in phrase(determiner, adjective, english)[:3]) == forms


@pytest.mark.parametrize(("determiner", "adjective", "english", "expected"), TABLES["articles and plurals"])
def test_english_has_its_articles_and_plurals(determiner: str, adjective: str, english: str, expected: str) -> None:
    assert phrase(determiner, adjective, english).nominative.plain().english == expected


@pytest.mark.parametrize(("place", "at", "to"), TABLES["prepositions"])
def test_prepositions_of_place_contract_with_the_article(place: str, at: str, to: str) -> None:
    german, being, going = DATA["places"][place]
    phrase = noun_phrase("the", "", place, german)
    assert prepositional(being, phrase.dative).plain().german == at
    case = phrase.dative if going.endswith(" zu") else phrase.accusative
    assert prepositional(going, case).plain().german == to


@pytest.mark.parametrize(("english", "tense", "agreement", "finite_end_last"), TABLES["German verbs"])
def test_german_verbs_are_conjugated(english: str, tense: str, agreement: int, finite_end_last: str) -> None:
    _, _, _, *german = verb_form(*VERBS[english], tense, agreement)
    assert [Text("", piece).plain().german for piece in german] == finite_end_last.split(", ")


@pytest.mark.parametrize(("english", "tense", "agreement", "operator_rest_plain"), TABLES["English verbs"])
def test_english_verbs_are_conjugated(english: str, tense: str, agreement: int, operator_rest_plain: str) -> None:
    forms = verb_form(*VERBS[english], tense, agreement)[:3]
    assert [Text(piece).plain().english for piece in forms] == operator_rest_plain.split(", ")


def test_must_not_is_darf_nicht() -> None:
    finite = [verb_form(*VERBS["buy"], "must", 1, negative=negative)[3] for negative in (False, True)]
    assert [Text("", form).plain().german for form in finite] == ["muss", "darf"]
