"""One client that asks for one sentence at a time: of the bare engine, over gRPC and over REST.

Each keeps one connection and does as little as it can until it has the whole answer; what the answer says is looked at
later. Knows no clock; called by `benchmarks.overhead`.
"""

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import grpc

from benchmarks.service_sentences import ServiceSentence
from benchmarks.systems.batching import Batching
from benchmarks.systems.engine_translator import EngineTranslator
from loadtest.grpc_clients import message_of
from loadtest.request import LoadRequest
from loadtest.rest_clients import TRANSLATE_PATH, body_of
from model.tokenizer.text_tokenizer import TextTokenizer
from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub

TIMEOUT_SECONDS = 30.0
_ALONE = Batching(1, "examples")

# Tells the text of a translation.
Answer = Callable[[], str]


class LoneClientError(Exception):
    """A sentence was not translated; the message holds what was answered instead."""


class LoneClient(Protocol):
    """Asks for one sentence at a time."""

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns the answer, which is there as a whole.

        Raises:
            LoneClientError: if there is none.
        """


class EngineClient:
    """Has the bare engine translate."""

    def __init__(self, engine: EngineTranslator, tokenizer: TextTokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer

    @classmethod
    @contextmanager
    def open(cls, bundle: Path, slots: int, tokenizer: TextTokenizer) -> Iterator["EngineClient"]:
        """Runs an engine with one thread until the block ends."""
        with closing(EngineTranslator(str(bundle), copies=1, threads=1, slots=slots)) as engine:
            yield cls(engine, tokenizer)

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns what the engine says.

        Raises:
            ServiceError: if it fails.
        """
        (target_ids,) = self._engine.translate([sentence.source], 1, _ALONE)
        return lambda: self._tokenizer.decode(target_ids)


class GrpcLoneClient:
    """Asks a server over one gRPC channel."""

    def __init__(self, channel: grpc.Channel, request: LoadRequest) -> None:
        self._stub = TranslationServiceStub(channel)
        self._message = message_of(request)

    @classmethod
    @contextmanager
    def open(cls, target: str, request: LoadRequest) -> Iterator["GrpcLoneClient"]:
        """Connects to a server and leaves it when the block ends.

        Args:
            target: the server's host and port.
            request: what is asked for, but for its text.
        """
        with grpc.insecure_channel(target) as channel:
            yield cls(channel, request)

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns what the server says.

        Raises:
            LoneClientError: if it does not translate.
        """
        message = TranslateRequest(text=[sentence.text])
        message.MergeFrom(self._message)
        try:
            response = self._stub.Translate(message, timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise LoneClientError(f"gRPC: {sentence.text}: {error}") from error
        return lambda: response.translations[0].text


class RestLoneClient:
    """Asks a server over one HTTP connection that is kept alive."""

    def __init__(self, connection: http.client.HTTPConnection, request: LoadRequest) -> None:
        self._connection = connection
        self._body = body_of(request)

    @classmethod
    @contextmanager
    def open(cls, host: str, port: int, request: LoadRequest) -> Iterator["RestLoneClient"]:
        """Connects to a server and leaves it when the block ends.

        Args:
            host: of the server.
            port: of its REST interface.
            request: what is asked for, but for its text.
        """
        with closing(http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)) as connection:
            yield cls(connection, request)

    def ask(self, sentence: ServiceSentence) -> Answer:
        """Returns what the server says.

        Raises:
            LoneClientError: if it does not translate.
        """
        body = json.dumps({**self._body, "text": sentence.text})
        try:
            self._connection.request("POST", TRANSLATE_PATH, body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LoneClientError(f"REST: {sentence.text}: {error}") from error
        if response.status != HTTPStatus.OK:
            raise LoneClientError(f"REST: {sentence.text}: {response.status}: {content.decode(errors='replace')}")
        return lambda: str(json.loads(content)["translations"][0]["text"])
