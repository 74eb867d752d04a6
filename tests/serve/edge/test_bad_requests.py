"""The same invalid request over both protocols: status, named field, and a server that keeps running."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.cases import cases
from tests.support.fake_bundles import MAX_SOURCE_TOKENS, direction, write_bundle
from tests.support.live import LiveService, run_service
from tests.support.wire import refusal_of_both

CASES = cases(__file__)

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


LONG = [
    pytest.param({"text": ["alpha"] * 4}, "text", id="too many texts"),
    pytest.param({"text": ["a\n" * 100]}, "text", id="too many sentences"),
    pytest.param({"text": ["a" * (MAX_TEXT_CHARACTERS + 1)]}, "text[0]", id="too many characters"),
    pytest.param(
        {"text": ["alpha", "one " * MAX_SOURCE_TOKENS], "split_sentences": False}, "text[1]", id="too many tokens"
    ),
    pytest.param({**GOOD, "target_prefix": ["a" * 501]}, "target_prefix[0]", id="too many characters of a prefix"),
    pytest.param({**GOOD, "target_prefix": ["one " * 21]}, "target_prefix[0]", id="too many tokens of a prefix"),
]


def named(title: str) -> list[Any]:
    return [pytest.param(*row, id=name) for name, row in CASES[title].items()]


@pytest.mark.promise("R31")
@pytest.mark.parametrize(("fields", "field"), [*named("both protocols reject it with the same message"), *LONG])
def test_both_protocols_reject_it_with_the_same_message(live: LiveService, fields: dict[str, Any], field: str) -> None:
    assert refusal_of_both(live, fields)[0] == field


@pytest.mark.parametrize(("fields", "field"), named("both protocols reject an unknown direction"))
def test_both_protocols_reject_an_unknown_direction(many: LiveService, fields: dict[str, Any], field: str) -> None:
    assert refusal_of_both(many, fields)[0] == field


@pytest.mark.parametrize(("field", "value"), CASES["a lone surrogate is rejected by field"])
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
