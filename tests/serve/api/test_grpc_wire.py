"""Malformed bytes get an error that names the fault, never an exception."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.inference_pb2 import ModelInferRequest
from protos.translation_pb2 import ScoreRequest, SearchOptions, TranslateRequest
from serve.api.grpc_messages import RequestParser
from serve.errors import InvalidRequestError

TEXT_TAG = b"\x0a"
SOURCE_LANGUAGE_TAG = b"\x12"
OPTIONS_TAG = b"\x2a"
TARGET_PREFIX_TAG = b"\x32"
SUPPRESSED_TAG = b"\x82\x01"
BEAM_SIZE_TAG = b"\x08"
PAIRS_TAG = b"\x0a"
TRANSLATION_TAG = b"\x12"

parse_request = RequestParser(TranslateRequest).parse


def field(tag: bytes, value: bytes) -> bytes:
    """Returns a length-prefixed field with a value shorter than 128 bytes."""
    return tag + bytes([len(value)]) + value


def refusal(data: bytes) -> str:
    parsed = parse_request(data)
    assert isinstance(parsed, InvalidRequestError)
    return str(parsed)


def test_a_valid_message_is_parsed() -> None:
    message = TranslateRequest(text=["ä", "b"], source_language="en", options=SearchOptions(beam_size=7))
    assert parse_request(message.SerializeToString()) == message


def test_the_text_that_is_not_utf_8_is_named_with_the_byte() -> None:
    data = field(TEXT_TAG, b"fine") + field(TEXT_TAG, "ä".encode()) + field(TEXT_TAG, b"17 bytes of text \xff")
    assert refusal(data) == "text[2]: not valid UTF-8 at byte 17"


def test_a_language_that_is_not_utf_8_is_named() -> None:
    assert refusal(field(SOURCE_LANGUAGE_TAG, b"\xc3")) == "source_language: not valid UTF-8 at byte 0"


def test_a_prefix_that_is_not_utf_8_is_named() -> None:
    data = field(TEXT_TAG, b"a") + field(TARGET_PREFIX_TAG, b"ab\xff")
    assert refusal(data) == "target_prefix[0]: not valid UTF-8 at byte 2"


def test_a_piece_inside_of_the_options_that_is_not_utf_8_is_named() -> None:
    options = field(SUPPRESSED_TAG, b"fine") + field(SUPPRESSED_TAG, b"\xff")
    assert refusal(field(OPTIONS_TAG, options)) == "options.suppressed_tokens[1]: not valid UTF-8 at byte 0"


def test_the_translation_of_a_pair_that_is_not_utf_8_is_named() -> None:
    pairs = field(PAIRS_TAG, field(TEXT_TAG, b"a")) + field(PAIRS_TAG, field(TRANSLATION_TAG, b"b\xff"))
    parsed = RequestParser(ScoreRequest).parse(pairs)
    assert isinstance(parsed, InvalidRequestError)
    assert str(parsed) == "pairs[1].translation: not valid UTF-8 at byte 1"


def test_an_encoded_surrogate_is_not_utf_8() -> None:
    assert refusal(field(TEXT_TAG, b"\xed\xa0\xbd")) == "text[0]: not valid UTF-8 at byte 0"


@pytest.mark.parametrize("data", [b"\xff\xff", TEXT_TAG, TEXT_TAG + b"\x05abc", field(OPTIONS_TAG, BEAM_SIZE_TAG)])
def test_malformed_bytes_are_reported_as_no_message(data: bytes) -> None:
    assert refusal(data) == "request: not a dragoman.v1.TranslateRequest message"


def test_a_field_of_a_later_version_is_ignored() -> None:
    parsed = parse_request(field(TEXT_TAG, b"a") + field(b"\x7a", b"\xff"))
    assert isinstance(parsed, TranslateRequest)
    assert parsed.text == ["a"]


@given(st.binary())
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    assert isinstance(parse_request(data), TranslateRequest | InvalidRequestError)


@given(st.lists(st.binary(max_size=100), min_size=1))
def test_the_named_text_is_the_first_that_is_not_utf_8(texts: list[bytes]) -> None:
    parsed = parse_request(b"".join(field(TEXT_TAG, text) for text in texts))
    if isinstance(parsed, TranslateRequest):
        assert [text.encode() for text in parsed.text] == texts
    else:
        index = int(parsed.field.removeprefix("text[").removesuffix("]"))
        for text in texts[:index]:
            text.decode()
        with pytest.raises(UnicodeDecodeError):
            texts[index].decode()


@pytest.mark.parametrize(
    ("string", "broken", "name"),
    [(b"text_input", b"text_\xffnput", "inputs[0].name"), (b"beam_size", b"beam\xffsize", "parameters[0].key")],
)
def test_a_string_of_a_nested_message_or_a_map_is_named_and_bytes_may_be_anything(
    string: bytes, broken: bytes, name: str
) -> None:
    parse = RequestParser(ModelInferRequest).parse
    message = ModelInferRequest(inputs=[ModelInferRequest.InferInputTensor(name="text_input")])
    message.inputs[0].contents.bytes_contents.append(b"\xff")
    message.parameters["beam_size"].string_param = "two"
    data = message.SerializeToString()
    assert parse(data) == message
    refused = parse(data.replace(string, broken))
    assert isinstance(refused, InvalidRequestError)
    assert refused.field == name
