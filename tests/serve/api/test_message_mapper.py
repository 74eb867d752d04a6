"""Values and messages map onto each other by field name."""

from dataclasses import fields, replace
from typing import Any

import pytest

from protos import translation_pb2 as messages
from serve.api.message_mapper import message_reader, message_writer, set_fields
from serve.observability.usage import Timings
from serve.registry.registry import ModelDescription
from serve.search.hypothesis import FinishReason
from serve.translation.response import (
    Alternative,
    Pivot,
    ScoreResponse,
    TokenScore,
    Translation,
    TranslationDelta,
    TranslationResponse,
    TranslationScore,
)

TIMINGS = Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7)
TOKENS = (TokenScore("▁eins", -0.25), TokenScore("</s>", -0.125))
ALTERNATIVE = Alternative(
    text="einer", score=-2.5, normalized_score=-1.25, finish_reason=FinishReason.LENGTH, target_tokens=1
)
PLAIN = Translation(
    text="eins", score=-1.5, normalized_score=-0.75, finish_reason=FinishReason.EOS, target_tokens=2, source_tokens=4
)
FULL = replace(
    PLAIN,
    tokens=TOKENS,
    alignments=((0.25, 0.5, 0.25), (0.5, 0.5, 0.0)),
    alternatives=(ALTERNATIVE, replace(ALTERNATIVE, tokens=TOKENS, alignments=((1.0,),))),
    seed=0,
    cached=False,
    sentences=3,
    cut_sentences=1,
)
SCORE = TranslationScore(score=-0.375, tokens=TOKENS, source_tokens=3, target_tokens=1, cached=True)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (messages.TranslateResponse, TranslationResponse((), TIMINGS)),
        (messages.TranslateResponse, TranslationResponse((FULL, PLAIN), TIMINGS, "a", Pivot("en", "b"))),
        (messages.ScoreResponse, ScoreResponse((SCORE, replace(SCORE, cached=None)), TIMINGS, "a")),
        (messages.TranslationDelta, TranslationDelta(text_index=1, text="ä", target_tokens=2)),
        (
            messages.TranslationDelta,
            TranslationDelta(text_index=0, text="", target_tokens=2, finish_reason=FinishReason.LENGTH),
        ),
    ],
)
def test_a_value_survives_the_round_trip_through_its_message(message: Any, value: Any) -> None:
    written = message_writer(message)(value)
    assert isinstance(written, message)
    assert message_reader(message, type(value))(message.FromString(written.SerializeToString())) == value


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (messages.TranslateResponse, TranslationResponse),
        (messages.Translation, Translation),
        (messages.Alternative, Alternative),
        (messages.TranslationDelta, TranslationDelta),
        (messages.ScoreResponse, ScoreResponse),
        (messages.TranslationScore, TranslationScore),
        (messages.Model, ModelDescription),
    ],
)
def test_every_attribute_is_a_field_and_every_field_an_attribute(message: Any, kind: Any) -> None:
    assert {each.name for each in fields(kind)} == set(message.DESCRIPTOR.fields_by_name)


def test_a_missing_required_finish_reason_is_an_error() -> None:
    with pytest.raises(KeyError):
        message_reader(messages.Translation, Translation)(messages.Translation(text="eins"))


def test_only_fields_that_are_set_have_a_name() -> None:
    message = messages.TranslateRequest(text=["a"], model="", split_sentences=False)
    assert set_fields(message) == {"text": ["a"], "split_sentences": False}
