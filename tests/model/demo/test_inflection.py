"""Noun phrases and verbs have the correct forms in English and in German."""

import pytest

from dragoman.model.demo.inflection import (
    ACCUSATIVE,
    DATIVE,
    NounPhrase,
    noun_phrase,
    prepositional,
    relative,
    verb_form,
)
from dragoman.model.demo.lexicon import CLASSES, DATA, VERBS, Verb
from dragoman.model.demo.text import Text


def noun(english: str) -> tuple[str, str]:
    return next(
        (key, row[key]) for row in (c.words for c in CLASSES.values()) for key in row if key.split("/")[0] == english
    )


def phrase(determiner: str, adjective: str, english: str) -> NounPhrase:
    return noun_phrase(determiner.removesuffix("+"), adjective, *noun(english), plural=determiner.endswith("+"))


def verb(english: str) -> Verb:
    return next(item for verbs in VERBS.values() for item in verbs if item.english.split("/")[0] == english)


@pytest.mark.parametrize(
    ("determiner", "adjective", "english", "forms"),
    [
        ("the", "old", "man", "der alte Mann, den alten Mann, dem alten Mann"),
        ("the", "old", "woman", "die alte Frau, die alte Frau, der alten Frau"),
        ("the", "old", "child", "das alte Kind, das alte Kind, dem alten Kind"),
        ("a", "old", "man", "ein alter Mann, einen alten Mann, einem alten Mann"),
        ("a", "old", "woman", "eine alte Frau, eine alte Frau, einer alten Frau"),
        ("a", "old", "child", "ein altes Kind, ein altes Kind, einem alten Kind"),
        ("this", "old", "man", "dieser alte Mann, diesen alten Mann, diesem alten Mann"),
        ("-", "fresh", "juice", "frischer Saft, frischen Saft, frischem Saft"),
        ("-", "fresh", "milk", "frische Milch, frische Milch, frischer Milch"),
        ("my", "expensive", "car", "mein teures Auto, mein teures Auto, meinem teuren Auto"),
        ("Anna's", "tired", "dog", "Annas müder Hund, Annas müden Hund, Annas müdem Hund"),
        ("the", "", "boy", "der Junge, den Jungen, dem Jungen"),
        ("my", "", "neighbor", "mein Nachbar, meinen Nachbarn, meinem Nachbarn"),
        ("the+", "old", "man", "die alten Männer, die alten Männer, den alten Männern"),
        ("my+", "old", "woman", "meine alten Frauen, meine alten Frauen, meinen alten Frauen"),
        ("-+", "old", "child", "alte Kinder, alte Kinder, alten Kindern"),
        ("many+", "old", "car", "viele alte Autos, viele alte Autos, vielen alten Autos"),
    ],
)
def test_noun_phrases_are_declined(determiner: str, adjective: str, english: str, forms: str) -> None:
    cases = phrase(determiner, adjective, english).cases
    assert ", ".join(text.plain().german for text in cases) == forms


@pytest.mark.parametrize(
    ("determiner", "adjective", "english", "expected"),
    [
        ("a", "", "apple", "an apple"),
        ("a", "big", "apple", "a big apple"),
        ("a", "old", "dog", "an old dog"),
        ("this+", "", "knife", "these knives"),
        ("not-a+", "", "mouse", "mice"),
        ("my+", "", "tomato", "my tomatoes"),
        ("the+", "", "waitress", "the waitresses"),
        ("how-many+", "red", "hat", "how many red hats"),
    ],
)
def test_english_has_its_articles_and_plurals(determiner: str, adjective: str, english: str, expected: str) -> None:
    assert phrase(determiner, adjective, english).cases[0].plain().english == expected


def test_a_relative_pronoun_has_the_gender_and_number_of_its_antecedent() -> None:
    assert relative("who", phrase("a", "", "man")).cases[ACCUSATIVE].plain() == ("who", "den")
    assert relative("who", phrase("the+", "", "man")).cases[DATIVE].plain() == ("who", "denen")


@pytest.mark.parametrize(
    ("place", "at", "to"),
    [
        ("station", "am Bahnhof", "zum Bahnhof"),
        ("city", "in der Stadt", "in die Stadt"),
        ("village", "im Dorf", "ins Dorf"),
        ("market", "auf dem Markt", "zum Markt"),
        ("bench", "unter der Bank", "unter die Bank"),
    ],
)
def test_prepositions_of_place_contract_with_the_article(place: str, at: str, to: str) -> None:
    german, being, going = DATA["places"][place]
    cases = noun_phrase("the", "", place, german).cases
    assert prepositional(being, cases[DATIVE]).plain().german == at
    assert prepositional(going, cases[DATIVE if going.endswith(" zu") else ACCUSATIVE]).plain().german == to


@pytest.mark.parametrize(
    ("english", "tense", "agreement", "finite_end_last"),
    [
        ("buy", "present", 0, "kaufe, , kaufe"),
        ("buy", "progressive", 1, "kauft, , kauft"),
        ("read", "present", 1, "liest, , liest"),
        ("open", "present", 1, "macht, auf, aufmacht"),
        ("open", "present", 2, "machen, auf, aufmachen"),
        ("open", "past", 1, "hat, aufgemacht, aufgemacht hat"),
        ("open", "can", 2, "können, aufmachen, aufmachen können"),
        ("invite", "present", 1, "lädt, ein, einlädt"),
        ("go", "past", 0, "bin, gegangen, gegangen bin"),
        ("sleep", "future", 0, "werde, schlafen, schlafen werde"),
        ("sleep", "wanted", 1, "wollte, schlafen, schlafen wollte"),
        ("be", "present", 2, "sind, , sind"),
        ("be", "past", 2, "waren, , waren"),
    ],
)
def test_german_verbs_are_conjugated(english: str, tense: str, agreement: int, finite_end_last: str) -> None:
    _, _, _, *german = verb_form(verb(english).english, verb(english).german, tense, agreement)
    assert [Text("", piece).plain().german for piece in german] == finite_end_last.split(", ")


@pytest.mark.parametrize(
    ("english", "tense", "agreement", "operator_rest_plain"),
    [
        ("buy", "present", 0, "do, buy, buy"),
        ("buy", "present", 1, "does, buy, buys"),
        ("buy", "past", 1, "did, buy, bought"),
        ("buy", "progressive", 2, "are, buying, "),
        ("buy", "want", 1, "does, want to buy, wants to buy"),
        ("buy", "had_to", 1, "did, have to buy, had to buy"),
        ("go", "present", 1, "does, go, goes"),
        ("look for", "present", 1, "does, look for, looks for"),
        ("look for", "progressive", 0, "am, looking for, "),
        ("run", "progressive", 1, "is, running, "),
        ("write", "progressive", 1, "is, writing, "),
        ("have", "present", 1, "does, have, has"),
        ("be", "past", 2, "were, , "),
    ],
)
def test_english_verbs_are_conjugated(english: str, tense: str, agreement: int, operator_rest_plain: str) -> None:
    forms = verb_form(verb(english).english, verb(english).german, tense, agreement)[:3]
    assert [Text(piece).plain().english for piece in forms] == operator_rest_plain.split(", ")


def test_must_not_is_darf_nicht() -> None:
    buy = verb("buy")
    finite = [verb_form(buy.english, buy.german, "must", 1, negative=negative).finite for negative in (False, True)]
    assert [Text("", form).plain().german for form in finite] == ["muss", "darf"]
