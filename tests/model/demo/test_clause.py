"""Word order: German puts the finite verb second, first or last; English has do-support."""

import pytest

from model.demo.inflection import Case
from model.demo.lexicon import CHILDREN, NOTHING, OPENINGS, THINGS, Pair
from model.demo.noun_phrase import (
    HE,
    NAMED_PEOPLE,
    NOT_A,
    SHE,
    THE,
    THEY,
    A,
    NounPhrase,
    noun_phrase,
    prepositional,
    relative,
)
from model.demo.predicates import Clause, VerbPhrase
from model.demo.verb_form import Tense, verb_form
from model.demo.verbs import PERSON_VERBS

DOOR = noun_phrase(THE, None, OPENINGS.only("door").nouns[0])
HAT = noun_phrase(A, None, THINGS.only("hat").nouns[0])
NO_HAT = noun_phrase(NOT_A, None, THINGS.only("hat").nouns[0])
CHILD = noun_phrase(THE, None, CHILDREN.only("child").nouns[0])
ANNA = NAMED_PEOPLE[0]
TODAY, OFTEN = Pair("today", "heute"), Pair("often", "oft")
IN_VIENNA = Pair("in Vienna", "in Wien")


def phrase_of(german: str, *objects: NounPhrase, negation: str = "") -> VerbPhrase:
    """Give a verb its objects; the first of two is the recipient."""
    verb = next(verb for verb in PERSON_VERBS if verb.german == german)
    phrase = VerbPhrase(verb, negation=negation)
    cases = [Case.DATIVE, Case.ACCUSATIVE] if len(objects) > 1 else [verb.case]
    for thing, case in zip(objects, cases, strict=False):
        phrase = phrase.with_object(thing, case)
    return phrase


def clause(
    subject: NounPhrase,
    phrase: VerbPhrase,
    tense: Tense = Tense.PRESENT,
    *,
    negative: bool = False,
    time: Pair = NOTHING,
    frequency: Pair = NOTHING,
) -> Clause:
    form = verb_form(phrase.verb, tense, subject.agreement, negative=negative)
    return Clause(subject, tense, form, phrase, negative, time, frequency)


OPENS = phrase_of("auf|machen", DOOR)
DOES_NOT_OPEN = phrase_of("auf|machen", DOOR, negation="nicht")


@pytest.mark.parametrize(
    ("tense", "second", "last"),
    [
        (Tense.PRESENT, "Anna macht die Tür auf", "Anna die Tür aufmacht"),
        (Tense.PAST, "Anna hat die Tür aufgemacht", "Anna die Tür aufgemacht hat"),
        (Tense.FUTURE, "Anna wird die Tür aufmachen", "Anna die Tür aufmachen wird"),
        (Tense.WANT, "Anna will die Tür aufmachen", "Anna die Tür aufmachen will"),
    ],
)
def test_a_separable_verb_parts_in_main_clauses_and_closes_subordinate_ones(
    tense: Tense, second: str, last: str
) -> None:
    anna_opens = clause(ANNA, OPENS, tense)
    assert (anna_opens.statement().german, anna_opens.subordinate().german) == (second, last)


@pytest.mark.parametrize(
    ("plural", "english", "german"),
    [(False, "who opens the door", "das die Tür aufmacht"), (True, "who open the door", "die die Tür aufmachen")],
)
def test_a_relative_clause_agrees_with_what_it_is_about(*, plural: bool, english: str, german: str) -> None:
    children = noun_phrase(THE, None, CHILDREN.only("child").nouns[0], plural=plural)
    assert clause(relative("who", children), OPENS).subordinate() == (english, german)


def test_the_subject_follows_the_verb_after_a_fronted_time() -> None:
    pair = clause(ANNA, OPENS).statement_after(Pair("on March 3", "am 3. März"))
    assert pair == ("on March 3 Anna opens the door", "am 3. März macht Anna die Tür auf")


def test_a_yes_no_question_starts_with_the_verb() -> None:
    assert clause(ANNA, OPENS, time=TODAY).question() == (
        "does Anna open the door today",
        "macht Anna die Tür heute auf",
    )


