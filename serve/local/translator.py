"""The translator of this process, for asyncio.

A list is cut into chunks, each a request of its own to the dispatcher. A few of them run at once, so that the engines
never wait for the event loop, and memory is bounded. Results have the order of the texts.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Self, Unpack, overload

import structlog
from pydantic import ValidationError

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.local.chunks import CHUNK_TEXTS, IN_FLIGHT, Chunk, chunks_of_any, map_in_order
from dragoman.serve.local.errors import ClosedError, InvalidArgumentError, ModelError, typed_errors
from dragoman.serve.local.options import EngineSettings, TranslateOptions, read_options
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.fields import is_blank, refusal
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse, unchanged

# The process serves no other client: a request waits, and none is refused for lack of room.
MAX_TEXT_CHARACTERS = 1 << 20
MAX_WAITING_ROWS = 1 << 24
# Stands for no timeout.
FOREVER_SECONDS = 1e9


class LocalTranslator:
    """Translates in this process with the models of a server, without its interfaces.

    This asynchronous context manager loads the models. Calls of one event loop may run concurrently.
    """

    def __init__(self, bundle: str | PathLike[str], **settings: Unpack[EngineSettings]) -> None:
        """Opens nothing yet.

        Args:
            bundle: folder of one or several bundles.

        Raises InvalidArgumentError if a setting is invalid.
        """
        if unknown := next((name for name in settings if name not in EngineSettings.__annotations__), None):
            raise InvalidArgumentError(unknown, f"unknown, expected one of {', '.join(EngineSettings.__annotations__)}")
        try:
            self._settings = ServeSettings(
                queue_limit=MAX_WAITING_ROWS, max_texts=CHUNK_TEXTS, max_text_characters=MAX_TEXT_CHARACTERS, **settings
            )
        except ValidationError as error:
            problem = refusal(error)
            raise InvalidArgumentError(problem.field, problem.problem) from error
        self._bundle = Path(bundle)
        self._dispatcher: Dispatcher | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Loads and verifies the models; raises ModelError if one cannot be served."""
        from dragoman.serve.local.dispatcher import open_dispatcher  # noqa: PLC0415 - imports ONNX Runtime

        _log_by_standard_library()
        settings = self._settings.model_copy(update={"bundle": self._bundle})
        try:
            self._dispatcher = await self._stack.enter_async_context(open_dispatcher(settings))
        except BundleError as error:
            raise ModelError(str(error)) from error
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stops the engines, which ends running calls with ClosedError."""
        self._dispatcher = None
        await self._stack.aclose()

    @overload
    async def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> Translation: ...  # type: ignore[overload-overlap]

    @overload
    async def translate(self, texts: Sequence[str], **options: Unpack[TranslateOptions]) -> list[Translation]: ...

    async def translate(
        self, texts: str | Sequence[str], **options: Unpack[TranslateOptions]
    ) -> Translation | list[Translation]:
        """Returns the translation of a text, or of each text of a list, in its order. A blank text has an empty one.

        Raises TranslationError if a text is not translated.
        """
        request = start_call(options)
        if isinstance(texts, str):
            (translation,) = await self.translate_chunk(Chunk(0, [texts]), request)
            return translation
        check_prefixes(texts, request)
        async with aclosing(self._translate_chunks(texts, request, None)) as results:
            return [translation async for translations in results for translation in translations]

    async def translate_iterable(
        self, texts: Iterable[str] | AsyncIterable[str], **options: Unpack[TranslateOptions]
    ) -> AsyncGenerator[Translation]:
        """Yields the translation of each text, in the order of the texts, with a bounded number of texts in memory.

        To stop early, close the generator (`contextlib.aclosing`), which cancels running calls.

        Raises:
            TranslationError: in place of the results of the first chunk with a text that is not translated.
        """
        timeout_seconds = options.pop("timeout_seconds", None)
        async with aclosing(self._translate_chunks(texts, read_options(options), timeout_seconds)) as results:
            async for translations in results:
                for translation in translations:
                    yield translation

    async def stream(
        self, text: str, **options: Unpack[TranslateOptions]
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translation of one text, then the response with its translation.

        Raises TranslationError if the text is not translated, possibly after some deltas.
        """
        request = start_call(options)._replace(text=(text,))
        with typed_errors():
            async with aclosing(self._opened().stream(request, RequestRecord("local"))) as events:
                async for event in events:
                    yield event

    async def translate_chunk(
        self, chunk: Chunk, request: TranslateRequest, timeout_seconds: float | None = None
    ) -> list[Translation]:
        """Returns the translations of a chunk.

        Args:
            request: fields without texts; its prefixes are those of all texts of the call.
            timeout_seconds: limit from now on, for a request without a deadline; None: no limit.

        Raises TranslationError if a text is not translated.
        """
        dispatcher = self._opened()
        indices = range(chunk.first, chunk.first + len(chunk.texts))
        for index, text in zip(indices, chunk.texts, strict=True):
            if not isinstance(text, str):
                raise InvalidArgumentError(f"text[{index}]", f"{type(text).__name__}, expected a string")
        kept = [index for index, text in zip(indices, chunk.texts, strict=True) if not is_blank(text)]
        if not kept:
            return [unchanged("") for _ in chunk.texts]
        prefixes, deadline_seconds = request.target_prefix, request.deadline_seconds
        part = request._replace(
            text=[chunk.texts[index - chunk.first] for index in kept],
            target_prefix=[prefixes[index] for index in kept] if prefixes else (),
            deadline_seconds=_deadline(timeout_seconds) if deadline_seconds is None else deadline_seconds,
        )
        with typed_errors(kept):
            response = await dispatcher.translate(part, RequestRecord("local"))
        if len(kept) == len(chunk.texts):
            return list(response.translations)
        found = dict(zip(kept, response.translations, strict=True))
        return [found.get(index) or unchanged("") for index in indices]

    def _translate_chunks(
        self, texts: Iterable[str] | AsyncIterable[str], request: TranslateRequest, timeout_seconds: float | None
    ) -> AsyncGenerator[list[Translation]]:
        translate = partial(self.translate_chunk, request=request, timeout_seconds=timeout_seconds)
        return map_in_order(translate, chunks_of_any(texts), IN_FLIGHT)

    def _opened(self) -> Dispatcher:
        if self._dispatcher is None:
            raise ClosedError("the translator is not open: use it as a context manager")
        return self._dispatcher


def start_call(options: TranslateOptions) -> TranslateRequest:
    """Returns the request of a call that begins now, without texts; raises InvalidArgumentError as `read_options`."""
    return read_options(options)._replace(deadline_seconds=_deadline(options.get("timeout_seconds")))


def check_prefixes(texts: Sequence[str], request: TranslateRequest) -> None:
    """Raises InvalidArgumentError unless a request has no prefix, or one for each text."""
    count = len(request.target_prefix)
    if count not in (0, len(texts)):
        problem = f"{count} prefixes, expected none or one for each of {len(texts)} texts"
        raise InvalidArgumentError("target_prefix", problem)


def _deadline(timeout_seconds: float | None) -> float:
    return time.monotonic() + (FOREVER_SECONDS if timeout_seconds is None else timeout_seconds)


def _log_by_standard_library() -> None:
    """Sends logs to `logging`, with levels and handlers of the program, unless the program configures structlog."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
