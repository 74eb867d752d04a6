"""Converting values to messages loses no data, and set options become fields."""

from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from protos import translation_pb2 as messages
from serve.api.grpc_messages import read_score_request, read_translate_request, score_response, translate_response
from serve.errors import InvalidRequestError
from serve.observability.usage import Timings
from serve.scheduler.sequence import FairnessKey
from serve.search.hypothesis import FinishReason
from serve.translation.fields import SearchFields
from serve.translation.request import ScoreRequest, TranslateRequest
from serve.translation.response import (
    Alternative,
    ScoreResponse,
    TokenScore,
    Translation,
    TranslationResponse,
    TranslationScore,
)
from tests.support.wire import as_json

TIMINGS = Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7)
TOKENS = (TokenScore("▁eins", -0.25), TokenScore("</s>", -0.125))
PLAIN = Translation(
    text="zwei",
    score=-1.5,
    normalized_score=-0.75,
    finish_reason=FinishReason.LENGTH,
    target_tokens=2,
    source_tokens=4,
    sentences=3,
    cut_sentences=2,
)
FULL = Translation(
    text="eins",
    score=-0.375,
    normalized_score=-0.1875,
    finish_reason=FinishReason.EOS,
    target_tokens=1,
    tokens=TOKENS,
    alignments=((0.25, 0.5, 0.25),),
    source_tokens=3,
    alternatives=(
        Alternative(
            text="einer",
            score=-2.5,
            normalized_score=-1.25,
            finish_reason=FinishReason.EOS,
            target_tokens=1,
            tokens=TOKENS,
            alignments=((0.5, 0.25, 0.25),),
        ),
    ),
    seed=2**64 - 1,
    cut_sentences=1,
)


def as_written(value: Any) -> Any:
    """Returns a value in its REST form: without None, with lists."""
    if isinstance(value, dict):
        return {name: as_written(member) for name, member in value.items() if member is not None}
    return [as_written(element) for element in value] if isinstance(value, tuple) else value


def test_a_translation_keeps_every_value() -> None:
    message = translate_response(TranslationResponse((FULL, PLAIN), TIMINGS))
    assert [as_json(each) for each in message.translations] == [as_written(asdict(FULL)), as_written(asdict(PLAIN))]


def test_a_seed_of_zero_is_a_seed() -> None:
    (translation,) = translate_response(TranslationResponse((replace(PLAIN, seed=0),), TIMINGS)).translations
    assert translation.HasField("seed")


def test_timings_keep_every_value() -> None:
    timings = translate_response(TranslationResponse((PLAIN,), TIMINGS)).timings
    assert {name: getattr(timings, name) for name in asdict(TIMINGS)} == asdict(TIMINGS)


def test_a_score_keeps_every_value() -> None:
    score = TranslationScore(score=-0.375, tokens=TOKENS, source_tokens=3, target_tokens=1)
    message = score_response(ScoreResponse((score,), TIMINGS))
    (actual,) = message.scores
    assert (actual.score, actual.source_tokens, actual.target_tokens) == (-0.375, 3, 1)
    assert [(each.piece, each.log_probability) for each in actual.tokens] == [("▁eins", -0.25), ("</s>", -0.125)]
    assert message.timings.total_seconds == TIMINGS.total_seconds


def test_a_request_has_the_fields_of_its_message() -> None:
    stream = FairnessKey()
    message = messages.TranslateRequest(
        text=["a", "b"],
        source_language="en",
        target_language="de",
        target_prefix=["x", ""],
        model="m",
        allow_pivot=True,
        split_sentences=False,
    )
    assert read_translate_request(message, 7.0, stream) == TranslateRequest(
        text=["a", "b"],
        source_language="en",
        target_language="de",
        target_prefix=["x", ""],
        model="m",
        allow_pivot=True,
        split_sentences=False,
        deadline_seconds=7.0,
        fairness_key=stream,
    )


def test_an_empty_message_is_a_request_with_defaults() -> None:
    assert read_translate_request(messages.TranslateRequest(), None) == TranslateRequest()
    assert read_score_request(messages.ScoreRequest(), None) == ScoreRequest(pairs=[])


def test_a_request_for_scores_has_the_fields_of_its_message() -> None:
    pairs = [messages.TextPair(text="a", translation="b"), messages.TextPair(text="c")]
    message = messages.ScoreRequest(pairs=pairs, source_language="en", target_language="de", model="m")
    assert read_score_request(message, 7.0) == ScoreRequest(
        pairs=[("a", "b"), ("c", "")], source_language="en", target_language="de", model="m", deadline_seconds=7.0
    )


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (messages.TranslateRequest.DESCRIPTOR, {each.name for each in fields(TranslateRequest)}),
        (messages.ScoreRequest.DESCRIPTOR, {each.name for each in fields(ScoreRequest)}),
    ],
)
def test_every_field_of_a_message_is_one_of_its_request(message: Descriptor, fields: set[str]) -> None:
    assert set(message.fields_by_name) <= fields


def test_only_options_that_are_set_are_fields() -> None:
    options = messages.SearchOptions(beam_size=3, suppressed_tokens=["a"], coverage_penalty=0.0)
    read = read_translate_request(messages.TranslateRequest(options=options), None).options
    assert read == SearchFields(beam_size=3, suppressed_tokens=("a",))
    assert read.model_fields_set == {"beam_size", "suppressed_tokens", "coverage_penalty"}


def test_a_zero_that_is_set_is_no_default() -> None:
    options = messages.SearchOptions(max_target_tokens=0)
    with pytest.raises(InvalidRequestError, match=r"^options\.max_target_tokens: 0, "):
        read_translate_request(messages.TranslateRequest(options=options), None)
