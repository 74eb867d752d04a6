"""The one place where requests are validated, and the values that come out of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.manifest import BundleDirection
from serve.errors import ERRORS, InvalidRequestError
from serve.search.options import SearchOptions
from serve.translation.fields import SearchFields
from serve.translation.request import (
    RequestLimits,
    SearchLimits,
    SearchPlan,
    TargetVocabulary,
    TextRequest,
    TranslationRequest,
)

VOCABULARY = TargetVocabulary.of(("<pad>", "<unk>", "<s>", "</s>"), unk_id=1, eos_id=3)


def make_limits(*directions: BundleDirection) -> RequestLimits:
    return RequestLimits(
        directions=directions,
        max_texts=3,
        max_text_characters=10,
        max_rows=8,
        search=SearchLimits(max_target_tokens=20, max_rows=5, aligned=False, vocabulary=VOCABULARY),
    )


EN_DE = BundleDirection(source="en", target="de", source_prefix=(7,))
FR_DE = BundleDirection(source="fr", target="de", source_prefix=(7,))
DE_EN = BundleDirection(source="de", target="en", source_prefix=(8,))
LIMITS = make_limits(BundleDirection(source="en", target="de"))
MANY = make_limits(EN_DE, FR_DE, DE_EN)
GREEDY = SearchFields()


def admit(
    texts: list[str],
    *,
    source_language: str = "",
    target_language: str = "",
    options: SearchFields = GREEDY,
    target_prefix: Sequence[str] = (),
    deadline_seconds: float = 7.0,
    limits: RequestLimits = LIMITS,
) -> TranslationRequest:
    return limits.admit(
        texts=texts,
        source_language=source_language,
        target_language=target_language,
        options=options,
        target_prefix=target_prefix,
        deadline_seconds=deadline_seconds,
        split_sentences=True,
    )


def admit_pairs(*pairs: tuple[str, str], limits: RequestLimits = LIMITS) -> TranslationRequest:
    return limits.admit_pairs(pairs=pairs, source_language="", target_language="", deadline_seconds=7.0)


def texts_of(request: TranslationRequest) -> list[str]:
    return [each.text for each in request.texts]


def test_a_valid_request_is_kept_as_it_came() -> None:
    options = SearchFields(max_target_tokens=5, token_scores=True)
    request = admit(
        ["a", "b"],
        source_language="en",
        target_language="de",
        options=options,
        target_prefix=["", "c"],
        deadline_seconds=7.0,
    )
    assert request == TranslationRequest(
        (
            TextRequest("a", "", "text[0]", "target_prefix[0]"),
            TextRequest("b", "c", "text[1]", "target_prefix[1]"),
        ),
        (),
        SearchPlan(SearchOptions(max_target_tokens=5), token_scores=True),
        7.0,
        source_language="en",
        split_sentences=True,
    )


def test_a_valid_request_for_scores_is_kept_as_it_came() -> None:
    """All of a translation is forced, and so is its end."""
    assert admit_pairs(("a", "b"), ("c", "")) == TranslationRequest(
        (
            TextRequest("a", "b", "pairs[0].text", "pairs[0].translation"),
            TextRequest("c", "", "pairs[1].text", "pairs[1].translation"),
        ),
        (),
        SearchPlan(SearchOptions(max_target_tokens=20, forced_end=True), token_scores=True),
        7.0,
        source_language="en",
    )


@pytest.mark.parametrize("count", [0, 4])
def test_too_few_and_too_many_pairs_are_refused(count: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"^pairs: {count} pairs, expected 1 to 3$"):
        admit_pairs(*[("a", "b")] * count)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((" ", "b"), "pairs[0].text: blank, expected a sentence"),
        (("a" * 11, "b"), "pairs[0].text: 11 characters, expected at most 10"),
        (("a", "b" * 11), "pairs[0].translation: 11 characters, expected at most 10"),
        (("a", "b\0"), "pairs[0].translation: U+0000 at character 1, expected text without it"),
        (("a", "\ud83d"), "pairs[0].translation: lone surrogate U+D83D at character 0, expected valid Unicode"),
    ],
)
def test_a_pair_that_is_not_valid_is_refused_by_its_part(pair: tuple[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        admit_pairs(pair)
    assert str(refused.value) == message


@pytest.mark.parametrize("prefixes", [["a"], ["a", "b", "c"]])
def test_there_is_a_prefix_for_each_text_or_none(prefixes: list[str]) -> None:
    message = f"^target_prefix: {len(prefixes)} prefixes, expected none or one for each of 2 texts$"
    with pytest.raises(InvalidRequestError, match=message):
        admit(["a", "b"], target_prefix=prefixes)


def test_a_prefix_may_be_blank_but_not_hold_nul() -> None:
    assert admit(["a"], target_prefix=[" "]).texts[0].target_prefix == " "
    with pytest.raises(InvalidRequestError, match=r"^target_prefix\[0\]: U\+0000 at character 0"):
        admit(["a"], target_prefix=["\0"])


def test_a_request_that_never_fits_is_refused() -> None:
    """Two beams of four fill slots and queue; three would wait for ever."""
    four = SearchFields(beam_size=4)
    assert admit(["a", "b"], options=four).plan.options.rows == 4
    with pytest.raises(InvalidRequestError, match=r"^text: 3 texts of 4 hypotheses each, expected at most 8"):
        admit(["a", "b", "c"], options=four)


@pytest.mark.parametrize("count", [0, 4])
def test_too_few_and_too_many_texts_are_refused(count: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"^text: {count} texts, expected 1 to 3$"):
        admit(["a"] * count)


def test_the_longest_text_is_admitted_and_one_character_more_is_not() -> None:
    assert texts_of(admit(["ä" * 10])) == ["ä" * 10]
    with pytest.raises(InvalidRequestError, match=r"^text\[1\]: 11 characters, expected at most 10$"):
        admit(["a", "ä" * 11])


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u2003"])
def test_a_blank_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^text\[0\]: blank"):
        admit([text])


def test_a_text_with_nul_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^text\[0\]: U\+0000 at character 2"):
        admit(["ab\0"])


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^text\[0\]: lone surrogate U\+D83D at character 1"):
        admit(["a\ud83d"])


@pytest.mark.parametrize("field", ["source_language", "target_language"])
def test_a_language_that_is_not_served_is_refused(field: str) -> None:
    side = field.removesuffix("_language")
    with pytest.raises(InvalidRequestError, match=rf"^{field}: 'fr', expected the {side} of one of en-de$"):
        admit(["a"], **{"source_language": "en", "target_language": "de", field: "fr"})  # type: ignore[arg-type]


@pytest.mark.parametrize(("source", "target"), [("", ""), ("en", ""), ("", "de"), ("en", "de")])
def test_a_single_direction_need_not_be_named(source: str, target: str) -> None:
    only = make_limits(EN_DE)
    assert admit(["a"], source_language=source, target_language=target, limits=only).source_prefix == (7,)


@pytest.mark.parametrize(
    ("source", "target", "prefix"), [("en", "de", (7,)), ("fr", "de", (7,)), ("de", "en", (8,)), ("", "en", (8,))]
)
def test_of_many_directions_the_one_that_is_asked_for_is_chosen(
    source: str, target: str, prefix: tuple[int, ...]
) -> None:
    """Where one language alone is translated into the target, the source need not be named."""
    assert admit(["a"], source_language=source, target_language=target, limits=MANY).source_prefix == prefix


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
        admit(["a"], source_language=source, target_language=target, limits=MANY)
    assert str(refused.value) == message


def test_a_long_language_code_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        admit(["a"], source_language="x" * 1000)
    assert len(str(raised.value)) < 100


any_text = st.text(st.characters(exclude_categories=()))


@given(st.lists(any_text), st.text(), st.text(), st.lists(any_text))
def test_any_input_is_either_admitted_unchanged_or_refused_by_the_name_of_a_field(
    texts: list[str], source_language: str, target_language: str, prefixes: list[str]
) -> None:
    refused_field = "none"
    try:
        request = admit(texts, source_language=source_language, target_language=target_language, target_prefix=prefixes)
        assert texts_of(request) == texts
        assert [each.target_prefix for each in request.texts] == (prefixes or [""] * len(texts))
    except InvalidRequestError as error:
        refused_field = error.field.split("[")[0]
        str(error).encode()
    assert refused_field in {"none", "text", "source_language", "target_language", "target_prefix"}


def test_every_error_has_a_reason_of_its_own() -> None:
    assert len({error.reason for error in ERRORS}) == len(ERRORS)


def test_exactly_the_errors_that_a_later_try_can_mend_say_when_to_try() -> None:
    retryable = {error.reason for error in ERRORS if error.retry_after_seconds is not None}
    assert retryable == {"queue_full", "queue_timeout", "deadline_unmeetable", "not_ready", "draining"}
