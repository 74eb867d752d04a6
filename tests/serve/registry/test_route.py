"""Routing: the rules that choose one model, or two with a pivot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError, ModelNotFoundError, ServiceError
from serve.registry.registry import Hop, Offers, choose_direction, find_hop, find_route
from serve.translation.request import ScoreRequest, TranslateRequest

LANGUAGES = ("cs", "de", "en", "fr")


def offers(**models: str) -> Offers:
    """Returns models by name, each with directions as in "en-de de-en"."""
    return {
        name: [BundleDirection(source=each[:2], target=each[3:]) for each in directions.split()]
        for name, directions in models.items()
    }


def hop(model: str, direction: str) -> Hop:
    return Hop(model, BundleDirection(source=direction[:2], target=direction[3:]))


def route(available: Offers, source: str, target: str, *, model: str = "", pivot: bool = False) -> tuple[Hop, ...]:
    request = TranslateRequest(model=model, source_language=source, target_language=target, allow_pivot=pivot)
    return find_route(request, available)


def refusal(available: Offers, source: str, target: str, *, model: str = "", pivot: bool = False) -> str:
    with pytest.raises(ServiceError) as refused:
        route(available, source, target, model=model, pivot=pivot)
    return str(refused.value)


TWO = offers(a="en-de", b="en-de de-en")
CHAIN = offers(a="fr-en", b="en-de", c="fr-cs", d="cs-de")


def test_the_first_model_that_has_the_direction_translates() -> None:
    assert route(TWO, "en", "de") == (hop("a", "en-de"),)
    assert route(TWO, "de", "en") == (hop("b", "de-en"),)


def test_a_model_that_is_named_translates() -> None:
    assert route(TWO, "en", "de", model="b") == (hop("b", "en-de"),)


def test_the_only_direction_need_not_be_named_whoever_has_it() -> None:
    assert route(offers(a="en-de", b="en-de"), "", "") == (hop("a", "en-de"),)


def test_a_model_that_is_named_decides_what_is_clear() -> None:
    """Directions of other models cause no ambiguity."""
    assert route(TWO, "", "", model="a") == (hop("a", "en-de"),)
    assert refusal(TWO, "", "") == "target_language: '', expected the target of one of en-de, de-en"


def test_a_name_that_no_model_has_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ModelNotFoundError, match=r"^model: 'c', expected one of a, b$"):
        route(TWO, "en", "de", model="c")


def test_a_long_name_is_cut_in_the_message() -> None:
    assert len(refusal(TWO, "en", "de", model="x" * 1000)) < 120


def test_without_a_direction_a_pivot_is_taken_if_it_is_allowed() -> None:
    assert route(offers(a="fr-en", b="en-de"), "fr", "de", pivot=True) == (hop("a", "fr-en"), hop("b", "en-de"))


def test_a_direction_is_better_than_a_pivot() -> None:
    available = offers(a="fr-en", b="en-de", c="fr-de en-fr")
    assert route(available, "fr", "de", pivot=True) == (hop("c", "fr-de"),)


def test_of_several_pivots_the_first_in_the_alphabet_is_taken() -> None:
    assert route(CHAIN, "fr", "de", pivot=True) == (hop("c", "fr-cs"), hop("d", "cs-de"))


def test_who_does_not_allow_a_pivot_is_told_that_there_would_be_one() -> None:
    expected = "source_language: 'fr', expected the source of one of en-de, cs-de; allow_pivot would translate through"
    assert refusal(CHAIN, "fr", "de") == f"{expected} cs"


def test_a_model_that_is_named_translates_into_the_pivot_and_from_it() -> None:
    available = offers(a="fr-en", b="en-de", c="fr-cs cs-de de-fr")
    assert route(available, "fr", "de", model="c", pivot=True) == (hop("c", "fr-cs"), hop("c", "cs-de"))
    assert refusal(available, "fr", "de", model="a", pivot=True) == (
        "target_language: 'de', expected the target of one of fr-en"
    )


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("fr", ""), ("en", "en"), ("de", "fr")])
def test_where_there_is_no_pivot_the_error_is_the_usual_one(source: str, target: str) -> None:
    """A text is not translated into its own language, and a pivot requires both languages."""
    assert "pivot" not in refusal(CHAIN, source, target, pivot=True)


def test_scores_have_no_pivot_and_no_error_speaks_of_one() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        find_hop(ScoreRequest(source_language="fr", target_language="de"), CHAIN)
    assert "pivot" not in str(refused.value)


pairs = st.tuples(st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES)).filter(lambda pair: pair[0] != pair[1])
catalogs = st.dictionaries(
    st.sampled_from("abcde"),
    st.lists(pairs, min_size=1, max_size=4, unique=True).map(
        lambda chosen: [BundleDirection(source=source, target=target) for source, target in chosen]
    ),
    min_size=1,
)


@given(catalogs, st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES), st.booleans())
def test_every_route_leads_there_over_directions_that_its_models_have(
    available: Offers, source: str, target: str, pivot: bool
) -> None:
    try:
        hops = route(available, source, target, pivot=pivot)
    except InvalidRequestError:
        have = {(each.source, each.target) for directions in available.values() for each in directions}
        assert (source, target) not in have
        assert (
            not pivot
            or source == target
            or not any((source, middle) in have and (middle, target) in have for middle in LANGUAGES)
        )
        return
    directions = [each.direction for each in hops]
    assert [source, *(direction.target for direction in directions)] in (
        [source, target],
        [source, directions[0].target, target] if pivot else [],
    )
    assert [direction.source for direction in directions] == [source, *(each.target for each in directions[:-1])]
    assert all(each.direction in available[each.model] for each in hops)


EN_DE = BundleDirection(source="en", target="de", source_prefix=(7,))
FR_DE = BundleDirection(source="fr", target="de", source_prefix=(7,))
DE_EN = BundleDirection(source="de", target="en", source_prefix=(8,))
MANY = (EN_DE, FR_DE, DE_EN)


@pytest.mark.parametrize("field", ["source_language", "target_language"])
def test_a_language_that_is_not_served_is_refused(field: str) -> None:
    side = field.removesuffix("_language")
    with pytest.raises(InvalidRequestError, match=rf"^{field}: 'fr', expected the {side} of one of en-de$"):
        choose_direction([EN_DE], **{"source": "en", "target": "de", side: "fr"})


@pytest.mark.parametrize(("source", "target"), [("", ""), ("en", ""), ("", "de"), ("en", "de")])
def test_a_single_direction_need_not_be_named(source: str, target: str) -> None:
    assert choose_direction([EN_DE], source, target) is EN_DE


@pytest.mark.parametrize(
    ("source", "target", "expected"), [("en", "de", EN_DE), ("fr", "de", FR_DE), ("de", "en", DE_EN), ("", "en", DE_EN)]
)
def test_of_many_directions_the_one_that_is_asked_for_is_chosen(
    source: str, target: str, expected: BundleDirection
) -> None:
    """If only one language has the target, the source is optional."""
    assert choose_direction(MANY, source, target) is expected


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "", "target_language: '', expected the target of one of en-de, fr-de, de-en"),
        ("en", "", "target_language: '', expected the target of one of en-de, fr-de, de-en"),
        ("en", "fr", "target_language: 'fr', expected the target of one of en-de, fr-de, de-en"),
        ("", "de", "source_language: '', expected the source of one of en-de, fr-de"),
        ("de", "de", "source_language: 'de', expected the source of one of en-de, fr-de"),
        ("en", "en", "source_language: 'en', expected the source of one of de-en"),
    ],
)
def test_of_many_directions_a_wrong_missing_or_ambiguous_language_is_refused(
    source: str, target: str, message: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        choose_direction(MANY, source, target)
    assert str(refused.value) == message


def test_a_long_language_code_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        choose_direction([EN_DE], "x" * 1000, "")
    assert len(str(raised.value)) < 100
