"""The REST client over real connections: requests, retries and errors."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Unpack

import pytest

from dragoman.serve.clients.channel import ClientSettings
from dragoman.serve.clients.rest import TIMEOUT_HEADER, RestClient
from dragoman.serve.local.errors import TranslationError
from dragoman.serve.local.options import RequestFields
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.response import TranslationResponse
from tests.support.http_serving import QuietHandler, serving
from tests.support.live import LiveService

TIMEOUT_SECONDS = 60.0

# Status, headers and body.
Reply = tuple[int, dict[str, str], str]


@contextmanager
def answer_with(answer: Callable[[str, int], Reply]) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Serves on a free port; yields the port and the headers of received requests.

    `answer` gets the text of a request and the number of earlier requests.
    """
    requests: list[dict[str, str]] = []

    class Handler(QuietHandler, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, headers, content = answer(body["text"][0], len(requests))
            requests.append(dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content.encode())

    with serving(Handler) as address:
        yield int(address.rpartition(":")[2]), requests


def ask(port: int, text: str = "one", **wanted: Unpack[RequestFields]) -> TranslationResponse:
    async def translate() -> TranslationResponse:
        settings = ClientSettings(timeout_seconds=TIMEOUT_SECONDS, api_key="secret")
        async with RestClient.open("127.0.0.1", port, settings) as client:
            return await client.translate(text, **wanted)

    return asyncio.run(translate())


def refusal(port: int, **wanted: Unpack[RequestFields]) -> str:
    with pytest.raises(TranslationError) as raised:
        ask(port, **wanted)
    return str(raised.value)


def busy(retry_after: str) -> Reply:
    return 429, {"retry-after": retry_after}, json.dumps({"reason": "queue_full", "detail": "no room"})


def capitals(text: str) -> Reply:
    translation = {"text": text.upper(), "score": -1.5, "normalized_score": -1.5, "finish_reason": "eos"}
    times = dict.fromkeys(("tokenize_seconds", "queue_seconds", "inference_seconds", "total_seconds"), 0.0)
    counts = {"source_tokens": 1, "target_tokens": 1}
    return 200, {}, json.dumps({"translations": [{**translation, **counts}], "timings": times})


def test_the_response_is_that_of_the_service(live: LiveService) -> None:
    expected = live.post({"text": "alpha beta"}).json()["translations"]
    response = ask(live.service.http_port, "alpha beta", source_language="en", target_language="de")
    assert [(translation.text, translation.score) for translation in response.translations] == [
        (item["text"], item["score"]) for item in expected
    ]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"source_language": "fr"}, "source_language"),
        ({"options": SearchFields(suppressed_tokens=("no piece",))}, "options.suppressed_tokens[0]"),
    ],
)
def test_languages_and_options_are_sent(live: LiveService, wanted: RequestFields, field: str) -> None:
    assert refusal(live.service.http_port, **wanted).startswith(f"invalid: {field}: ")


def test_the_timeout_and_the_key_are_sent() -> None:
    with answer_with(lambda text, _: capitals(text)) as (port, requests):
        assert ask(port).translations[0].text == "ONE"
    assert 0 < int(requests[0][TIMEOUT_HEADER]) <= TIMEOUT_SECONDS * 1000
    assert requests[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [429, 503])
def test_transient_errors_are_retried(status: int) -> None:
    def answer(text: str, earlier: int) -> Reply:
        return capitals(text) if earlier == 2 else (status, *busy("0")[1:])

    with answer_with(answer) as (port, tries):
        assert ask(port).translations[0].text == "ONE"
    assert len(tries) == 3


@pytest.mark.parametrize(
    "reply",
    [busy("1000"), *((status, {}, busy("")[2]) for status in (400, 500, 503))],
    ids=["too late", "400", "500", "503 without retry-after"],
)
def test_other_errors_are_raised_at_once(reply: Reply) -> None:
    with answer_with(lambda _, __: reply) as (port, requests):
        assert refusal(port) == "queue_full: no room"
    assert len(requests) == 1


@pytest.mark.parametrize(("status", "content"), [(200, "<html>"), (404, "nothing here"), (200, '{"translations": []}')])
def test_an_unexpected_response_is_shown(status: int, content: str) -> None:
    with answer_with(lambda _, __: (status, {}, content)) as (port, _):
        assert refusal(port) == f"{status}: unexpected response: {content}"


def test_an_unreachable_server_is_named() -> None:
    assert refusal(1).startswith("127.0.0.1:1: ")
