"""Systems that translate as the service does: a bundle, by the service's engines in this process, or a running server.

The one place outside `serve` that knows the service's clients. They translate many texts at once, each with the
languages of its corpus. Called by `export.systems`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from pathlib import Path

from export.system import Progress, SystemUnusableError
from model.corpus import Corpus
from serve.client import GrpcClient, NotTranslatedError
from serve.http_client import HttpClient
from serve.lines import map_in_order
from serve.local_translator import open_bundle
from serve.model_loader import LOAD_ERRORS
from serve.translate import TextTranslator

IN_FLIGHT = 64
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ServiceSystem:
    """A system behind a client of the service."""

    kind: str
    name: str
    open_translator: Callable[[], AbstractAsyncContextManager[TextTranslator]]

    def translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        """Returns the translation of every source of every corpus, telling the progress by the sentence.

        Raises:
            SystemUnusableError: if a bundle cannot be served, or a sentence is not translated.
        """
        try:
            return asyncio.run(self._translate(corpora, progress))
        except LOAD_ERRORS as error:
            raise SystemUnusableError(str(error)) from error

    async def _translate(self, corpora: Sequence[Corpus], progress: Progress) -> list[list[str]]:
        async with self.open_translator() as translator:

            async def translate(sentence: tuple[Corpus, int]) -> str:
                corpus, index = sentence
                text, (source, target) = corpus.sources[index], corpus.languages
                try:
                    translated = await translator.translate(text, source_language=source, target_language=target)
                except NotTranslatedError as error:
                    message = f"{self.name}: {source}-{target}, sentence {index + 1}: {error}"
                    raise SystemUnusableError(message) from error
                progress.update()
                return translated.text

            async with aclosing(map_in_order(translate, _sentences(corpora), IN_FLIGHT)) as translations:
                return [[await anext(translations) for _ in range(len(corpus))] for corpus in corpora]


async def _sentences(corpora: Sequence[Corpus]) -> AsyncIterator[tuple[Corpus, int]]:
    for corpus in corpora:
        for index in range(len(corpus)):
            yield corpus, index


def open_bundle_system(folder: Path) -> ServiceSystem:
    """Returns a bundle that translates in this process."""
    return ServiceSystem("bundle", str(folder), lambda: open_bundle(folder, IN_FLIGHT, TIMEOUT_SECONDS))


def open_grpc_system(target: str) -> ServiceSystem:
    """Returns a server that is asked over gRPC, at `host:port`."""
    return ServiceSystem("server", f"grpc://{target}", lambda: GrpcClient.open(target, TIMEOUT_SECONDS))


def open_http_system(host: str, port: int) -> ServiceSystem:
    """Returns a server that is asked over REST."""
    name = f"http://{host}:{port}"
    return ServiceSystem("server", name, lambda: HttpClient.open(host, port, TIMEOUT_SECONDS, IN_FLIGHT))
