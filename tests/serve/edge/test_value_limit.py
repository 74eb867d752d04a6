"""Requests of too many values are refused before they are parsed, in every protocol."""

import json
import math
import threading
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from dragoman.protos import inference_pb2, translation_pb2
from dragoman.serve.compat.open_inference.http_body import InferBody
from dragoman.serve.edge.bodies import SMALL_BODY_BYTES, BodyParser, TranslateBody
from dragoman.serve.edge.value_limit import check_json, check_message, max_values
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.grpc.messages import Item, ItemParser, RequestParser

MAX_TEXTS = 64
MAX_VALUES = max_values(MAX_TEXTS)
BODY_BYTES = 2 << 20
JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text('a,"\\[]{}:\n\u00e4'),
    lambda children: st.lists(children, max_size=6) | st.dictionaries(st.text('a,"\\[{'), children, max_size=6),
    max_leaves=30,
)


def count_values(content: object) -> int:
    """Returns the number of values, without names."""
    nested = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return 1 + sum(map(count_values, nested))


def accepts(data: bytes, most: int) -> bool:
    try:
        check_json(data, most)
    except InvalidRequestError as error:
        return error.field != "body"
    return True


@given(JSON_VALUES, st.sampled_from([None, 1]), st.booleans())
def test_json_is_accepted_by_its_number_of_values(content: object, indent: int | None, ascii_only: bool) -> None:
    """The contents of strings do not count. Empty lists and objects may count twice, as may names."""
    data = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode()
    values = count_values(content)
    assert accepts(data, 2 * values + 1)
    assert not accepts(data, (values - 1) // 2)


@pytest.mark.parametrize(
    "unit", [b"[],", b"[", b'{"a":', b"0,", b'"",', b'"\\"",', b'"\\\\",', b'{"a":1},', b'"a":1,', b'"[\\\\",[']
)
@pytest.mark.parametrize("frame", [b"%b", b'{"text": [%b]}', b'{"text": "a", "x": "\\\\\\"", "y": [%b]}'])
def test_a_large_body_of_many_values_is_refused(unit: bytes, frame: bytes) -> None:
    assert not accepts(frame % (unit * (BODY_BYTES // len(unit))), MAX_VALUES)


@pytest.mark.parametrize("character", [",", "[", "{", '"', "\\", '\\"', "\n", "\u00e4", "\ufdfa", "a"])
def test_texts_of_any_characters_are_accepted(character: str) -> None:
    for ascii_only in (False, True):
        body = {"text": [character * 10_000] * MAX_TEXTS, "target_prefix": ["a,b"] * MAX_TEXTS}
        assert accepts(json.dumps(body, ensure_ascii=ascii_only).encode(), MAX_VALUES)


@pytest.mark.parametrize("max_texts", [1, MAX_TEXTS, 100_000])
def test_the_limit_admits_every_request_with_the_maximum_of_texts(max_texts: int) -> None:
    pairs = [{"text": "a", "translation": "b"}] * max_texts
    tensors = {"inputs": [{"name": "text_input", "shape": [max_texts, 1], "data": [["a"]] * max_texts}]}
    options = {"suppressed_tokens": ["a"] * 64, "beam_size": 4}
    for body in ({"pairs": pairs}, tensors, {"text": ["a"] * max_texts, "target_prefix": ["b"] * max_texts, **options}):
        assert accepts(json.dumps(body).encode(), max_values(max_texts))


@pytest.mark.parametrize("kind", [TranslateBody, InferBody])
@pytest.mark.anyio
async def test_large_bodies_are_parsed_one_after_the_other_in_a_thread(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(BodyParser, "parse_now", lambda *_: threads.append(threading.get_ident()))
    parser = BodyParser(kind, MAX_VALUES)
    for size in (SMALL_BODY_BYTES, SMALL_BODY_BYTES + 1):
        await parser.parse(b" " * size, math.inf)
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


TENSOR = inference_pb2.ModelInferRequest.InferInputTensor
TENSOR_CONTENTS = TENSOR(contents=inference_pb2.InferTensorContents(bytes_contents=[b""] * 100_000))
OPTIONS = translation_pb2.SearchOptions(suppressed_tokens=[""] * 100_000)
LARGE: list[Message] = [
    translation_pb2.TranslateRequest(text=[""] * 100_000),
    translation_pb2.TranslateRequest(options=OPTIONS),
    translation_pb2.ScoreRequest(pairs=[translation_pb2.TextPair()] * 100_000),
    inference_pb2.ModelInferRequest(inputs=[TENSOR_CONTENTS]),
    inference_pb2.ModelInferRequest(inputs=[TENSOR(shape=[1] * 100_000)]),
]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        *((type(message), message.SerializeToString()) for message in LARGE),
        (translation_pb2.TranslateRequest, b"\x78\x01" * 100_000),  # unknown numbers
        (translation_pb2.TranslateRequest, b"\x7b\x7c" * 100_000),  # unknown groups
    ],
    ids=["texts", "options", "pairs", "tensor", "packed numbers", "unknown fields", "unknown groups"],
)
def test_a_message_of_many_values_is_refused(kind: type[Message], data: bytes) -> None:
    parsed = RequestParser(kind, MAX_VALUES).parse(data)
    assert isinstance(parsed, InvalidRequestError)
    assert parsed.field == "request"


def test_messages_with_the_maximum_of_texts_are_parsed() -> None:
    texts = ["a" * 1000] * MAX_TEXTS
    requests: list[Any] = [
        translation_pb2.TranslateRequest(text=texts, target_prefix=texts),
        translation_pb2.ScoreRequest(pairs=[translation_pb2.TextPair(text="a" * 1000, translation="b")] * MAX_TEXTS),
        inference_pb2.ModelInferRequest(raw_input_contents=[b"\0" * BODY_BYTES]),
    ]
    for request in requests:
        assert RequestParser(type(request), MAX_VALUES).parse(request.SerializeToString()) == request


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned_to_their_end(data: bytes) -> None:
    """Malformed messages are left to the parser."""
    check_message(data, translation_pb2.TranslateManyRequest, 101)


def test_an_item_of_many_values_is_refused_with_its_id() -> None:
    request = translation_pb2.TranslateRequest(text=[""] * 100_000)
    message = translation_pb2.TranslateManyRequest(id="seven", request=request)
    item = ItemParser(MAX_VALUES).parse(message.SerializeToString())
    assert isinstance(item, Item)
    assert isinstance(item.rest, InvalidRequestError)
    assert item.id == "seven"
