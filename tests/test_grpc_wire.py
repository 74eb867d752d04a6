"""Bytes that are no message get an answer that names the fault, and never an exception."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.translation_pb2 import FINISH_REASON_EOS, FINISH_REASON_LENGTH, TranslateRequest
from serve.errors import InvalidRequestError
from serve.grpc_wire import parse_request, to_message
from serve.request import FinishReason, Timings, Translation, TranslationResponse

TEXT_TAG = b"\x0a"
SOURCE_LANGUAGE_TAG = b"\x12"
MAX_TARGET_TOKENS_TAG = b"\x20"


def field(tag: bytes, value: bytes) -> bytes:
    """Returns a field with a length prefix, for values shorter than 128 bytes."""
    return tag + bytes([len(value)]) + value


def refusal(data: bytes) -> str:
    parsed = parse_request(data)
    assert isinstance(parsed, InvalidRequestError)
    return str(parsed)


def test_a_valid_message_is_parsed() -> None:
    message = TranslateRequest(text=["ä", "b"], source_language="en", max_target_tokens=7)
    assert parse_request(message.SerializeToString()) == message


def test_the_text_that_is_not_utf_8_is_named_with_the_byte() -> None:
    data = field(TEXT_TAG, b"fine") + field(TEXT_TAG, "ä".encode()) + field(TEXT_TAG, b"17 bytes of text \xff")
    assert refusal(data) == "text[2]: not valid UTF-8 at byte 17"


def test_a_language_that_is_not_utf_8_is_named() -> None:
    assert refusal(field(SOURCE_LANGUAGE_TAG, b"\xc3")) == "source_language: not valid UTF-8 at byte 0"


def test_an_encoded_surrogate_is_not_utf_8() -> None:
    assert refusal(field(TEXT_TAG, b"\xed\xa0\xbd")) == "text[0]: not valid UTF-8 at byte 0"


@pytest.mark.parametrize("data", [b"\xff\xff", TEXT_TAG, TEXT_TAG + b"\x05abc", MAX_TARGET_TOKENS_TAG])
def test_bytes_that_are_no_message_are_said_to_be_none(data: bytes) -> None:
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


def test_a_response_keeps_every_value() -> None:
    response = TranslationResponse(
        (
            Translation("eins", -0.5, FinishReason.EOS, source_tokens=3, target_tokens=2),
            Translation("zwei", -1.5, FinishReason.LENGTH, source_tokens=4, target_tokens=1),
        ),
        Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7),
    )
    message = to_message(response)
    assert [translation.text for translation in message.translations] == ["eins", "zwei"]
    assert [translation.score for translation in message.translations] == [-0.5, -1.5]
    assert [translation.source_tokens for translation in message.translations] == [3, 4]
    assert [translation.target_tokens for translation in message.translations] == [2, 1]
    reasons = [translation.finish_reason for translation in message.translations]
    assert reasons == [FINISH_REASON_EOS, FINISH_REASON_LENGTH]
    timings = message.timings
    assert (timings.tokenize_seconds, timings.queue_seconds) == (0.1, 0.2)
    assert (timings.inference_seconds, timings.total_seconds) == (0.3, 0.7)
