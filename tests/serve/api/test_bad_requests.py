"""The same invalid request over both protocols: status, named field, and a server that keeps running."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from model.tokenizer.tokenizer import Tokenizer
from protos.translation_pb2 import TranslateRequest
from serve.bundle.manifest import BundleDirection
from tests.support.live import MAX_SOURCE_TOKENS, LiveService, run_service, write_bundle

MAX_TEXT_CHARACTERS = 500
MAX_BODY_BYTES = 2000
JSON = {"content-type": "application/json"}
GOOD: dict[str, Any] = {"text": ["alpha beta."]}


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    """One service for all tests: damage by one request fails the next."""
    with run_service(
        bundle_path, max_texts=3, max_text_characters=MAX_TEXT_CHARACTERS, max_body_bytes=MAX_BODY_BYTES
    ) as service:
        yield service


@pytest.fixture(scope="module")
def many(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service with several directions; two languages translate into German."""
    ways = [("en", "de", 4), ("fr", "de", 4), ("de", "en", 5)]
    directions = tuple(BundleDirection(source=source, target=target, source_prefix=(i,)) for source, target, i in ways)
    with run_service(write_bundle(tmp_path_factory.mktemp("many"), tokenizer, directions=directions)) as service:
        yield service


@pytest.fixture(autouse=True)
def goes_on(live: LiveService, many: LiveService) -> Iterator[None]:
    """After each test the servers respond, hold no requests and have no internal errors."""
    yield
    assert_goes_on(live, GOOD)
    assert_goes_on(many, {**GOOD, "target_language": "en"})


def assert_goes_on(live: LiveService, good: dict[str, Any]) -> None:
    assert live.post(good).status_code == 200
    assert live.call(TranslateRequest(**good)).translations
    live.settle()
    assert live.metric("sequences_running") == 0
    assert live.metric("sequences_waiting") == 0
    assert live.metric("requests_total", outcome="internal") == 0


@dataclass(frozen=True)
class Bad:
    """A request that both protocols reject with the same message."""

    name: str
    fields: dict[str, Any]
    field: str


BAD = [
    Bad("unknown source language", {**GOOD, "source_language": "fr"}, "source_language"),
    Bad("unknown target language", {**GOOD, "target_language": "en"}, "target_language"),
    Bad("no text", {"text": []}, "text"),
    Bad("too many texts", {"text": ["alpha"] * 4}, "text"),
    Bad("blank text", {"text": ["alpha", " \t"]}, "text[1]"),
    Bad("text with NUL", {"text": ["al\0pha"]}, "text[0]"),
    Bad("too many characters", {"text": ["a" * (MAX_TEXT_CHARACTERS + 1)]}, "text[0]"),
    Bad(
        "too many tokens",
        {"text": ["alpha", "one " * MAX_SOURCE_TOKENS], "split_sentences": False},
        "text[1]",
    ),
    Bad("fewer prefixes than texts", {"text": ["alpha", "beta"], "target_prefix": ["one"]}, "target_prefix"),
    Bad("prefix with NUL", {**GOOD, "target_prefix": ["o\0ne"]}, "target_prefix[0]"),
    Bad("too many characters of a prefix", {**GOOD, "target_prefix": ["a" * 501]}, "target_prefix[0]"),
    Bad("too many tokens of a prefix", {**GOOD, "target_prefix": ["one " * 21]}, "target_prefix[0]"),
]


BAD_AMONG_MANY = [
    Bad("no language", GOOD, "target_language"),
    Bad("no target language", {**GOOD, "source_language": "en"}, "target_language"),
    Bad("a target language of no direction", {**GOOD, "target_language": "fr"}, "target_language"),
    Bad("ambiguous source language", {**GOOD, "target_language": "de"}, "source_language"),
    Bad("languages of no direction", {**GOOD, "source_language": "fr", "target_language": "en"}, "source_language"),
]


@pytest.mark.promise("R31")
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_both_protocols_reject_it_with_the_same_message(live: LiveService, bad: Bad) -> None:
    assert_refused(live, bad)


@pytest.mark.parametrize("bad", BAD_AMONG_MANY, ids=lambda bad: bad.name)
def test_both_protocols_reject_an_unknown_direction(many: LiveService, bad: Bad) -> None:
    assert_refused(many, bad)


