"""Variants: both sides of a pair change in the same way."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.data.sources.cleaning import PLACEHOLDER
from dragoman.model.data.sources.variants import in_capitals, respelled, variants, with_placeholder, with_tag

PAIR = ("Delete {0} of 12 files?", "{0} von 12 Dateien löschen?")
SEEDS = st.integers(0, 1000)


@given(SEEDS)
def test_placeholders_are_spelled_in_the_same_new_way_on_both_sides(seed: int) -> None:
    variant = respelled(("Copy {0} to {1}", "Nach {1} kopieren: {0}"), Random(seed))
    assert variant is not None
    english, german = (PLACEHOLDER.findall(side) for side in variant)
    assert sorted(english) == sorted(german)
    assert len(english) == 2


@given(SEEDS)
def test_a_placeholder_stands_for_a_value_of_both_sides(seed: int) -> None:
    variant = with_placeholder(("Remove Firefox 3 times", "Firefox 3 Mal entfernen"), Random(seed))
    assert variant is not None
    assert len(PLACEHOLDER.findall(variant[0])) == 1
    assert PLACEHOLDER.findall(variant[0]) == PLACEHOLDER.findall(variant[1])
    assert ("Firefox" in variant[0]) + ("3" in variant[0]) == 1


@given(SEEDS)
def test_a_tag_encloses_the_text_or_a_value_of_both_sides(seed: int) -> None:
    variant = with_tag(("Wait 3 days", "3 Tage warten"), Random(seed))
    assert variant is not None
    tags = [PLACEHOLDER.findall(side) for side in variant]
    assert tags[0] == tags[1]
    assert len(tags[0]) == 2
    assert [PLACEHOLDER.sub("", side) for side in variant] == ["Wait 3 days", "3 Tage warten"]


def test_capitals_are_for_short_texts_without_placeholders() -> None:
    assert in_capitals(("Save all", "Alle sichern"), Random(0)) == ("SAVE ALL", "ALLE SICHERN")
    assert in_capitals(PAIR, Random(0)) is None


def test_a_text_without_a_value_gets_no_placeholder() -> None:
    assert with_placeholder(("save all", "alle sichern"), Random(0)) is None


def test_a_pair_has_the_same_variant_whatever_else_there_is() -> None:
    pairs = [(f"Open file {number}", f"Datei {number} öffnen") for number in range(100)]
    made = list(variants(pairs))
    assert 5 <= len(made) <= 30
    assert list(variants(pairs[:50])) + list(variants(pairs[50:])) == made
