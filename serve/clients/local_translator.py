"""Translates in this process, with the models of the service and without its interfaces.

Has the methods of `serve.clients.grpc_client.GrpcClient`, so that commands take the one or the other.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self, Unpack

from serve.clients.errors import NotTranslatedError
from serve.clients.grpc_client import TranslatedText
from serve.clients.wanted import Wanted
from serve.errors import ServiceError
from serve.observability.logs import RequestRecord, configure_logs
from serve.registry.dispatcher import Dispatcher
from serve.settings import ServeSettings
from serve.translation.asked import AskedDirection, AskedTranslation
from serve.translation.flow import Flow
from serve.translation.response import TranslationDelta
from serve.translation.search_fields import SearchFields


class LocalTranslator:
    """Translates in this process, with the models of the service and without its interfaces."""

    def __init__(self, dispatcher: Dispatcher, timeout_seconds: float) -> None:
        self._dispatcher = dispatcher
        self._timeout_seconds = timeout_seconds
        # Texts of several sentences need more places than there may be: they wait for them, as those of a stream do.
        self._flow = Flow()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ServeSettings, timeout_seconds: float) -> AsyncIterator[Self]:
        """Starts the engines and stops them; a text may take `timeout_seconds`.

        Raises:
            BundleError, GoldenMismatchError, TokenizerError: if the bundle cannot be served.
        """
        from serve.app import open_dispatcher  # noqa: PLC0415 - a client of a server needs no ONNX Runtime

        async with open_dispatcher(settings) as dispatcher:
            yield cls(dispatcher, timeout_seconds)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the request is not valid or the model fails.
        """
        asked = self._asked(text, wanted)
        with _refusals():
            response = await self._dispatcher.translate(asked, RequestRecord("local"))
        (translation,) = response.translations
        return TranslatedText(translation.text, translation.score)

    async def stream(self, text: str, **wanted: Unpack[Wanted]) -> AsyncGenerator[str]:
        """Yields what the best translation of one text grows by.

        Raises:
            NotTranslatedError: if the request is not valid or the model fails; what came before is no translation.
        """
        asked = self._asked(text, wanted)
        with _refusals():
            async with aclosing(self._dispatcher.stream(asked, RequestRecord("local"))) as events:
                async for event in events:
                    if isinstance(event, TranslationDelta):
                        yield event.text

    def _asked(self, text: str, wanted: Wanted) -> AskedTranslation:
        return AskedTranslation(
            texts=(text,),
            direction=AskedDirection(
                model=wanted.get("model", ""),
                source_language=wanted.get("source_language", ""),
                target_language=wanted.get("target_language", ""),
                allow_pivot=wanted.get("allow_pivot", False),
            ),
            options=wanted.get("options", SearchFields()),
            deadline_seconds=time.monotonic() + self._timeout_seconds,
            split_sentences=wanted.get("split_sentences", True),
            flow=self._flow,
        )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise NotTranslatedError(f"{error.reason}: {error}") from error


def open_bundle(
    bundle: Path, in_flight: int, timeout_seconds: float, options: SearchFields
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
    settings = ServeSettings(bundle=bundle, queue_limit=in_flight * options.rows, alignments=options.attended)
    return LocalTranslator.open(settings, timeout_seconds)