def assert_refused(live: LiveService, bad: Bad) -> None:
    answer = live.post(bad.fields)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["reason"], problem["field"], problem["status"]) == ("invalid", bad.field, 400)
    error = live.call_error(TranslateRequest(**bad.fields))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == problem["detail"]
    assert problem["detail"].startswith(f"{bad.field}: ")


def test_a_lone_surrogate_is_refused_by_name(live: LiveService) -> None:
    """JSON can contain one; protobuf bytes can encode one."""
    problem = live.post(content=rb'{"text": ["alpha", "\ud83d"]}', headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, "text[1]")
    error = live.call_error(b"\x0a\x05alpha\x0a\x03\xed\xa0\xbd")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith("text[1]: ")


def test_malformed_utf_8_is_refused_by_name(live: LiveService) -> None:
    problem = live.post(content=b'{"text": ["alpha", "\xff"]}', headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, "body")
    error = live.call_error(b"\x0a\x05alpha\x0a\x01\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith("text[1]: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [("target_prefix", ["one", "x\ud83d"]), ("options", {"suppressed_tokens": ["a", "x\ud83d"]})],
    ids=["prefix", "piece"],
)
def test_a_lone_surrogate_in_any_string_is_refused_by_name(live: LiveService, name: str, value: object) -> None:
    field = "options.suppressed_tokens[1]" if name == "options" else "target_prefix[1]"
    content = json.dumps({"text": ["alpha", "beta"], name: value}).encode()
    problem = live.post(content=content, headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, field)


@pytest.mark.parametrize(
    ("content", "field"),
    [(b"\x32\x01\xff", "target_prefix[0]"), (b"\x2a\x04\x82\x01\x01\xff", "options.suppressed_tokens[0]")],
    ids=["prefix", "piece"],
)
def test_malformed_utf_8_in_any_string_is_refused_by_name(live: LiveService, content: bytes, field: str) -> None:
    error = live.call_error(b"\x0a\x05alpha" + content)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith(f"{field}: ")


def test_malformed_requests_are_rejected(live: LiveService) -> None:
    problem = live.post(content=b"\x00\x01", headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, "body")
    error = live.call_error(b"\xff\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith("request: ")


def test_too_large_requests_are_rejected(live: LiveService) -> None:
    fields: dict[str, Any] = {"text": ["alpha " * 200_000]}
    problem = live.post(fields).json()
    assert (problem["status"], problem["reason"]) == (413, "too_large")
    assert live.call_error(TranslateRequest(**fields)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b'{"text": 5}', "text"),
        (b'{"text": ["alpha", 5]}', "text[1]"),
        (b'{"text": "alpha", "target_prefix": 5}', "target_prefix"),
        (b'{"text": "alpha", "max_target_tokens": 5}', "max_target_tokens"),
        (b'{"text": "alpha", "beam_size": 4}', "beam_size"),
        (b"[" * MAX_BODY_BYTES, "body"),
        (b"{", "body"),
    ],
)
def test_wrong_json_is_refused_by_name(live: LiveService, content: bytes, field: str) -> None:
    answer = live.post(content=content, headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_the_size_of_a_body_is_limited_to_the_byte(live: LiveService) -> None:
    body = json.dumps(GOOD).encode()
    largest = body + b" " * (MAX_BODY_BYTES - len(body))
    assert live.post(content=largest, headers=JSON).status_code == 200
    assert live.post(content=largest + b" ", headers=JSON).status_code == 413


def test_the_limit_holds_for_a_body_of_unknown_length(live: LiveService) -> None:
    body = json.dumps(GOOD).encode()
    largest = [body, *[b" "] * (MAX_BODY_BYTES - len(body))]
    assert live.post(content=iter(largest), headers=JSON).status_code == 200
    assert live.post(content=iter([*largest, b" "]), headers=JSON).status_code == 413


def test_the_size_of_a_message_is_limited_to_the_byte(live: LiveService) -> None:
    """An unknown field pads the message."""
    message = TranslateRequest(**GOOD).SerializeToString()
    padding = MAX_BODY_BYTES - len(message) - 3
    for extra in (0, 1):
        length = padding + extra
        padded = message + b"\x7a" + bytes([length & 0x7F | 0x80, length >> 7]) + b"x" * length
        assert len(padded) == MAX_BODY_BYTES + extra
        if extra:
            assert live.call_error(padded).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            assert live.call(padded).translations
