"""The REST client over real connections: requests, retries and errors."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from serve.clients.channel import ClientSettings
from serve.clients.errors import NotTranslatedError
from serve.clients.text_clients import TIMEOUT_HEADER, HttpClient, TranslatedText
from serve.translation.fields import SearchFields
from tests.support.live import LiveService

TIMEOUT_SECONDS = 20.0

# Maps the body of a request and the number of earlier requests to status, headers and body of a response.
Answer = Callable[[dict[str, str], int], tuple[int, dict[str, str], str]]


@contextmanager
def answer_with(answer: Answer) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Serves on a free port; yields the port and the headers of received requests."""
    requests: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, headers, content = answer(body, len(requests))
            requests.append(dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port, requests
        server.shutdown()
        thread.join()


def ask(port: int, text: str = "one", timeout_seconds: float = TIMEOUT_SECONDS, **options: Any) -> TranslatedText:
    async def translate() -> TranslatedText:
        settings = ClientSettings(timeout_seconds=timeout_seconds, api_key="secret")
        async with HttpClient.open("127.0.0.1", port, settings, in_flight=2) as client:
            return await client.translate(text, **options)

    return asyncio.run(translate())


def refusal(port: int, **options: Any) -> str:
    with pytest.raises(NotTranslatedError) as raised:
        ask(port, **options)
    return str(raised.value)


def capitals(body: dict[str, str], _: int) -> tuple[int, dict[str, str], str]:
    return 200, {}, json.dumps({"translations": [{"text": body["text"][0].upper(), "score": -1.5}], "timings": {}})


def busy(_: dict[str, str], __: int) -> tuple[int, dict[str, str], str]:
    return 429, {"retry-after": "0"}, json.dumps({"reason": "queue_full", "detail": "no room"})


def test_the_service_answers_as_over_grpc(live: LiveService) -> None:
    request = {"text": ["alpha beta"]}
    (expected,) = live.post(request).json()["translations"]
    answer = ask(live.service.http_port, "alpha beta", source_language="en", target_language="de")
    assert answer == TranslatedText(expected["text"], expected["score"])


def test_the_service_is_told_languages(live: LiveService) -> None:
    assert refusal(live.service.http_port, source_language="fr").startswith("invalid: source_language: 'fr'")


def test_the_service_is_told_how_to_search(live: LiveService) -> None:
    options = SearchFields(max_target_tokens=1, suppressed_tokens=("no piece",))
    message = 'invalid: options.suppressed_tokens[0]: "no piece", expected a piece of the target vocabulary'
    assert refusal(live.service.http_port, options=options) == message


def test_the_service_is_told_how_long_the_client_waits() -> None:
    with answer_with(capitals) as (port, requests):
        assert ask(port) == TranslatedText("ONE", -1.5)
    assert 0 < int(requests[0][TIMEOUT_HEADER]) <= TIMEOUT_SECONDS * 1000


def test_the_service_is_told_the_key() -> None:
    with answer_with(capitals) as (port, requests):
        ask(port)
    assert requests[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [429, 503])
def test_transient_errors_are_retried(status: int) -> None:
    def answer(body: dict[str, str], earlier: int) -> tuple[int, dict[str, str], str]:
        return capitals(body, earlier) if earlier == 2 else (status, *busy(body, earlier)[1:])

    with answer_with(answer) as (port, requests):
        assert ask(port).text == "ONE"
    assert len(requests) == 3


def test_a_try_that_would_come_too_late_is_not_made() -> None:
    def answer(body: dict[str, str], earlier: int) -> tuple[int, dict[str, str], str]:
        status, _, content = busy(body, earlier)
        return status, {"retry-after": "1000"}, content

    with answer_with(answer) as (port, requests):
        assert refusal(port) == "queue_full: no room"
    assert len(requests) == 1


@pytest.mark.parametrize("status", [400, 500, 503])
def test_without_retry_after_no_request_is_retried(status: int) -> None:
    def answer(_: dict[str, str], __: int) -> tuple[int, dict[str, str], str]:
        return status, {}, json.dumps({"reason": "why", "detail": "what was wrong", "status": status})

    with answer_with(answer) as (port, requests):
        assert refusal(port) == "why: what was wrong"
    assert len(requests) == 1


@pytest.mark.parametrize(("status", "content"), [(200, "<html>"), (404, "nothing here"), (200, '{"translations": []}')])
def test_an_unexpected_response_is_shown(status: int, content: str) -> None:
    with answer_with(lambda _, __: (status, {}, content)) as (port, _):
        assert refusal(port) == f"{status}: unexpected response: {content}"


def test_a_server_that_is_not_there_is_named() -> None:
    assert refusal(1).startswith("127.0.0.1:1: ")
