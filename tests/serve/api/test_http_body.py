"""Invalid bodies get an error that names the field, never another exception."""

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
    ("data", "field"),
    [
        (b"{}", "pairs"),
        (b'{"pairs": 5}', "pairs"),
        (b'{"pairs": [["a", "b"]]}', "pairs[0]"),
        (b'{"pairs": [{"text": "a"}]}', "pairs[0].translation"),
        (
            b'{"pairs": [{"text": "a", "translation": "b"}, {"text": 5, "translation": "b"}]}',
            "pairs[1].text",
        ),
        (b'{"pairs": [{"text": "a", "translation": "b", "x": 1}]}', "pairs[0].x"),
        (b'{"pairs": [], "options": {}}', "options"),
    ],
)
def test_an_invalid_score_body_is_rejected_by_field(data: bytes, field: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_body(data, ScoreBody)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "body"),
        (b'{"text": "a"', "body"),
        (b'{"text": "\xff"}', "body"),
        (b'\xff\xfe{\x00"\x00', "body"),
        (b"[" * 100_000, "body"),
        (b'{"text":' * 100_000, "body"),
        (
            b'{"options": {"top_k": ' + b"9" * 5000 + b"}}",
            "body",
        ),
        (b"[]", "body"),
        (b"null", "body"),
        (b"{}", "text"),
        (b'{"text": 5}', "text"),
        (b'{"text": null}', "text"),
        (b'{"text": {"a": "b"}}', "text"),
        (b'{"text": ["a", 5]}', "text[1]"),
        (b'{"text": ["a", ["b"]]}', "text[1]"),
        (b'{"text": "a", "source_language": 5}', "source_language"),
        (b'{"text": "a", "target_language": null}', "target_language"),
        (b'{"text": "a", "target_prefix": [null]}', "target_prefix[0]"),
        (b'{"text": "a", "options": null}', "options"),
        (b'{"text": "a", "options": ["beam_size"]}', "options"),
        (b'{"text": "a", "options": {"beamsize": 5}}', "options.beamsize"),
        (b'{"text": "a", "max_target_tokens": 5}', "max_target_tokens"),
        (b'{"text": "a", "texts": "b"}', "texts"),
        (b'{"text": "a", "\\ud800\\n": 1}', "\\ud800\\n"),
    ],
)
def test_an_invalid_body_is_rejected_by_field(data: bytes, field: str) -> None:
    assert refusal(data).startswith(f"{field}: ")


def test_the_name_of_an_unknown_field_is_cut() -> None:
    assert len(refusal(json.dumps({"text": "a", "x" * 10_000: 1}).encode())) < 100


def test_a_list_is_rejected_at_its_first_invalid_element() -> None:
    """Building one error per element would block the event loop for a second."""
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
