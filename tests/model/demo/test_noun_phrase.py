"""Noun phrases have the correct article, adjective ending and noun in every German case, and in English."""

import pytest

from model.demo import lexicon
from model.demo import lexicon as nouns
from model.demo import noun_phrase as noun_phrases
from model.demo.inflection import Case
from model.demo.lexicon import FAR, Adjective, Noun, NounClass, Pair, Place
from model.demo.noun_phrase import Determiner, both, counted, noun_phrase, possessed, prepositional, relative


def noun(english: str) -> Noun:
    for noun_class in vars(nouns).values():
        if isinstance(noun_class, NounClass):
            for candidate in noun_class.nouns:
                if candidate.english == english:
                    return candidate
    raise LookupError(english)


THE, A, THIS, MANY, BARE = noun_phrases.THE, noun_phrases.A, noun_phrases.THIS, noun_phrases.MANY, noun_phrases.BARE
MY, ANNAS = noun_phrases.POSSESSIVES[0], noun_phrases.OF_NAMES[0]
OLD, FRESH, EXPENSIVE = lexicon.OLD, lexicon.FRESH, lexicon.EXPENSIVE

SINGULARS = [
    (THE, OLD, "man", "der alte Mann, den alten Mann, dem alten Mann, des alten Mannes"),
    (THE, OLD, "woman", "die alte Frau, die alte Frau, der alten Frau, der alten Frau"),
    (THE, OLD, "child", "das alte Kind, das alte Kind, dem alten Kind, des alten Kindes"),
    (A, OLD, "man", "ein alter Mann, einen alten Mann, einem alten Mann, eines alten Mannes"),
    (A, OLD, "woman", "eine alte Frau, eine alte Frau, einer alten Frau, einer alten Frau"),
    (A, OLD, "child", "ein altes Kind, ein altes Kind, einem alten Kind, eines alten Kindes"),
    (THIS, OLD, "man", "dieser alte Mann, diesen alten Mann, diesem alten Mann, dieses alten Mannes"),
    (THIS, OLD, "child", "dieses alte Kind, dieses alte Kind, diesem alten Kind, dieses alten Kindes"),
    (BARE, FRESH, "juice", "frischer Saft, frischen Saft, frischem Saft, frischen Saftes"),
    (BARE, FRESH, "milk", "frische Milch, frische Milch, frischer Milch, frischer Milch"),
    (BARE, FRESH, "water", "frisches Wasser, frisches Wasser, frischem Wasser, frischen Wassers"),
    (MY, EXPENSIVE, "car", "mein teures Auto, mein teures Auto, meinem teuren Auto, meines teuren Autos"),
    (ANNAS, OLD, "dog", "Annas alter Hund, Annas alten Hund, Annas altem Hund, Annas alten Hundes"),
    (THE, None, "boy", "der Junge, den Jungen, dem Jungen, des Jungen"),
    (MY, None, "neighbor", "mein Nachbar, meinen Nachbarn, meinem Nachbarn, meines Nachbarn"),
]
PLURALS = [
    (THE, OLD, "man", "die alten Männer, die alten Männer, den alten Männern, der alten Männer"),
    (MY, OLD, "woman", "meine alten Frauen, meine alten Frauen, meinen alten Frauen, meiner alten Frauen"),
    (BARE, OLD, "child", "alte Kinder, alte Kinder, alten Kindern, alter Kinder"),
    (MANY, OLD, "car", "viele alte Autos, viele alte Autos, vielen alten Autos, vieler alter Autos"),
]


@pytest.mark.parametrize(("determiner", "adjective", "english", "forms"), SINGULARS)
def test_singulars_are_declined(determiner: Determiner, adjective: Adjective | None, english: str, forms: str) -> None:
    assert ", ".join(noun_phrase(determiner, adjective, noun(english)).german) == forms


@pytest.mark.parametrize(("determiner", "adjective", "english", "forms"), PLURALS)
def test_plurals_are_declined(determiner: Determiner, adjective: Adjective | None, english: str, forms: str) -> None:
    assert ", ".join(noun_phrase(determiner, adjective, noun(english), plural=True).german) == forms


@pytest.mark.parametrize(
    ("determiner", "adjective", "english", "plural", "expected"),
    [
        (A, None, "apple", False, "an apple"),
        (A, lexicon.BIG, "apple", False, "a big apple"),
        (A, OLD, "dog", False, "an old dog"),
        (THIS, None, "knife", True, "these knives"),
        (noun_phrases.NOT_A, None, "mouse", True, "mice"),
        (MY, None, "tomato", True, "my tomatoes"),
        (THE, None, "waitress", True, "the waitresses"),
        (ANNAS, FRESH, "bread", False, "Anna's fresh bread"),
    ],
)
def test_english_has_its_articles_and_plurals(
    determiner: Determiner, adjective: Adjective | None, english: str, plural: bool, expected: str
) -> None:
    assert noun_phrase(determiner, adjective, noun(english), plural=plural).english == expected


def test_a_numeral_leaves_the_strong_endings_alone() -> None:
    phrase = counted(Pair("twenty-three", "dreiundzwanzig"), noun_phrase(BARE, OLD, noun("apple"), plural=True))
    assert (phrase.english, phrase.german[Case.DATIVE]) == ("twenty-three old apples", "dreiundzwanzig alten Äpfeln")


def test_an_owner_follows_in_the_genitive() -> None:
    phrase = possessed(noun_phrase(THE, None, noun("farmer")), noun_phrase(noun_phrases.OWNED, OLD, noun("dog")))
    assert (phrase.english, phrase.german[Case.DATIVE]) == ("the farmer's old dog", "dem alten Hund des Bauern")


def test_two_people_are_a_plural() -> None:
    phrase = both(noun_phrase(THE, None, noun("boy")), noun_phrase(THE, None, noun("girl")))
    assert (phrase.english, phrase.german[Case.DATIVE]) == ("the boy and the girl", "dem Jungen und dem Mädchen")


def test_a_relative_pronoun_takes_the_gender_of_what_it_stands_for() -> None:
    assert relative("who", noun_phrase(A, None, noun("man"))).german == ("der", "den", "dem", "des")
    assert relative("who", noun_phrase(THE, None, noun("man"), plural=True)).german[Case.DATIVE] == "denen"


@pytest.mark.parametrize(
    ("english", "at", "to"),
    [
        ("station", "am Bahnhof", "zum Bahnhof"),
        ("city", "in der Stadt", "in die Stadt"),
        ("village", "im Dorf", "ins Dorf"),
        ("market", "auf dem Markt", "zum Markt"),
    ],
)
def test_prepositions_of_place_contract_and_choose_the_case(english: str, at: str, to: str) -> None:
    place = next(place for place in FAR if isinstance(place, Place) and place.noun.english == english)
    phrase = noun_phrase(THE, None, place.noun)
    assert prepositional(place.english, place.german, Case.DATIVE, phrase).german == at
    assert prepositional("to", place.to, place.case_of_destination, phrase).german == to
