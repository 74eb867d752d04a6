"""Routing: the rules that choose one model, or two with a pivot."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.bundle.directions import AllPairs, ListedDirections
from dragoman.serve.bundle.manifest import BundleDirection, LanguageToken, Multilingual
from dragoman.serve.errors import InvalidRequestError, ModelNotFoundError
from dragoman.serve.registry import route as module
from dragoman.serve.registry.route import Offers, Routes, find_hop, find_route, find_sources, has_several_sources
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest
from tests.support.cases import cases

CASES = cases(__file__)

LANGUAGES = ("cs", "de", "en", "fr")
LONG = "x" * 1000


def offers(**models: str) -> Offers:
    """Returns models by name, each with directions as in "en-de de-en"."""
    return {
        name: ListedDirections([BundleDirection(source=word[:2], target=word[3:]) for word in directions.split()])
        for name, directions in models.items()
    }


def route(available: Offers, direction: str, **fields: Any) -> list[str]:
    """Returns the hops of a direction such as "en-de", as in "a:en-de"; an empty side is not given."""
    source, _, target = direction.partition("-")
    hops = find_route(TranslateRequest(source_language=source, target_language=target, **fields), available)
    return [f"{hop.model}:{hop.direction}" for hop in hops]


ONE = offers(a="en-de")
TWO = offers(a="en-de", b="en-de de-en")
MANY = offers(a="en-de fr-de de-en")
CHAIN = offers(a="fr-en", b="en-de", c="fr-cs", d="cs-de")


@pytest.mark.parametrize(
    ("models", "direction", "fields", "hops"),
    [pytest.param(*row, id=name) for name, row in CASES["a request is routed"].items()],
)
def test_a_request_is_routed(models: dict[str, str], direction: str, fields: dict[str, Any], hops: list[str]) -> None:
    assert route(offers(**models), direction, **fields) == hops


@pytest.mark.parametrize(
    ("models", "direction", "fields", "field"),
    [
        pytest.param(*row, id=name)
        for name, row in CASES["a missing wrong or ambiguous language is rejected by field"].items()
    ],
)
def test_a_missing_wrong_or_ambiguous_language_is_rejected_by_field(
    models: dict[str, str], direction: str, fields: dict[str, Any], field: str
) -> None:
    """A text is not translated into its own language, and a pivot requires both languages."""
    with pytest.raises(InvalidRequestError) as rejected:
        route(offers(**models), direction, **fields)
    assert rejected.value.field == field
    assert "pivot" not in rejected.value.problem


def test_the_error_names_the_possible_directions_and_a_pivot_that_is_not_allowed() -> None:
    with pytest.raises(InvalidRequestError, match=r"\b(en-de, cs-de|cs-de, en-de)\b.*\ballow_pivot\b.*\bcs$"):
        route(CHAIN, "fr-de")


def test_scores_have_no_pivot() -> None:
    with pytest.raises(InvalidRequestError) as rejected:
        find_hop(ScoreRequest(source_language="fr", target_language="de"), CHAIN)
    assert rejected.value.field == "source_language"
    assert "pivot" not in rejected.value.problem


def test_an_unknown_model_is_not_found_and_the_error_names_the_known_ones() -> None:
    with pytest.raises(ModelNotFoundError, match=r"'c'.*\ba, b$"):
        route(TWO, "en-de", model="c")


@pytest.mark.parametrize(("direction", "fields"), [("en-de", {"model": LONG}), (f"{LONG}-de", {}), (f"en-{LONG}", {})])
def test_a_long_value_is_cut_in_the_message(direction: str, fields: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequestError, ModelNotFoundError)) as rejected:
        route(ONE, direction, **fields)
    assert len(str(rejected.value)) < 120


pairs = st.tuples(st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES)).filter(lambda pair: pair[0] != pair[1])
catalogs = st.dictionaries(
    st.sampled_from("abcde"),
    st.lists(pairs, min_size=1, max_size=4, unique=True).map(lambda chosen: " ".join(map("-".join, chosen))),
    min_size=1,
)


@given(catalogs, st.sampled_from(LANGUAGES), st.sampled_from(LANGUAGES), st.booleans())
def test_every_route_leads_there_over_its_models(models: dict[str, str], source: str, target: str, pivot: bool) -> None:
    have = {direction for directions in models.values() for direction in directions.split()}
    middles = [language for language in LANGUAGES if {f"{source}-{language}", f"{language}-{target}"} <= have]
    try:
        hops = route(offers(**models), f"{source}-{target}", allow_pivot=pivot)
    except InvalidRequestError:
        assert f"{source}-{target}" not in have
        assert not (pivot and middles) or source == target
        return
    used, directions = zip(*(hop.split(":") for hop in hops), strict=True)
    assert all(direction in models[name].split() for name, direction in zip(used, directions, strict=True))
    assert list(directions) == [f"{source}-{target}"] or (
        pivot and list(directions) == [f"{source}-{middles[0]}", f"{middles[0]}-{target}"]
    )


TOKENS = tuple(LanguageToken(language=code, token_id=place) for place, code in enumerate(("de", "en", "fr", "zh-Hant")))


@pytest.mark.parametrize(
    ("starts", "before_source", "prefix", "start"), [(True, "source", (1,), (0,)), (False, "target", (0,), ())]
)
def test_a_multilingual_model_has_every_direction_with_its_tokens(
    starts: bool, before_source: Any, prefix: tuple[int, ...], start: tuple[int, ...]
) -> None:
    many = AllPairs(Multilingual(languages=TOKENS, before_source=before_source, starts=starts))
    found = many.find("en", "de")
    assert found is not None
    assert (found.source_prefix, found.start) == (prefix, start)
    assert len(list(many)) == len(many) == 12
    assert many.find("de", "de") is None
    assert [str(character) for character in many.matching("", "fr")] == ["de-fr", "en-fr", "zh-Hant-fr"]


@pytest.mark.parametrize("name", ["de", "deu", "deu_Latn", "de_DE"])
def test_every_code_of_a_language_is_found(name: str) -> None:
    many: Offers = {"m": AllPairs(Multilingual(languages=TOKENS, before_source="source", starts=True))}
    for available in (many, ONE):
        (hop,) = find_route(TranslateRequest(source_language="eng_Latn", target_language=name), available)
        assert str(hop.direction) == "en-de"
    (hop,) = find_route(TranslateRequest(source_language=name, target_language="zho_Hant"), many)
    assert hop.direction.target == "zh-Hant"


def test_a_language_with_a_region_or_a_name_is_that_of_its_code() -> None:
    request = TranslateRequest(source_language="en-GB", target_language="de-AT")
    assert find_hop(request, ONE).direction == BundleDirection(source="en", target="de")
    assert find_sources(TranslateRequest(target_language="German"), MANY) == ("de", ("en", "fr"))
    assert has_several_sources(TranslateRequest(target_language="DE"), MANY)


def test_an_unknown_language_is_repeated_as_the_client_wrote_it() -> None:
    with pytest.raises(InvalidRequestError, match=r"target_language: 'Klingon', expected the target of one of en-de$"):
        find_hop(TranslateRequest(target_language="Klingon"), ONE)


def test_an_error_names_each_direction_once() -> None:
    with pytest.raises(InvalidRequestError, match=r"expected the target of one of en-de, de-en$"):
        find_hop(TranslateRequest(target_language="Klingon"), TWO)


@pytest.mark.parametrize("languages", [("de", "de"), ("DE", "de-AT"), ("German", "deu")])
def test_equal_languages_are_named_in_every_form(languages: tuple[str, str]) -> None:
    source, target = languages
    with pytest.raises(InvalidRequestError, match=r'target_language: Source and target language are equal: "de"'):
        find_route(TranslateRequest(source_language=source, target_language=target, allow_pivot=True), MANY)


def test_known_routes_are_those_that_would_be_found_and_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROUTES", 2)
    routes = Routes(MANY)
    sources = ["en", f"en-{LONG}", "EN", "English", "fr"]
    for source in 2 * sources:
        request = TranslateRequest(source_language=source, target_language="de")
        assert routes.find(request) == find_route(request, MANY)
    assert [key[1] for key in routes._known] == ["en", "EN"]
    with pytest.raises(InvalidRequestError):
        routes.find(TranslateRequest(source_language="cs", target_language="de"))
