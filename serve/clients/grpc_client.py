"""A gRPC client for the commands that talk to a running server: one text in, its translation and score out.

It is `serve.clients.aio` in the form that all clients of the commands have, such as
`serve.clients.text_clients` for REST. The load generator, which must not retry, has clients of its own.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Self, Unpack

from serve.clients.aio import AsyncTranslationClient
from serve.clients.channel import ClientSettings
from serve.clients.wanted import Wanted
from serve.translation.response import TranslationDelta


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """A translation and the sum of its tokens' natural log-probabilities, at most 0."""

    text: str
    score: float


class GrpcClient:
    """Translates texts over one channel; any number may be under way at once."""

    def __init__(self, client: AsyncTranslationClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str, settings: ClientSettings) -> AsyncIterator[Self]:
        """Opens a channel to `host:port` and closes it.

        Raises:
            OSError: if a file of the settings cannot be read.
        """
        async with AsyncTranslationClient.open(target, settings) as client:
            yield cls(client)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the server refused, failed or could not be reached.
        """
        (translation,) = (await self._client.translate(text, **wanted)).translations
        return TranslatedText(translation.text, translation.score)

    async def stream(self, text: str, **wanted: Unpack[Wanted]) -> AsyncGenerator[str]:
        """Yields what the best translation of one text grows by.

        Raises:
            NotTranslatedError: if the server refused, failed or could not be reached; what came is no translation then.
        """
        async with aclosing(self._client.stream(text, **wanted)) as events:
            async for event in events:
                if isinstance(event, TranslationDelta):
                    yield event.text
