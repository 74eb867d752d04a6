"""Validation of requests, and the resulting values."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.manifest import BundleDirection
from serve.errors import ERRORS, InvalidRequestError
from serve.scheduler.sequence import FairnessKey
from serve.search.options import SearchOptions
from serve.translation.fields import SearchFields
from serve.translation.request import (
    ModelRequest,
    RequestLimits,
    ScoreRequest,
    SearchLimits,
    SearchPlan,
    TargetVocabulary,
    TextRequest,
    TranslateRequest,
)

VOCABULARY = TargetVocabulary.of(("<pad>", "<unk>", "<s>", "</s>"), unk_id=1, eos_id=3)


LIMITS = RequestLimits(
    max_texts=3,
    max_text_characters=10,
    max_rows=8,
    search=SearchLimits(max_target_tokens=20, max_rows=5, aligned=False, vocabulary=VOCABULARY),
)
EN_DE = BundleDirection(source="en", target="de", source_prefix=(7,))
GREEDY = SearchFields()


def admit(texts: list[str], *, options: SearchFields = GREEDY, target_prefix: Sequence[str] = ()) -> ModelRequest:
    return LIMITS.admit(TranslateRequest(text=texts, options=options, target_prefix=target_prefix), EN_DE, 7.0)


def admit_scores(*pairs: tuple[str, str]) -> ModelRequest:
    return LIMITS.admit_scores(ScoreRequest(pairs=pairs), EN_DE, 7.0)


def texts_of(request: ModelRequest) -> list[str]:
    return [each.text for each in request.texts]


def test_a_valid_request_is_kept_as_it_came() -> None:
    stream = FairnessKey()
    request = TranslateRequest(
        text=["a", "b"],
        options=SearchFields(max_target_tokens=5, token_scores=True),
        target_prefix=["", "c"],
        split_sentences=False,
        priority=-2,
        fairness_key=stream,
    )
    assert LIMITS.admit(request, EN_DE, 7.0) == ModelRequest(
        (
            TextRequest("a", "", "text[0]", "target_prefix[0]"),
            TextRequest("b", "c", "text[1]", "target_prefix[1]"),
        ),
        EN_DE,
        SearchPlan(SearchOptions(max_target_tokens=5), token_scores=True),
        7.0,
        split_sentences=False,
        priority=-2,
        fairness_key=stream,
    )


def test_a_valid_request_for_scores_is_kept_as_it_came() -> None:
    """The whole translation and its end are forced."""
    assert admit_scores(("a", "b"), ("c", "")) == ModelRequest(
        (
            TextRequest("a", "b", "pairs[0].text", "pairs[0].translation"),
            TextRequest("c", "", "pairs[1].text", "pairs[1].translation"),
        ),
        EN_DE,
        SearchPlan(SearchOptions(max_target_tokens=20, forced_end=True), token_scores=True),
        7.0,
    )


@pytest.mark.parametrize("count", [0, 4])
def test_too_few_and_too_many_pairs_are_refused(count: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"^pairs: {count} pairs, expected 1 to 3$"):
        admit_scores(*[("a", "b")] * count)


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
        admit_scores(pair)
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
    """Two beams of four fill slots and queue; a third one would wait forever."""
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


any_text = st.text(st.characters(exclude_categories=()))


@given(st.lists(any_text), st.lists(any_text))
def test_any_input_is_either_admitted_unchanged_or_refused_by_the_name_of_a_field(
    texts: list[str], prefixes: list[str]
) -> None:
    refused_field = "none"
    try:
        request = admit(texts, target_prefix=prefixes)
        assert texts_of(request) == texts
        assert [each.target_prefix for each in request.texts] == (prefixes or [""] * len(texts))
    except InvalidRequestError as error:
        refused_field = error.field.split("[")[0]
        str(error).encode()
    assert refused_field in {"none", "text", "target_prefix"}


def test_every_error_has_a_reason_of_its_own() -> None:
    assert len({error.reason for error in ERRORS}) == len(ERRORS)


def test_exactly_the_errors_that_a_later_try_can_mend_say_when_to_try() -> None:
    retryable = {error.reason for error in ERRORS if error.retry_after_seconds is not None}
    assert retryable == {"queue_full", "queue_timeout", "deadline_unmeetable", "not_ready", "draining"}
