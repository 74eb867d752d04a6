"""The requests of `dragoman demo` to a service with fake models; a snapshot holds its output."""

import asyncio
import json
import shlex

import pytest

from dragoman.serve.commands.demo import curl_command, translate
from dragoman.serve.local.errors import TranslationError
from tests.support.live import LiveService


def test_every_sentence_is_translated_over_both_interfaces(live: LiveService) -> None:
    body, answers = asyncio.run(translate(live.service.http_port, live.service.grpc_port, ["alpha.", "beta."]))
    assert [(answer.source, answer.protocol) for answer in answers] == [
        *[("alpha.", "REST"), ("alpha.", "gRPC")],
        *[("beta.", "REST"), ("beta.", "gRPC")],
    ]
    for rest, over_grpc in (answers[:2], answers[2:]):
        assert (rest.translation, rest.score) == (over_grpc.translation, over_grpc.score)
    assert json.loads(body)["translations"][0]["text"] == answers[0].translation


def test_a_rejected_sentence_ends_the_demo(live: LiveService) -> None:
    with pytest.raises(TranslationError, match=r"text\[0\]"):
        asyncio.run(translate(live.service.http_port, live.service.grpc_port, ["alpha.", " "]))


def test_the_curl_command_quotes_any_sentence() -> None:
    sentence = """Anna's "big" dog lives in Köln; $HOME is empty."""
    arguments = shlex.split(curl_command(8000, sentence))
    assert arguments[:2] == ["curl", "http://127.0.0.1:8000/v1/translate"]
    assert json.loads(arguments[-1]) == {"text": sentence}
