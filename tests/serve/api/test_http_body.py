"""Bytes that are no valid body get an answer that names the field, and never another exception."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from serve.api.http_body import ScoreBody, TextPair, TranslateBody, parse_body
from serve.errors import InvalidRequestError
from serve.translation.fields import SearchFields

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidRequestError) as raised:
        parse_body(data, TranslateBody)
    return str(raised.value)


def test_one_text_is_a_list_of_one() -> None:
    assert parse_body(b'{"text": "a", "target_prefix": "b"}', TranslateBody) == TranslateBody(
        text=["a"], target_prefix=["b"]
    )


def test_every_field_is_read() -> None:
    data = b"""{"text": ["a"], "source_language": "en", "target_language": "de", "target_prefix": ["b"],
        "options": {"max_target_tokens": 5, "suppressed_tokens": ["c"]}}"""
    assert parse_body(data, TranslateBody) == TranslateBody(
        text=["a"],
        source_language="en",
        target_language="de",
        target_prefix=["b"],
        options=SearchFields(max_target_tokens=5, suppressed_tokens=("c",)),
    )


def test_every_field_of_a_pair_is_read() -> None:
    body = parse_body(b'{"pairs": [{"text": "a", "translation": "b"}], "target_language": "de"}', ScoreBody)
    assert body == ScoreBody(pairs=[TextPair(text="a", translation="b")], target_language="de")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "pairs: missing, expected a value"),
        (b'{"pairs": 5}', "pairs: 5, expected a valid list"),
        (b'{"pairs": [["a", "b"]]}', "pairs[0]: a list, expected an object"),
        (b'{"pairs": [{"text": "a"}]}', "pairs[0].translation: missing, expected a value"),
        (
            b'{"pairs": [{"text": "a", "translation": "b"}, {"text": 5, "translation": "b"}]}',
            "pairs[1].text: 5, expected a valid string",
        ),
        (b'{"pairs": [{"text": "a", "translation": "b", "x": 1}]}', "pairs[0].x: unknown field"),
        (b'{"pairs": [], "options": {}}', "options: unknown field"),
    ],
)
def test_a_wrong_body_for_scores_is_refused_by_the_name_of_the_field(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_body(data, ScoreBody)
    assert str(raised.value) == message


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
            b'{"options": {"top_k": ' + b"9" * 5000 + b"}}",
            "body: not JSON that can be read: a number has too many digits",
        ),
        (b"[]", "body: not a JSON object"),
        (b"null", "body: not a JSON object"),
        (b"{}", "text: missing, expected a value"),
        (b'{"text": 5}', "text: 5, expected a string or a list of strings"),
        (b'{"text": null}', "text: null, expected a string or a list of strings"),
        (b'{"text": {"a": "b"}}', "text: an object, expected a string or a list of strings"),
        (b'{"text": ["a", 5]}', "text[1]: 5, expected a valid string"),
        (b'{"text": ["a", ["b"]]}', "text[1]: a list, expected a valid string"),
        (b'{"text": "a", "source_language": 5}', "source_language: 5, expected a valid string"),
        (b'{"text": "a", "target_language": null}', "target_language: null, expected a valid string"),
        (b'{"text": "a", "target_prefix": [null]}', "target_prefix[0]: null, expected a valid string"),
        (b'{"text": "a", "options": null}', "options: null, expected an object"),
        (b'{"text": "a", "options": ["beam_size"]}', "options: a list, expected an object"),
        (b'{"text": "a", "options": {"beamsize": 5}}', "options.beamsize: unknown field"),
        (b'{"text": "a", "max_target_tokens": 5}', "max_target_tokens: unknown field"),
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
        parse_body(data, TranslateBody)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(TranslateBody.model_fields, JSON_VALUES)))
def test_any_json_is_parsed_unchanged_or_refused(content: dict[str, object]) -> None:
    try:
        body = parse_body(json.dumps(content).encode(), TranslateBody)
    except InvalidRequestError as error:
        message = str(error)
        message.encode()
    else:
        text = content["text"]
        assert body.text == ([text] if isinstance(text, str) else text)
        assert body.options.model_dump(exclude_unset=True) == content.get("options", {})