def test_a_question_word_comes_before_the_verb() -> None:
    pair = clause(THEY, OPENS, Tense.PAST).question_after(Pair("when", "wann"))
    assert pair == ("when did they open the door", "wann haben sie die Tür aufgemacht")


def test_a_known_object_precedes_the_time_and_a_new_one_follows_it() -> None:
    assert clause(ANNA, OPENS, time=TODAY).statement().german == "Anna macht die Tür heute auf"
    assert clause(ANNA, phrase_of("kaufen", HAT), time=TODAY).statement().german == "Anna kauft heute einen Hut"


def test_place_stands_between_the_known_and_the_new() -> None:
    phrase = phrase_of("geben", CHILD, HAT).with_circumstance(IN_VIENNA)
    assert clause(ANNA, phrase, time=TODAY).statement() == (
        "Anna gives the child a hat in Vienna today",
        "Anna gibt dem Kind heute in Wien einen Hut",
    )


def test_an_adverb_of_frequency_precedes_the_english_verb() -> None:
    phrase = phrase_of("kaufen", HAT)
    assert clause(SHE, phrase, frequency=OFTEN).statement() == ("she often buys a hat", "sie kauft oft einen Hut")
    assert clause(SHE, phrase, frequency=OFTEN).question().english == "does she often buy a hat"


def test_nicht_follows_known_objects_and_the_time() -> None:
    assert clause(HE, DOES_NOT_OPEN, negative=True, time=TODAY).statement() == (
        "he does not open the door today",
        "er macht die Tür heute nicht auf",
    )


def test_nicht_precedes_place_and_destination() -> None:
    to_vienna = phrase_of("reisen", negation="nicht").with_rest(Pair("to Vienna", "nach Wien"))
    sleeps = phrase_of("schlafen", negation="nicht").with_circumstance(IN_VIENNA)
    assert clause(HE, to_vienna, Tense.PAST, negative=True).statement().german == "er ist nicht nach Wien gereist"
    assert clause(HE, sleeps, negative=True).statement().german == "er schläft nicht in Wien"


def test_a_new_object_is_negated_by_kein() -> None:
    pair = clause(HE, phrase_of("kaufen", NO_HAT), negative=True, time=TODAY).statement()
    assert pair == ("he does not buy a hat today", "er kauft heute keinen Hut")


@pytest.mark.parametrize(
    ("tense", "english", "german"),
    [
        (Tense.PRESENT, "they do not open the door", "sie machen die Tür nicht auf"),
        (Tense.PROGRESSIVE, "they are not opening the door", "sie machen die Tür nicht auf"),
        (Tense.PAST, "they did not open the door", "sie haben die Tür nicht aufgemacht"),
        (Tense.CAN, "they cannot open the door", "sie können die Tür nicht aufmachen"),
        (Tense.MUST, "they must not open the door", "sie dürfen die Tür nicht aufmachen"),
        (Tense.WANT, "they do not want to open the door", "sie wollen die Tür nicht aufmachen"),
        (Tense.HAD_TO, "they did not have to open the door", "sie mussten die Tür nicht aufmachen"),
    ],
)
def test_english_negation_needs_a_helper(tense: Tense, english: str, german: str) -> None:
    assert clause(THEY, DOES_NOT_OPEN, tense, negative=True).statement() == (english, german)


def test_some_verbs_take_the_dative() -> None:
    assert clause(SHE, phrase_of("helfen", CHILD)).statement() == ("she helps the child", "sie hilft dem Kind")


def test_a_prepositional_object_stands_last() -> None:
    bus = prepositional("", "auf", Case.ACCUSATIVE, CHILD)
    phrase = phrase_of("warten", negation="nicht")._replace(english="for").with_rest(bus)
    pair = clause(SHE, phrase, Tense.WANT, negative=True, time=TODAY).statement()
    assert pair == ("she does not want to wait for the child today", "sie will heute nicht auf das Kind warten")
