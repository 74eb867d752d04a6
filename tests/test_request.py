"""The one place where requests are validated, and the values that come out of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import ERRORS, InvalidRequestError
from serve.request import RequestLimits, TranslationRequest

LIMITS = RequestLimits(
    source_language="en", target_language="de", max_texts=3, max_text_characters=10, max_target_tokens=20
)


def admit(
    texts: list[str],
    *,
    source_language: str = "",
    target_language: str = "",
    max_target_tokens: int | None = None,
    deadline_seconds: float | None = None,
) -> TranslationRequest:
    return LIMITS.admit(
        texts=texts,
        source_language=source_language,
        target_language=target_language,
        max_target_tokens=max_target_tokens,
        deadline_seconds=deadline_seconds,
    )


def test_a_valid_request_is_kept_as_it_came() -> None:
    request = admit(["a", "b"], source_language="en", target_language="de", max_target_tokens=5, deadline_seconds=7.0)
    assert request == TranslationRequest(("a", "b"), 5, 7.0)


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
    with pytest.raises(InvalidRequestError, match=rf"^{field}: 'fr', expected '(en|de)'$"):
        LIMITS.admit(
            **{"texts": ["a"], "source_language": "en", "target_language": "de", field: "fr"},  # type: ignore[arg-type]
            max_target_tokens=None,
            deadline_seconds=None,
        )


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
