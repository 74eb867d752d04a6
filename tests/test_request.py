"""The one place where requests are validated, and the values that come out of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.manifest import BundleDirection
from serve.errors import ERRORS, InvalidRequestError
from serve.request import RequestLimits, TranslationRequest


def make_limits(*directions: BundleDirection) -> RequestLimits:
    return RequestLimits(directions=directions, max_texts=3, max_text_characters=10, max_target_tokens=20)


EN_DE = BundleDirection(source="en", target="de", source_prefix=(7,))
FR_DE = BundleDirection(source="fr", target="de", source_prefix=(7,))
DE_EN = BundleDirection(source="de", target="en", source_prefix=(8,))
LIMITS = make_limits(BundleDirection(source="en", target="de"))
MANY = make_limits(EN_DE, FR_DE, DE_EN)


def admit(
    texts: list[str],
    *,
    source_language: str = "",
    target_language: str = "",
    max_target_tokens: int | None = None,
    deadline_seconds: float | None = None,
    limits: RequestLimits = LIMITS,
) -> TranslationRequest:
    return limits.admit(
        texts=texts,
        source_language=source_language,
        target_language=target_language,
        max_target_tokens=max_target_tokens,
        deadline_seconds=deadline_seconds,
    )


def test_a_valid_request_is_kept_as_it_came() -> None:
    request = admit(["a", "b"], source_language="en", target_language="de", max_target_tokens=5, deadline_seconds=7.0)
    assert request == TranslationRequest(("a", "b"), (), 5, 7.0)


def test_the_length_of_a_translation_defaults_to_the_models_limit() -> None:
    assert admit(["a"]).max_target_tokens == 20


@pytest.mark.parametrize("count", [0, 4])
def test_too_few_and_too_many_texts_are_refused(count: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"^text: {count} texts, expected 1 to 3$"):
        admit(["a"] * count)


def test_the_longest_text_is_admitted_and_one_character_more_is_not() -> None:
    assert admit(["ä" * 10]).texts == ("ä" * 10,)
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


@pytest.mark.parametrize("max_target_tokens", [-1, 0, 21])
def test_a_length_out_of_range_is_refused(max_target_tokens: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^max_target_tokens: {max_target_tokens}, expected 1 to 20$"):
        admit(["a"], max_target_tokens=max_target_tokens)


@given(st.lists(st.text(st.characters(exclude_categories=()))), st.text(), st.text(), st.none() | st.integers())
def test_any_input_is_either_admitted_unchanged_or_refused_by_the_name_of_a_field(
    texts: list[str], source_language: str, target_language: str, max_target_tokens: int | None
) -> None:
    refused_field = "none"
    try:
        request = admit(
            texts,
            source_language=source_language,
            target_language=target_language,
            max_target_tokens=max_target_tokens,
        )
        assert request.texts == tuple(texts)
        assert 1 <= request.max_target_tokens <= 20
    except InvalidRequestError as error:
        refused_field = error.field.split("[")[0]
        str(error).encode()
    assert refused_field in {"none", "text", "source_language", "target_language", "max_target_tokens"}


def test_every_error_has_a_reason_of_its_own() -> None:
    assert len({error.reason for error in ERRORS}) == len(ERRORS)


def test_exactly_the_errors_that_a_later_try_can_mend_say_when_to_try() -> None:
    retryable = {error.reason for error in ERRORS if error.retry_after_seconds is not None}
    assert retryable == {"queue_full", "not_ready", "draining"}
