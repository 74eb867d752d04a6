"""How a pivot splits the options of a request, and joins the responses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import InvalidRequestError
from serve.observability.usage import Timings
from serve.search.hypothesis import FinishReason
from serve.translation.fields import SearchFields
from serve.translation.pivot import LAST_OPTIONS, ask_last, explain, join, split_options
from serve.translation.request import TranslateRequest
from serve.translation.response import Alternative, Pivot, Translation, TranslationResponse


def test_how_to_search_holds_for_both_translations() -> None:
    options = SearchFields(beam_size=4, patience=2.0, length_penalty=0.6, repetition_penalty=1.2, suppress_unknown=True)
    assert split_options(options) == (options, options)


def test_what_belongs_to_the_text_that_the_client_gets_is_for_the_last() -> None:
    options = SearchFields(
        beam_size=4,
        hypotheses=3,
        max_target_tokens=9,
        min_target_tokens=2,
        max_target_ratio=2.0,
        min_target_ratio=0.5,
        suppressed_tokens=("a",),
        token_scores=True,
    )
    first, last = split_options(options)
    assert first == SearchFields(beam_size=4)
    assert last == options
    assert set(LAST_OPTIONS) | {"beam_size"} == options.model_fields_set


def test_both_draw_with_one_seed_that_the_answer_can_tell() -> None:
    first, last = split_options(SearchFields(temperature=0.5))
    assert first.seed == last.seed is not None
    assert split_options(SearchFields(temperature=0.5, seed=7))[0].seed == 7


def test_without_a_temperature_there_is_no_seed() -> None:
    assert split_options(SearchFields())[0].seed is None


def test_alignments_are_refused() -> None:
    """Alignments would refer to the pivot text, which the client does not get."""
    with pytest.raises(InvalidRequestError, match=r"^options\.alignments: true, expected false"):
        split_options(SearchFields(alignments=True))


@given(
    st.builds(
        SearchFields,
        beam_size=st.integers(1, 8),
        hypotheses=st.just(1),
        max_target_tokens=st.none() | st.integers(5, 9),
        min_target_tokens=st.integers(0, 5),
        suppressed_tokens=st.lists(st.text(), max_size=3).map(tuple),
    )
)
def test_the_options_of_both_are_valid(options: SearchFields) -> None:
    for each in split_options(options):
        assert SearchFields.model_validate(each.model_dump(exclude_defaults=True)) == each


def translation(text: str, finish_reason: FinishReason, tokens: int) -> Translation:
    return Translation(
        text=text,
        score=-float(tokens),
        normalized_score=-1.0,
        finish_reason=finish_reason,
        target_tokens=tokens,
        source_tokens=10 * tokens,
        alternatives=(
            Alternative(
                text="other", score=-9.0, normalized_score=-2.0, finish_reason=FinishReason.EOS, target_tokens=1
            ),
        ),
    )


def response(tokens: int, *finish_reasons: FinishReason) -> TranslationResponse:
    translations = tuple(translation(f"text {tokens}", reason, tokens) for reason in finish_reasons)
    return TranslationResponse(translations, Timings(0.1, 0.2, 0.3, 0.7), f"model {tokens}")


PIVOT = Pivot("en", "model 1")
EOS, LENGTH = FinishReason.EOS, FinishReason.LENGTH


def test_the_answer_has_the_clients_source_the_last_text_and_the_time_of_both() -> None:
    joined = join(response(1, EOS), response(2, EOS), PIVOT)
    (only,) = joined.translations
    assert (only.text, only.score, only.target_tokens, only.source_tokens) == ("text 2", -2.0, 2, 10)
    assert (joined.model, joined.pivot) == ("model 2", PIVOT)
    assert joined.timings == Timings(0.2, 0.4, 0.6, 1.4)


def test_a_translation_of_a_text_that_was_cut_off_is_cut_off() -> None:
    joined = join(response(1, EOS, LENGTH, EOS, LENGTH), response(2, EOS, EOS, LENGTH, LENGTH), PIVOT)
    assert [each.finish_reason for each in joined.translations] == [EOS, LENGTH, LENGTH, LENGTH]


def test_the_last_model_gets_the_texts_between() -> None:
    assert ask_last(TranslateRequest(text=["a", "b"]), response(3, EOS, EOS)).text == ["text 3", "text 3"]


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("sentences", [1, 2])
def test_what_is_one_sentence_for_the_client_stays_one(wanted: bool, sentences: int) -> None:
    first = response(3, EOS)
    between = replace(first, translations=(replace(first.translations[0], sentences=sentences),))
    asked = ask_last(TranslateRequest(text=["a"], split_sentences=wanted), between)
    assert asked.split_sentences is (wanted and sentences == 2)


def test_a_text_that_the_second_model_does_not_take_is_named_as_the_clients() -> None:
    error = explain(InvalidRequestError("text[2]", "300 tokens, expected at most 256"), "en")
    assert (error.field, str(error)) == (
        "text[2]",
        "text[2]: translation into the pivot language en: 300 tokens, expected at most 256",
    )


def test_another_fault_is_told_as_it_is() -> None:
    error = InvalidRequestError("target_prefix[0]", "30 tokens, expected at most 20")
    assert explain(error, "en") is error
