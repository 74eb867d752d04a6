"""Translates in this process, with the engines of the service and without its interfaces.

Has the methods of `serve.client.GrpcClient`, so that commands take the one or the other.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self

from export.bundle import BundleError
from model.tokenizer import TokenizerError
from serve.answer import TranslationDelta
from serve.client import DEFAULT_OPTIONS, NotTranslatedError, TranslatedText
from serve.errors import ServiceError
from serve.golden import GoldenMismatchError
from serve.logs import configure_logs
from serve.pipeline import Pipeline
from serve.request import TranslationRequest
from serve.search_fields import SearchFields
from serve.settings import ServeCommand

# What keeps a bundle from being served in this process.
PIPELINE_ERRORS = (BundleError, GoldenMismatchError, OSError, ServiceError, TokenizerError)


class PipelineTranslator:
    """Translates in this process, with the engines of the service and without its interfaces."""

    def __init__(self, pipeline: Pipeline, timeout_seconds: float) -> None:
        self._pipeline = pipeline
        self._timeout_seconds = timeout_seconds

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ServeCommand, timeout_seconds: float) -> AsyncIterator[Self]:
        """Starts the engines and stops them; a text may take `timeout_seconds`.

        Raises:
            BundleError, GoldenMismatchError, TokenizerError: if the bundle cannot be served.
        """
        from serve.app import open_pipeline  # noqa: PLC0415 - a client of a server needs no ONNX Runtime

        async with open_pipeline(settings) as pipeline:
            yield cls(pipeline, timeout_seconds)

    async def translate(
        self,
        text: str,
        *,
        source_language: str = "",
        target_language: str = "",
        options: SearchFields = DEFAULT_OPTIONS,
    ) -> TranslatedText:
        """Returns the best translation of one text; an empty language means the model's.

        Raises:
            NotTranslatedError: if the request is not valid or the model fails.
        """
        with _refusals():
            request = self._admit(text, source_language, target_language, options)
            response = await self._pipeline.translator.translate(request)
        (translation,) = response.translations
        return TranslatedText(translation.text, translation.score)

    async def stream(
        self,
        text: str,
        *,
        source_language: str = "",
        target_language: str = "",
        options: SearchFields = DEFAULT_OPTIONS,
    ) -> AsyncGenerator[str]:
        """Yields what the best translation of one text grows by; an empty language means the model's.

        Raises:
            NotTranslatedError: if the request is not valid or the model fails; what came before is no translation.
        """
        with _refusals():
            request = self._admit(text, source_language, target_language, options)
            async with aclosing(self._pipeline.translator.stream(request)) as events:
                async for event in events:
                    if isinstance(event, TranslationDelta):
                        yield event.text

    def _admit(
        self, text: str, source_language: str, target_language: str, options: SearchFields
    ) -> TranslationRequest:
        return self._pipeline.limits.admit(
            texts=(text,),
            source_language=source_language,
            target_language=target_language,
            options=options,
            target_prefix=(),
            deadline_seconds=time.monotonic() + self._timeout_seconds,
        )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise NotTranslatedError(f"{error.reason}: {error}") from error


def open_bundle(
    bundle: Path, in_flight: int, timeout_seconds: float, options: SearchFields = DEFAULT_OPTIONS
) -> AbstractAsyncContextManager[PipelineTranslator]:
    """Returns a translator in this process that never refuses for want of room, up to `in_flight` texts at once.

    Args:
        bundle: its folder.
        in_flight: texts under way at once.
        timeout_seconds: how long one may take.
        options: what texts are going to be searched with.

    Raises:
        PIPELINE_ERRORS: on entering, if the bundle cannot be served.
    """
    configure_logs("console")
    settings = ServeCommand(bundle=bundle, queue_limit=in_flight * options.rows, alignments=options.attended)
    return PipelineTranslator.open(settings, timeout_seconds)
