"""Requests are parsed or rejected by field; values and messages map onto each other by field name."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.protos import translation_pb2 as messages
from dragoman.protos.inference_pb2 import ModelInferRequest
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.grpc.message_mapper import message_reader, message_writer
from dragoman.serve.grpc.messages import (
    ItemParser,
    RequestParser,
    read_item,
    read_score_request,
    read_translate_request,
)
from dragoman.serve.observability.usage import Timings
from dragoman.serve.protect.alignment import Alignment, Link, Span
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.registry.description import ModelDescription
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation import response
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest
from tests.support.translators import made_translation

TEXT_TAG, SOURCE_LANGUAGE_TAG, OPTIONS_TAG, TARGET_PREFIX_TAG = b"\x0a", b"\x12", b"\x2a", b"\x32"
SUPPRESSED_TAG, BEAM_SIZE_TAG = b"\x82\x01", b"\x08"
PAIRS_TAG, TRANSLATION_TAG = b"\x0a", b"\x12"
MAX_VALUES = 1000
parse_request = RequestParser(messages.TranslateRequest, MAX_VALUES).parse


def field(tag: bytes, value: bytes) -> bytes:
    """Returns a length-prefixed field with a value shorter than 128 bytes."""
    return tag + bytes([len(value)]) + value


SUPPRESSED = field(SUPPRESSED_TAG, b"fine") + field(SUPPRESSED_TAG, b"\xff")


@pytest.mark.parametrize(
    ("parts", "name", "byte"),
    [
        ([(TEXT_TAG, b"fine"), (TEXT_TAG, "ä".encode()), (TEXT_TAG, b"17 bytes of text \xff")], "text[2]", 17),
        ([(TEXT_TAG, b"\xed\xa0\xbd")], "text[0]", 0),  # an encoded surrogate
        ([(SOURCE_LANGUAGE_TAG, b"\xc3")], "source_language", 0),
        ([(TEXT_TAG, b"a"), (TARGET_PREFIX_TAG, b"ab\xff")], "target_prefix[0]", 2),
        ([(OPTIONS_TAG, SUPPRESSED)], "options.suppressed_tokens[1]", 0),
        (
            [(PAIRS_TAG, field(TEXT_TAG, b"a")), (PAIRS_TAG, field(TRANSLATION_TAG, b"b\xff"))],
            "pairs[1].translation",
            1,
        ),
    ],
)
def test_a_string_that_is_not_utf_8_is_named_with_the_byte(
    parts: list[tuple[bytes, bytes]], name: str, byte: int
) -> None:
    kind = messages.ScoreRequest if name.startswith("pairs") else messages.TranslateRequest
    parsed = RequestParser(kind, MAX_VALUES).parse(b"".join(field(*part) for part in parts))
    assert isinstance(parsed, InvalidRequestError)
    assert (parsed.field, parsed.problem.split()[-1]) == (name, str(byte))


@pytest.mark.parametrize(
    ("string", "broken", "name"),
    [(b"text_input", b"text_\xffnput", "inputs[0].name"), (b"beam_size", b"beam\xffsize", "parameters[0].key")],
)
def test_a_string_of_a_nested_message_or_a_map_is_named_and_bytes_may_be_anything(
    string: bytes, broken: bytes, name: str
) -> None:
    parse = RequestParser(ModelInferRequest, MAX_VALUES).parse
    message = ModelInferRequest(inputs=[ModelInferRequest.InferInputTensor(name="text_input")])
    message.inputs[0].contents.bytes_contents.append(b"\xff")
    message.parameters["beam_size"].string_param = "two"
    data = message.SerializeToString()
    assert parse(data) == message
    refused = parse(data.replace(string, broken))
    assert isinstance(refused, InvalidRequestError)
    assert refused.field == name


@pytest.mark.parametrize("data", [b"\xff\xff", TEXT_TAG, TEXT_TAG + b"\x05abc", field(OPTIONS_TAG, BEAM_SIZE_TAG)])
def test_malformed_bytes_are_an_invalid_request(data: bytes) -> None:
    parsed = parse_request(data)
    assert isinstance(parsed, InvalidRequestError)
    assert parsed.field == "request"


def test_a_field_of_a_later_version_is_ignored() -> None:
    parsed = parse_request(field(TEXT_TAG, b"a") + field(b"\x7a", b"\xff"))
    assert isinstance(parsed, messages.TranslateRequest)
    assert parsed.text == ["a"]


@given(st.lists(st.binary(max_size=100), min_size=1))
def test_the_named_text_is_the_first_that_is_not_utf_8(texts: list[bytes]) -> None:
    parsed = parse_request(b"".join(field(TEXT_TAG, text) for text in texts))
    if isinstance(parsed, messages.TranslateRequest):
        assert [text.encode() for text in parsed.text] == texts
    else:
        index = int(parsed.field.removeprefix("text[").removesuffix("]"))
        for text in texts[:index]:
            text.decode()
        with pytest.raises(UnicodeDecodeError):
            texts[index].decode()


def test_a_request_has_the_fields_of_its_message() -> None:
    sent: dict[str, Any] = {"text": ["a", "b"], "target_prefix": ["x", ""], "format": "html", "split_sentences": False}
    sent |= {"source_language": "en", "target_language": "de", "model": "m", "allow_pivot": True}
    sent |= {"ignore_tags": ["a"], "splitting_tags": ["b", "c"], "non_splitting_tags": ["d"]}
    sent |= {
        "placeholders": ["all"],
        "preserve_formatting": True,
        "glossary": ["i"],
        "memory": ["j"],
        "target_languages": ["k"],
        "context": "l",
    }
    terms: Any = [{"source": "c", "targets": ["d", "e"], "match_case": True}, {"source": "f"}]
    message = messages.TranslateRequest(**sent, terms=terms)
    item = ItemParser(100).parse(messages.TranslateManyRequest(id="1", request=message).SerializeToString())
    read = read_translate_request(message, 7.0)
    entries = [Entry("c", ("d", "e"), match_case=True), Entry("f", ("f",))]
    assert read == TranslateRequest(**sent, terms=entries, deadline_seconds=7.0)
    assert (item.id, item.texts) == ("1", sent["text"])
    assert isinstance(item.rest, bytes)
    assert read_item(item.rest) == (read._replace(text=(), deadline_seconds=None), None)
    assert set(messages.TranslateRequest.DESCRIPTOR.fields_by_name) == {*sent, "options", "terms"}
    assert read_translate_request(messages.TranslateRequest(), None) == TranslateRequest()


def test_a_request_for_scores_has_the_fields_of_its_message() -> None:
    pairs = [messages.TextPair(text="a", translation="b"), messages.TextPair(text="c")]
    sent: dict[str, Any] = {"source_language": "en", "target_language": "de", "model": "m"}
    read = read_score_request(messages.ScoreRequest(pairs=pairs, **sent), 7.0)
    assert read == ScoreRequest(pairs=[("a", "b"), ("c", "")], deadline_seconds=7.0, **sent)
    assert set(messages.ScoreRequest.DESCRIPTOR.fields_by_name) == {*sent, "pairs"}
    assert read_score_request(messages.ScoreRequest(), None) == ScoreRequest(pairs=[])


def test_only_options_that_are_set_are_fields() -> None:
    options = messages.SearchOptions(beam_size=3, suppressed_tokens=["a"], coverage_penalty=0.0)
    read = read_translate_request(messages.TranslateRequest(options=options), None).options
    assert read == SearchFields(beam_size=3, suppressed_tokens=("a",))
    assert read.model_fields_set == {"beam_size", "suppressed_tokens", "coverage_penalty"}


TIMINGS = Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7)
TOKENS = (response.TokenScore("▁eins", -0.25), response.TokenScore("</s>", -0.125))
ALIGNMENT = Alignment(
    source=(Span(0, 3), Span(4, 7)),
    target=(Span(0, 4), Span(4, 5)),
    weights=((0.25, 0.5), (0.75, 0.0)),
    links=(Link(1, 0), Link(0, 1)),
)
ALTERNATIVE = response.Alternative(
    text="einer", score=-2.5, normalized_score=-1.25, finish_reason=FinishReason.LENGTH, target_tokens=1
)
PLAIN = made_translation("eins", 2, score=-1.5, normalized_score=-0.75, source_tokens=4)
FULL = replace(
    PLAIN,
    tokens=TOKENS,
    alignments=(ALIGNMENT, replace(ALIGNMENT, weights=((1.0, 0.0), (0.0, 0.0)), links=())),
    alternatives=(ALTERNATIVE, replace(ALTERNATIVE, tokens=TOKENS, alignments=(ALIGNMENT,))),
    seed=0,
    cached=False,
    sentences=3,
    cut_sentences=1,
)
PIVOTED = response.TranslationResponse((FULL, PLAIN), TIMINGS, "a", response.Pivot("en", "b"))
SCORE = response.TranslationScore(score=-0.375, tokens=TOKENS, source_tokens=3, target_tokens=1, cached=True)
ENDED = response.TranslationDelta(text_index=0, text="", target_tokens=2, finish_reason=FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (messages.TranslateResponse, response.TranslationResponse((), TIMINGS)),
        (messages.TranslateResponse, PIVOTED),
        (messages.ScoreResponse, response.ScoreResponse((SCORE, replace(SCORE, cached=None)), TIMINGS, "a")),
        (messages.TranslationDelta, response.TranslationDelta(text_index=1, text="ä", target_tokens=2)),
        (messages.TranslationDelta, ENDED),
    ],
)
def test_a_value_survives_the_round_trip_through_its_message(message: Any, value: Any) -> None:
    written = message_writer(message)(value)
    assert isinstance(written, message)
    assert message_reader(message, type(value))(message.FromString(written.SerializeToString())) == value


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        *((messages.TranslateResponse, response.TranslationResponse), (messages.Model, ModelDescription)),
        *((messages.Translation, response.Translation), (messages.Alternative, response.Alternative)),
        *((messages.Alignment, Alignment), (messages.Span, Span), (messages.Link, Link)),
        *((messages.TranslationDelta, response.TranslationDelta), (messages.ScoreResponse, response.ScoreResponse)),
        *(
            (messages.TranslationScore, response.TranslationScore),
            (messages.TargetTranslations, response.TargetTranslations),
        ),
    ],
)
def test_every_attribute_is_a_field_and_every_field_an_attribute(message: Any, kind: Any) -> None:
    assert {member.name for member in fields(kind)} == set(message.DESCRIPTOR.fields_by_name)
