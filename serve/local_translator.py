"""Translates in this process, with the models of the service and without its interfaces.

Has the methods of `serve.client.GrpcClient`, so that commands take the one or the other.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self

from serve.answer import TranslationDelta
from serve.asked import AskedDirection, AskedTranslation
from serve.client import DEFAULT_OPTIONS, NotTranslatedError, TranslatedText
from serve.dispatcher import Dispatcher
from serve.errors import ServiceError
from serve.logs import RequestRecord, configure_logs
from serve.search_fields import SearchFields
from serve.settings import ServeCommand


class LocalTranslator:
    """Translates in this process, with the models of the service and without its interfaces."""

    def __init__(self, dispatcher: Dispatcher, timeout_seconds: float) -> None:
        self._dispatcher = dispatcher
        self._timeout_seconds = timeout_seconds

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ServeCommand, timeout_seconds: float) -> AsyncIterator[Self]:
        """Starts the engines and stops them; a text may take `timeout_seconds`.

        Raises:
            BundleError, GoldenMismatchError, TokenizerError: if the bundle cannot be served.
        """
        from serve.app import open_dispatcher  # noqa: PLC0415 - a client of a server needs no ONNX Runtime

        async with open_dispatcher(settings) as dispatcher:
            yield cls(dispatcher, timeout_seconds)

    async def translate(
        self,
        text: str,
        *,
        source_language: str = "",
        target_language: str = "",
        options: SearchFields = DEFAULT_OPTIONS,
        model: str = "",
        allow_pivot: bool = False,
    ) -> TranslatedText:
        """Returns the best translation of one text; an empty language means the model's.

        Raises:
            NotTranslatedError: if the request is not valid or the model fails.
        """
        direction = AskedDirection(
            model=model, source_language=source_language, target_language=target_language, allow_pivot=allow_pivot
        )
        with _refusals():
            response = await self._dispatcher.translate(self._asked(text, direction, options), RequestRecord("local"))
        (translation,) = response.translations
        return TranslatedText(translation.text, translation.score)

    async def stream(
        self,
        text: str,
        *,
        source_language: str = "",
        target_language: str = "",
        options: SearchFields = DEFAULT_OPTIONS,
        model: str = "",
        allow_pivot: bool = False,
    ) -> AsyncGenerator[str]:
        """Yields what the best translation of one text grows by; an empty language means the model's.

        Raises:
            NotTranslatedError: if the request is not valid or the model fails; what came before is no translation.
        """
        direction = AskedDirection(
            model=model, source_language=source_language, target_language=target_language, allow_pivot=allow_pivot
        )
        asked = self._asked(text, direction, options)
        with _refusals():
            async with aclosing(self._dispatcher.stream(asked, RequestRecord("local"))) as events:
                async for event in events:
                    if isinstance(event, TranslationDelta):
                        yield event.text

    def _asked(self, text: str, direction: AskedDirection, options: SearchFields) -> AskedTranslation:
        deadline_seconds = time.monotonic() + self._timeout_seconds
        return AskedTranslation(texts=(text,), direction=direction, options=options, deadline_seconds=deadline_seconds)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise NotTranslatedError(f"{error.reason}: {error}") from error


def open_bundle(
    bundle: Path, in_flight: int, timeout_seconds: float, options: SearchFields = DEFAULT_OPTIONS
) -> AbstractAsyncContextManager[LocalTranslator]:
    """Returns a translator in this process that never refuses for want of room, up to `in_flight` texts at once.

    Args:
        bundle: its folder.
        in_flight: texts under way at once.
        timeout_seconds: how long one may take.
        options: what texts are going to be searched with.

    Raises:
        LOAD_ERRORS: on entering, if the bundle cannot be served.
    """
    configure_logs("console")
    settings = ServeCommand(bundle=bundle, queue_limit=in_flight * options.rows, alignments=options.attended)
    return LocalTranslator.open(settings, timeout_seconds)
