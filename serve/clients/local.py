"""Translation in this process, without a server."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self, Unpack

from dragoman.serve.clients.errors import NotTranslatedError
from dragoman.serve.clients.messages import Wanted
from dragoman.serve.errors import ServiceError
from dragoman.serve.observability.logs import RequestRecord, configure_logs
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import TranslationDelta, TranslationResponse

# The process serves no other client.
MAX_TEXT_CHARACTERS = 1 << 20


class LocalTranslator:
    """Translates in this process with the models of the service, without its interfaces."""

    def __init__(self, dispatcher: Dispatcher, timeout_seconds: float) -> None:
        self._dispatcher = dispatcher
        self._timeout_seconds = timeout_seconds
        # A text of several sentences may need more rows than are free: as requests of one stream, texts wait for room.
        self._stream = FairnessKey()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        bundle: Path,
        in_flight: int,
        timeout_seconds: float,
        options: SearchFields,
        *,
        aligned: bool | None = False,
    ) -> AsyncIterator[Self]:
        """Starts the engines and stops them. Never sheds up to `in_flight` concurrent texts.

        Args:
            bundle: folder of one or several bundles.
            in_flight: maximum number of concurrent texts.
            timeout_seconds: timeout of each text.
            options: search options of all texts.
            aligned: whether texts have markup, placeholders or formatting; None: if the bundle can place them.

        Raises:
            BundleError: if the bundle cannot be served.
        """
        from dragoman.serve.app import open_dispatcher  # noqa: PLC0415 - a client of a server needs no ONNX Runtime

        configure_logs("console")
        settings = ServeSettings(
            bundle=bundle,
            queue_limit=in_flight * options.rows,
            alignments=options.attended or aligned,
            max_text_characters=MAX_TEXT_CHARACTERS,
        )
        async with open_dispatcher(settings) as dispatcher:
            yield cls(dispatcher, timeout_seconds)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslationResponse:
        """Returns the translation of a text; raises NotTranslatedError if the request is invalid or the model fails."""
        request = self._request(text, wanted)
        with _refusals():
            return await self._dispatcher.translate(request, RequestRecord("local"))

    async def stream(
        self, text: str, **wanted: Unpack[Wanted]
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translation of one text, then the response that `translate` returns.

        Raises:
            NotTranslatedError: if the request is invalid or the model fails, possibly after some deltas.
        """
        request = self._request(text, wanted)
        with _refusals():
            async with aclosing(self._dispatcher.stream(request, RequestRecord("local"))) as events:
                async for event in events:
                    yield event

    def _request(self, text: str, wanted: Wanted) -> TranslateRequest:
        deadline_seconds = time.monotonic() + self._timeout_seconds
        return TranslateRequest(text=(text,), deadline_seconds=deadline_seconds, fairness_key=self._stream, **wanted)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise NotTranslatedError(f"{error.reason}: {error}") from error
