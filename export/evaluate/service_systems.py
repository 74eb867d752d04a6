"""Systems that use the serving code: a bundle in this process, or a running server.

Several texts are in flight at once, each with the languages of its corpus.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from dragoman.export.evaluate.system import Progress, Search, SystemUnusableError
from dragoman.model.data.corpus import Corpus
from dragoman.model.errors import reason_of
from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.channel import ClientSettings
from dragoman.serve.clients.rest import RestClient
from dragoman.serve.local.chunks import map_in_order
from dragoman.serve.local.errors import ModelError, TranslationError
from dragoman.serve.local.options import RequestFields
from dragoman.serve.local.translator import LocalTranslator

# Rows in flight; a server with one engine can queue or run all of them.
IN_FLIGHT_ROWS = 64
TIMEOUT_SECONDS = 120.0

Translator = AsyncTranslationClient | LocalTranslator | RestClient


@dataclass(frozen=True, slots=True)
class ServiceSystem:
    """A system behind a client of the server."""

    kind: str
    name: str
    search: Search
    open_translator: Callable[[], AbstractAsyncContextManager[Translator]]

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Implements `System.translate`; raises SystemUnusableError if the bundle or a sentence fails."""
        try:
            return asyncio.run(self._translate(corpora, progress))
        except (ModelError, OSError) as error:
            raise SystemUnusableError(reason_of(error)) from error

    async def _translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        answered, numbers = asyncio.Event(), count()
        async with self.open_translator() as translator:

            async def translate(sentence: tuple[Corpus, int]) -> str:
                corpus, index = sentence
                text, (source, target) = corpus.sources[index], corpus.languages
                if next(numbers) > 0:
                    await answered.wait()  # an unusable server fails one call, not all in flight
                try:
                    translation = await self._translate_text(translator, text, source, target)
                except TranslationError as error:
                    message = f"{self.name}: {source}-{target}, sentence {index + 1}: {error}"
                    raise SystemUnusableError(message) from error
                answered.set()
                progress.update()
                return translation

            in_flight = max(1, IN_FLIGHT_ROWS // self.search.rows)
            async with aclosing(map_in_order(translate, _sentences(corpora), in_flight)) as translations:
                return [[await anext(translations) for _ in range(len(corpus))] for corpus in corpora]

    async def _translate_text(self, translator: Translator, text: str, source: str, target: str) -> str:
        # A line pairs with its reference, even if it holds several sentences.
        fields = RequestFields(
            source_language=source, target_language=target, options=self.search, split_sentences=False
        )
        if isinstance(translator, LocalTranslator):
            return (await translator.translate(text, timeout_seconds=TIMEOUT_SECONDS, **fields)).text
        return (await translator.translate(text, **fields)).translations[0].text


async def _sentences(corpora: Sequence[Corpus]) -> AsyncIterator[tuple[Corpus, int]]:
    for corpus in corpora:
        for index in range(len(corpus)):
            yield corpus, index


def open_bundle_system(folder: Path, search: Search) -> ServiceSystem:
    """Returns a bundle that translates in this process."""
    return ServiceSystem("bundle", str(folder), search, lambda: LocalTranslator(folder, alignments=search.attended))


def open_grpc_system(target: str, search: Search, connection: ClientSettings) -> ServiceSystem:
    """Returns a gRPC server at `host:port`."""
    settings = replace(connection, timeout_seconds=TIMEOUT_SECONDS)
    return ServiceSystem("server", f"grpc://{target}", search, lambda: AsyncTranslationClient.open(target, settings))


def open_http_system(host: str, port: int, search: Search, connection: ClientSettings) -> ServiceSystem:
    """Returns a REST server."""
    settings = replace(connection, timeout_seconds=TIMEOUT_SECONDS)
    name = f"{'https' if settings.encrypted else 'http'}://{host}:{port}"
    return ServiceSystem("server", name, search, lambda: RestClient.open(host, port, settings))
