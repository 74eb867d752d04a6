"""Verbs have the correct form in every tense, split into the pieces of the word order."""

import pytest

from model.demo.inflection import Agreement
from model.demo.verb_form import Mood, Tense, tenses_of, verb_form
from model.demo.verbs import BE, COST, GIVINGS, PERSON_VERBS, REPORTS, Aspect, Verb

FIRST, THIRD, PLURAL = Agreement.FIRST, Agreement.THIRD, Agreement.PLURAL


def verb(german: str) -> Verb:
    return next(verb for verb in (*PERSON_VERBS, *REPORTS, BE) if verb.german == german)


@pytest.mark.parametrize(
    ("german", "tense", "agreement", "finite_end_final"),
    [
        ("kaufen", Tense.PRESENT, FIRST, "kaufe, , kaufe"),
        ("kaufen", Tense.PROGRESSIVE, THIRD, "kauft, , kauft"),
        ("lesen", Tense.PRESENT, THIRD, "liest, , liest"),
        ("auf|machen", Tense.PRESENT, THIRD, "macht, auf, aufmacht"),
        ("auf|machen", Tense.PRESENT, PLURAL, "machen, auf, aufmachen"),
        ("auf|machen", Tense.PAST, THIRD, "hat, aufgemacht, aufgemacht hat"),
        ("auf|machen", Tense.CAN, PLURAL, "können, aufmachen, aufmachen können"),
        ("ein|laden", Tense.PRESENT, FIRST, "lade, ein, einlade"),
        ("ein|laden", Tense.PRESENT, THIRD, "lädt, ein, einlädt"),
        ("gehen", Tense.PAST, FIRST, "bin, gegangen, gegangen bin"),
        ("bleiben", Tense.PAST, PLURAL, "sind, geblieben, geblieben sind"),
        ("schlafen", Tense.FUTURE, FIRST, "werde, schlafen, schlafen werde"),
        ("schlafen", Tense.WANTED, THIRD, "wollte, schlafen, schlafen wollte"),
        ("wissen", Tense.PRESENT, FIRST, "weiß, , weiß"),
        ("wissen", Tense.PAST, PLURAL, "wussten, , wussten"),
        ("sein", Tense.PRESENT, PLURAL, "sind, , sind"),
        ("sein", Tense.PAST, PLURAL, "waren, , waren"),
    ],
)
def test_german_verbs_are_conjugated(german: str, tense: Tense, agreement: Agreement, finite_end_final: str) -> None:
    assert verb_form(verb(german), tense, agreement).german == tuple(finite_end_final.split(", "))


@pytest.mark.parametrize(
    ("german", "tense", "agreement", "statement", "question"),
    [
        ("kaufen", Tense.PRESENT, FIRST, "buy", "do buy"),
        ("kaufen", Tense.PRESENT, THIRD, "buys", "does buy"),
        ("kaufen", Tense.PAST, THIRD, "bought", "did buy"),
        ("kaufen", Tense.PROGRESSIVE, PLURAL, "are buying", "are buying"),
        ("kaufen", Tense.WANT, THIRD, "wants to buy", "does want to buy"),
        ("kaufen", Tense.HAD_TO, THIRD, "had to buy", "did have to buy"),
        ("kaufen", Tense.FUTURE, THIRD, "will buy", "will buy"),
        ("gehen", Tense.PRESENT, THIRD, "goes", "does go"),
        ("suchen", Tense.PRESENT, THIRD, "looks for", "does look for"),
        ("suchen", Tense.PROGRESSIVE, FIRST, "am looking for", "am looking for"),
        ("laufen", Tense.PROGRESSIVE, THIRD, "is running", "is running"),
        ("schreiben", Tense.PROGRESSIVE, THIRD, "is writing", "is writing"),
        ("haben", Tense.PRESENT, THIRD, "has", "does have"),
        ("sein", Tense.PRESENT, FIRST, "am", "am"),
        ("sein", Tense.PAST, PLURAL, "were", "were"),
    ],
)
def test_english_verbs_are_conjugated(
    german: str, tense: Tense, agreement: Agreement, statement: str, question: str
) -> None:
    form = verb_form(verb(german), tense, agreement).english
    assert f"{form.helper} {form.main}".strip() == statement
    assert f"{form.support} {form.bare}".strip() == question


def test_must_not_is_darf_nicht() -> None:
    assert verb_form(verb("kaufen"), Tense.MUST, THIRD).german.finite == "muss"
    assert verb_form(verb("kaufen"), Tense.MUST, THIRD, negative=True).german.finite == "darf"


def test_can_and_not_are_one_word() -> None:
    assert verb_form(verb("kaufen"), Tense.CAN, THIRD, negative=True).english.negated_support == "cannot"


@pytest.mark.parametrize("ambiguous", [verb("lesen"), verb("legen"), COST])
def test_a_verb_whose_past_looks_like_its_present_never_stands_in_the_past(ambiguous: Verb) -> None:
    assert Tense.PAST not in {tense for mood in Mood for tense in tenses_of(ambiguous, mood)}


def test_states_stand_in_present_and_past_only() -> None:
    states = [verb for verb in (*PERSON_VERBS, *REPORTS) if verb.aspect is Aspect.STATE]
    assert {tense for state in states for tense in tenses_of(state, Mood.ANY)} == {Tense.PRESENT, Tense.PAST}


def test_every_verb_that_is_used_has_a_tense_in_every_mood() -> None:
    assert all(tenses_of(verb, mood) for verb in (*PERSON_VERBS, *GIVINGS, *REPORTS) for mood in Mood)
