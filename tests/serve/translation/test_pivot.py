"""How a pivot splits the options of a request, and joins the responses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.usage import Timings
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.pivot import LAST_OPTIONS, ask_last, explained, join, split_options
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Pivot, TranslationResponse
from tests.support.translators import made_translation


def test_how_to_search_is_for_both_hops_and_what_the_client_gets_for_the_last() -> None:
    search: dict[str, Any] = {"beam_size": 4, "patience": 2.0, "length_penalty": 0.6, "repetition_penalty": 1.2}
    search["suppress_unknown"] = True
    lengths = {"max_target_tokens": 9, "min_target_tokens": 2, "max_target_ratio": 2.0, "min_target_ratio": 0.5}
    result = {"hypotheses": 3, **lengths, "suppressed_tokens": ("a",), "token_scores": True}
    options = SearchFields.parse({**search, **result})
    assert split_options(options) == (SearchFields.parse(search), options)
    assert set(LAST_OPTIONS) == set(result)


def test_both_hops_sample_with_one_seed() -> None:
    first, last = split_options(SearchFields(temperature=0.5))
    assert first.seed == last.seed is not None
    assert split_options(SearchFields(temperature=0.5, seed=7))[0].seed == 7
    assert split_options(SearchFields())[0].seed is None


@settings(max_examples=30)
@given(
    st.builds(
        SearchFields,
        beam_size=st.integers(1, 8),
        max_target_tokens=st.none() | st.integers(5, 9),
        min_target_tokens=st.integers(0, 5),
        suppressed_tokens=st.lists(st.text(), max_size=3).map(tuple),
    )
)
def test_the_options_of_both_are_valid(options: SearchFields) -> None:
    for option in split_options(options):
        assert SearchFields.model_validate(option.model_dump(exclude_defaults=True)) == option


def response(tokens: int, *finish_reasons: FinishReason) -> TranslationResponse:
    """Returns the response of one hop, whose numbers follow from the number of target tokens."""
    translations = tuple(
        made_translation(f"text {tokens}", tokens, finish_reason=reason, source_tokens=10 * tokens)
        for reason in finish_reasons
    )
    return TranslationResponse(translations, Timings(0.1, 0.2, 0.3, 0.7), f"model {tokens}")


PIVOT = Pivot("en", "model 1")
EOS, LENGTH = FinishReason.EOS, FinishReason.LENGTH


def test_the_response_has_the_source_of_the_client_the_last_text_and_the_time_of_both() -> None:
    joined = join(response(1, EOS), response(2, EOS), PIVOT)
    (only,) = joined.translations
    assert (only.text, only.score, only.target_tokens, only.source_tokens) == ("text 2", -2.0, 2, 10)
    assert (joined.model, joined.pivot) == ("model 2", PIVOT)
    assert joined.timings == Timings(0.2, 0.4, 0.6, 1.4)


def test_alignments_of_both_hops_are_multiplied_for_every_alternative() -> None:
    words = [(0, 1), (2, 3)]
    straight, crossed = (Alignment.of(words, words, weights) for weights in (np.eye(2), np.eye(2)[::-1]))
    (first,), (last,) = (response(tokens, EOS).translations for tokens in (1, 2))
    last = replace(last, alignments=(crossed,), alternatives=(replace(last, alignments=(straight,)),))
    hops = (replace(first, alignments=(crossed,)), last)
    responses = [TranslationResponse((hop,), Timings(0.0, 0.0, 0.0, 0.0)) for hop in hops]
    (joined,) = join(responses[0], responses[1], PIVOT).translations
    assert (joined.alignments, joined.alternatives[0].alignments) == ((straight,), (crossed,))


def test_a_translation_that_either_hop_cut_off_is_cut_off() -> None:
    joined = join(response(1, EOS, LENGTH, EOS, LENGTH), response(2, EOS, EOS, LENGTH, LENGTH), PIVOT)
    assert [translation.finish_reason for translation in joined.translations] == [EOS, LENGTH, LENGTH, LENGTH]


@pytest.mark.parametrize(
    ("first", "last", "joined"),
    [(None, None, None), (None, False, False), (True, None, True), (False, True, True), (True, False, True)],
)
def test_confidence_is_low_if_either_hop_has_it(first: bool | None, last: bool | None, joined: bool | None) -> None:
    hops = [
        replace(hop, translations=(replace(hop.translations[0], low_confidence=low),))
        for hop, low in ((response(1, EOS), first), (response(2, EOS), last))
    ]
    assert join(hops[0], hops[1], PIVOT).translations[0].low_confidence is joined


@pytest.mark.parametrize(("score", "low"), [(-5.9, False), (-6.1, True), (float("nan"), False)])
def test_confidence_counts_the_end_token_of_each_sentence(score: float, low: bool) -> None:
    translation = replace(response(1, EOS).translations[0], score=score, sentences=2)
    translation.compare(-2.0)
    assert translation.low_confidence is low


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("sentences", [1, 2])
def test_the_last_model_gets_the_pivot_texts_and_a_single_sentence_stays_one(wanted: bool, sentences: int) -> None:
    first = response(3, EOS, EOS)
    between = replace(first, translations=tuple(replace(one, sentences=sentences) for one in first.translations))
    requested = ask_last(TranslateRequest(text=["a", "b"], split_sentences=wanted), between)
    assert requested.text == ["text 3", "text 3"]
    assert requested.split_sentences is (wanted and sentences == 2)


def test_a_pivot_text_that_the_second_model_refuses_is_named_as_the_text_of_the_client() -> None:
    with pytest.raises(InvalidRequestError) as refused, explained("en"):
        raise InvalidRequestError("text[2]", "300 tokens, expected at most 256")
    assert refused.value.field == "text[2]"
    assert "pivot language en" in str(refused.value)
    other = InvalidRequestError("target_prefix[0]", "30 tokens, expected at most 20")
    with pytest.raises(InvalidRequestError) as unchanged, explained("en"):
        raise other
    assert unchanged.value is other
