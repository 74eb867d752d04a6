"""The same invalid request over both protocols: status, named field, and a server that keeps running."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.fake_bundles import MAX_SOURCE_TOKENS, direction, write_bundle
from tests.support.live import LiveService, run_service
from tests.support.wire import refusal_of_both

MAX_TEXT_CHARACTERS = 500
MAX_BODY_BYTES = 2000
JSON = {"content-type": "application/json"}
GOOD: dict[str, Any] = {"text": ["alpha beta."]}
BODY = json.dumps(GOOD).encode()
PADDING = MAX_BODY_BYTES - len(BODY)


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    """One service for all tests: damage by one request fails the next."""
    limits: dict[str, Any] = {"max_text_characters": MAX_TEXT_CHARACTERS, "max_body_bytes": MAX_BODY_BYTES}
    with run_service(bundle_path, max_texts=3, **limits) as service:
        yield service


@pytest.fixture(scope="module")
def many(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service with several directions; two languages translate into German."""
    directions = (direction("en-de", 4), direction("fr-de", 4), direction("de-en", 5))
    with run_service(write_bundle(tmp_path_factory.mktemp("many"), tokenizer, directions=directions)) as service:
        yield service


@pytest.fixture(autouse=True)
def goes_on(live: LiveService, many: LiveService) -> Iterator[None]:
    """After each test the servers respond, hold no requests and have no internal errors."""
    yield
    for service, good in ((live, GOOD), (many, {**GOOD, "target_language": "en"})):
        assert service.post(good).status_code == 200
        assert service.call(TranslateRequest(**good)).translations
        service.settle()
        assert service.metric("sequences_running") == service.metric("sequences_waiting") == 0
        assert service.metric("requests_total", outcome="internal") == 0


BAD = [
    ("unknown source language", {**GOOD, "source_language": "fr"}, "source_language"),
    ("unknown target language", {**GOOD, "target_language": "en"}, "target_language"),
    ("no text", {"text": []}, "text"),
    ("too many texts", {"text": ["alpha"] * 4}, "text"),
    ("empty text", {"text": [""]}, "text[0]"),
    ("blank text", {"text": ["alpha", " \t"]}, "text[1]"),
    ("invisible text", {"text": ["alpha", "\u200b\x01 \ufeff"]}, "text[1]"),
    ("too many sentences", {"text": ["a\n" * 100]}, "text"),
    ("text with NUL", {"text": ["al\0pha"]}, "text[0]"),
    ("too many characters", {"text": ["a" * (MAX_TEXT_CHARACTERS + 1)]}, "text[0]"),
    ("too many tokens", {"text": ["alpha", "one " * MAX_SOURCE_TOKENS], "split_sentences": False}, "text[1]"),
    ("fewer prefixes than texts", {"text": ["alpha", "beta"], "target_prefix": ["one"]}, "target_prefix"),
    ("more prefixes than texts", {**GOOD, "target_prefix": ["one", "two"]}, "target_prefix"),
    ("prefix with NUL", {**GOOD, "target_prefix": ["o\0ne"]}, "target_prefix[0]"),
    ("too many characters of a prefix", {**GOOD, "target_prefix": ["a" * 501]}, "target_prefix[0]"),
    ("too many tokens of a prefix", {**GOOD, "target_prefix": ["one " * 21]}, "target_prefix[0]"),
]
BAD_AMONG_MANY = [
    ("no language", GOOD, "target_language"),
    ("no target language", {**GOOD, "source_language": "en"}, "target_language"),
    ("a target language of no direction", {**GOOD, "target_language": "fr"}, "target_language"),
    ("languages of no direction", {**GOOD, "source_language": "fr", "target_language": "en"}, "source_language"),
]


def cases(named: list[tuple[str, dict[str, Any], str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("fields", "field"), [pytest.param(*case, id=name) for name, *case in named])


@pytest.mark.promise("R31")
@cases(BAD)
def test_both_protocols_reject_it_with_the_same_message(live: LiveService, fields: dict[str, Any], field: str) -> None:
    assert refusal_of_both(live, fields)[0] == field


@cases(BAD_AMONG_MANY)
def test_both_protocols_reject_an_unknown_direction(many: LiveService, fields: dict[str, Any], field: str) -> None:
    assert refusal_of_both(many, fields)[0] == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text[1]", {"text": ["alpha", "x\ud83d"]}),
        ("target_prefix[1]", {"text": ["alpha", "beta"], "target_prefix": ["one", "x\ud83d"]}),
        ("options.suppressed_tokens[1]", {**GOOD, "options": {"suppressed_tokens": ["a", "x\ud83d"]}}),
    ],
)
def test_a_lone_surrogate_is_rejected_by_field(live: LiveService, field: str, value: dict[str, Any]) -> None:
    """JSON can contain one."""
    problem = live.post(content=json.dumps(value).encode(), headers=JSON).json()
    assert (problem["status"], problem["field"]) == (400, field)


def test_too_large_requests_are_rejected(live: LiveService) -> None:
    fields: dict[str, Any] = {"text": ["alpha " * 200_000]}
    problem = live.post(fields).json()
    assert (problem["status"], problem["reason"]) == (413, "too_large")
    assert live.call_error(TranslateRequest(**fields)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("chunked", [False, True])
def test_the_size_of_a_body_is_limited_to_the_byte(live: LiveService, *, chunked: bool) -> None:
    """Also if its length is unknown until its end."""

    def status(padding: int) -> int:
        pieces = [BODY, *[b" "] * padding]
        return live.post(content=iter(pieces) if chunked else b"".join(pieces), headers=JSON).status_code

    assert (status(PADDING), status(PADDING + 1)) == (200, 413)


def test_the_size_of_a_message_is_limited_to_the_byte(live: LiveService) -> None:
    """An unknown field pads the message."""
    message = TranslateRequest(**GOOD).SerializeToString()
    padding = MAX_BODY_BYTES - len(message) - 3
    largest, too_large = (
        message + b"\x7a" + bytes([length & 0x7F | 0x80, length >> 7]) + b"x" * length
        for length in (padding, padding + 1)
    )
    assert len(largest) == MAX_BODY_BYTES
    assert live.call(largest).translations
    assert live.call_error(too_large).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
