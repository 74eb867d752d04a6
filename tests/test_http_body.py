"""Bytes that are no valid body get an answer that names the field, and never another exception."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from serve.errors import InvalidRequestError
from serve.http_body import TranslateBody, parse_body

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidRequestError) as raised:
        parse_body(data)
    return str(raised.value)


def test_one_text_is_a_list_of_one() -> None:
    assert parse_body(b'{"text": "a"}') == TranslateBody(text=["a"])


def test_every_field_is_read() -> None:
    body = parse_body(b'{"text": ["a"], "source_language": "en", "target_language": "de", "max_target_tokens": 5}')
    assert body == TranslateBody(text=["a"], source_language="en", target_language="de", max_target_tokens=5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "body: not JSON: Expecting value at character 0"),
        (b'{"text": "a"', "body: not JSON: Expecting ',' delimiter at character 12"),
        (b'{"text": "\xff"}', "body: not valid UTF-8 at byte 10"),
        (b'\xff\xfe{\x00"\x00', "body: not valid UTF-8 at byte 0"),
        (b"[" * 100_000, "body: not JSON that can be read: nested too deep"),
        (b'{"text":' * 100_000, "body: not JSON that can be read: nested too deep"),
        (
            b'{"max_target_tokens": ' + b"9" * 5000 + b"}",
            "body: not JSON that can be read: a number has too many digits",
        ),
        (b"[]", "body: not a JSON object"),
        (b"null", "body: not a JSON object"),
        (b"{}", "text: Field required"),
        (b'{"text": 5}', "text: Input should be a string or a list of strings"),
        (b'{"text": null}', "text: Input should be a string or a list of strings"),
        (b'{"text": {"a": "b"}}', "text: Input should be a string or a list of strings"),
        (b'{"text": ["a", 5]}', "text[1]: Input should be a valid string"),
        (b'{"text": ["a", ["b"]]}', "text[1]: Input should be a valid string"),
        (b'{"text": "a", "source_language": 5}', "source_language: Input should be a valid string"),
        (b'{"text": "a", "target_language": null}', "target_language: Input should be a valid string"),
        (b'{"text": "a", "max_target_tokens": "5"}', "max_target_tokens: Input should be a valid integer"),
        (b'{"text": "a", "max_target_tokens": 5.0}', "max_target_tokens: Input should be a valid integer"),
        (b'{"text": "a", "max_target_tokens": true}', "max_target_tokens: Input should be a valid integer"),
        (b'{"text": "a", "texts": "b"}', "texts: unknown field"),
        (b'{"text": "a", "\\ud800\\n": 1}', "\\ud800\\n: unknown field"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_the_field(data: bytes, message: str) -> None:
    assert refusal(data) == message


def test_the_name_of_an_unknown_field_is_cut() -> None:
    assert len(refusal(json.dumps({"text": "a", "x" * 10_000: 1}).encode())) < 100


def test_a_list_of_wrong_elements_is_refused_at_the_first() -> None:
    """A list of errors as long as the body would keep the event loop busy for a second."""
    with pytest.raises(ValidationError) as raised:
        TranslateBody.model_validate({"text": [1, 2, 3]})
    assert [error["loc"] for error in raised.value.errors()] == [("text", 0)]


@given(st.binary())
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse_body(data)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(TranslateBody.model_fields, JSON_VALUES)))
def test_any_json_is_parsed_unchanged_or_refused(content: dict[str, object]) -> None:
    try:
        body = parse_body(json.dumps(content).encode())
    except InvalidRequestError as error:
        message = str(error)
        message.encode()
    else:
        text = content["text"]
        assert body.text == ([text] if isinstance(text, str) else text)
        assert body.max_target_tokens == content.get("max_target_tokens")
