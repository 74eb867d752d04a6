"""A gRPC client for the commands that talk to a running server: one text in, its translation and score out.

It retries what a later try can mend, as the server asks (full queue, draining replica); the load generator, which must
not, has clients of its own. `serve.http_client` is its like for REST. The service itself uses neither.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self, Unpack

import grpc.aio

from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.wanted import Wanted, request_fields

# gRPC's own retries: waits of 0.1, 0.3, 0.9 and 2 seconds at most, or what the server's pushback says.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
            },
        }
    ]
}


class NotTranslatedError(Exception):
    """A text was not translated; the message says why."""


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """A translation and the sum of its tokens' natural log-probabilities, at most 0."""

    text: str
    score: float


class GrpcClient:
    """Translates texts over one channel; any number may be under way at once."""

    def __init__(self, channel: grpc.aio.Channel, timeout_seconds: float) -> None:
        self._stub = TranslationServiceStub(channel)
        self._timeout_seconds = timeout_seconds

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str, timeout_seconds: float) -> AsyncIterator[Self]:
        """Opens a channel to `host:port` and closes it; a text may take `timeout_seconds`, retries included."""
        options = (("grpc.service_config", json.dumps(_SERVICE_CONFIG)),)
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            yield cls(channel, timeout_seconds)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the server refused, failed or could not be reached.
        """
        with _refusals():
            response = await self._stub.Translate(_request(text, wanted), timeout=self._timeout_seconds)
        (translation,) = response.translations
        return TranslatedText(translation.text, translation.score)

    async def stream(self, text: str, **wanted: Unpack[Wanted]) -> AsyncGenerator[str]:
        """Yields what the best translation of one text grows by.

        Raises:
            NotTranslatedError: if the server refused, failed or could not be reached; what came is no translation then.
        """
        call = self._stub.TranslateStream(_request(text, wanted), timeout=self._timeout_seconds)
        try:
            with _refusals():
                async for event in call:
                    if event.HasField("delta"):
                        yield event.delta.text
        finally:
            call.cancel()


def _request(text: str, wanted: Wanted) -> TranslateRequest:
    return TranslateRequest(**request_fields(text, wanted))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise NotTranslatedError(f"{error.code().name}: {error.details()}") from error
