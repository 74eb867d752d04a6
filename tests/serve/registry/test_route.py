"""Who translates a request: the rules by which a model, or two with a pivot, are chosen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError, ModelNotFoundError, ServiceError
from serve.registry.registry import Hop, Offers, find_hop, find_route
from serve.translation.request import AskedDirection

LANGUAGES = ("cs", "de", "en", "fr")


def offers(**models: str) -> Offers:
    """Returns models by name, each with directions as in "en-de de-en"."""
    return {
        name: [BundleDirection(source=each[:2], target=each[3:]) for each in directions.split()]
        for name, directions in models.items()
    }


def route(available: Offers, source: str, target: str, *, model: str = "", pivot: bool = False) -> tuple[Hop, ...]:
    asked = AskedDirection(model=model, source_language=source, target_language=target, allow_pivot=pivot)
    return find_route(asked, available)


def refusal(available: Offers, source: str, target: str, *, model: str = "", pivot: bool = False) -> str:
    with pytest.raises(ServiceError) as refused:
        route(available, source, target, model=model, pivot=pivot)
    return str(refused.value)


TWO = offers(a="en-de", b="en-de de-en")
CHAIN = offers(a="fr-en", b="en-de", c="fr-cs", d="cs-de")


def test_the_first_model_that_has_the_direction_translates() -> None:
    assert route(TWO, "en", "de") == (Hop("a", "en", "de"),)
    assert route(TWO, "de", "en") == (Hop("b", "de", "en"),)


def test_a_model_that_is_named_translates() -> None:
    assert route(TWO, "en", "de", model="b") == (Hop("b", "en", "de"),)


def test_the_only_direction_need_not_be_named_whoever_has_it() -> None:
    assert route(offers(a="en-de", b="en-de"), "", "") == (Hop("a", "en", "de"),)


def test_a_model_that_is_named_decides_what_is_clear() -> None:
    """The other model's directions make nothing ambiguous."""
    assert route(TWO, "", "", model="a") == (Hop("a", "en", "de"),)
    assert refusal(TWO, "", "") == "target_language: '', expected the target of one of en-de, de-en"


def test_a_name_that_no_model_has_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ModelNotFoundError, match=r"^model: 'c', expected one of a, b$"):
        route(TWO, "en", "de", model="c")


def test_a_long_name_is_cut_in_the_message() -> None:
    assert len(refusal(TWO, "en", "de", model="x" * 1000)) < 120


def test_without_a_direction_a_pivot_is_taken_if_it_is_allowed() -> None:
    assert route(offers(a="fr-en", b="en-de"), "fr", "de", pivot=True) == (Hop("a", "fr", "en"), Hop("b", "en", "de"))


def test_a_direction_is_better_than_a_pivot() -> None:
    available = offers(a="fr-en", b="en-de", c="fr-de en-fr")
    assert route(available, "fr", "de", pivot=True) == (Hop("c", "fr", "de"),)


def test_of_several_pivots_the_first_in_the_alphabet_is_taken() -> None:
    assert route(CHAIN, "fr", "de", pivot=True) == (Hop("c", "fr", "cs"), Hop("d", "cs", "de"))


def test_who_does_not_allow_a_pivot_is_told_that_there_would_be_one() -> None:
    expected = (
        "source_language: 'fr', expected the source of one of en-de, cs-de; with allow_pivot, it would go by way of"
    )
    assert refusal(CHAIN, "fr", "de") == f"{expected} cs"


def test_a_model_that_is_named_translates_into_the_pivot_and_from_it() -> None:
    available = offers(a="fr-en", b="en-de", c="fr-cs cs-de de-fr")
    assert route(available, "fr", "de", model="c", pivot=True) == (Hop("c", "fr", "cs"), Hop("c", "cs", "de"))
    assert refusal(available, "fr", "de", model="a", pivot=True) == (
        "target_language: 'de', expected the target of one of fr-en"
    )


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("fr", ""), ("en", "en"), ("de", "fr")])
def test_where_there_is_no_pivot_the_error_is_the_usual_one(source: str, target: str) -> None:
    """No text is translated into its own language, and both languages must be named."""
    assert "pivot" not in refusal(CHAIN, source, target, pivot=True)


def test_scores_have_no_pivot_and_no_error_speaks_of_one() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        find_hop(AskedDirection(source_language="fr", target_language="de"), CHAIN)
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
    assert [hops[0].source, *(hop.target for hop in hops)] in (
        [source, target],
        [source, hops[0].target, target] if pivot else [],
    )
    for hop in hops:
        assert (hop.source, hop.target) in {(each.source, each.target) for each in available[hop.model]}
