"""The blocking translator. It runs the translator for asyncio on an event loop in a thread of its own."""

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from queue import SimpleQueue
from typing import Self, Unpack, overload

from dragoman.library.aio import Model, find_models
from dragoman.library.loop_thread import LoopThread, wait
from dragoman.serve.local.chunks import IN_FLIGHT, Chunk, chunks_of
from dragoman.serve.local.options import EngineSettings, TranslateOptions, read_options
from dragoman.serve.local.translator import LocalTranslator, check_prefixes, start_call
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse


class Translator:
    """Translates in this process: `with Translator("en-de") as translator`. Thread-safe.

    A forked process cannot use it, and must open its own. Errors are those of `AsyncTranslator`.
    """

    def __init__(self, model: Model, *more: Model, offline: bool = False, **settings: Unpack[EngineSettings]) -> None:
        """Installs missing models and loads all models. The arguments are those of `AsyncTranslator`.

        Raises:
            ModelError: if a model cannot be installed or loaded.
            InvalidArgumentError: if a setting is invalid.
        """
        self._translator = LocalTranslator(find_models((model, *more), offline=offline), **settings)
        self._thread = LoopThread(self._translator)
        self._close = weakref.finalize(self, self._thread.close)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes the translator."""
        self.close()

    def close(self) -> None:
        """Stops the engines; running calls of other threads raise ClosedError. The end of the program also closes."""
        self._close()

    @overload
    def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> Translation: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, texts: Sequence[str], **options: Unpack[TranslateOptions]) -> list[Translation]: ...

    def translate(
        self, texts: str | Sequence[str], **options: Unpack[TranslateOptions]
    ) -> Translation | list[Translation]:
        """Returns the translation of a text, or of each text of a list, in its order. A blank text has an empty one.

        Raises:
            TranslationError: if a text is not translated.
        """
        request = start_call(options)
        if isinstance(texts, str):
            (translation,) = wait(self._start(Chunk(0, [texts]), request))
            return translation
        check_prefixes(texts, request)
        return list(self._translate_all(texts, request))

    def translate_iterable(self, texts: Iterable[str], **options: Unpack[TranslateOptions]) -> Iterator[Translation]:
        """Yields the translation of each text, in the order of the texts, with a bounded number of texts in memory.

        This thread iterates over the texts. Closing the iterator cancels running calls.

        Raises:
            TranslationError: in place of the results of the first chunk with a text that is not translated.
        """
        timeout_seconds = options.pop("timeout_seconds", None)
        return self._translate_all(texts, read_options(options), timeout_seconds)

    def stream(
        self, text: str, **options: Unpack[TranslateOptions]
    ) -> Iterator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translation of one text, then the response with its translation.

        Raises:
            TranslationError: if the text is not translated, possibly after some deltas.
        """
        events = SimpleQueue[TranslationDelta | TranslationResponse | None]()

        async def pass_on() -> None:
            try:
                async with aclosing(self._translator.stream(text, **options)) as stream:
                    async for event in stream:
                        events.put(event)
            finally:
                events.put(None)

        call = self._thread.start(pass_on)
        try:
            while (event := events.get()) is not None:
                yield event
            wait(call)
        finally:
            call.cancel()

    def _translate_all(
        self, texts: Iterable[str], request: TranslateRequest, timeout_seconds: float | None = None
    ) -> Iterator[Translation]:
        running = deque[Future[list[Translation]]]()
        try:
            for chunk in chunks_of(texts):
                running.append(self._start(chunk, request, timeout_seconds))
                while running and (len(running) == IN_FLIGHT or running[0].done()):
                    yield from wait(running.popleft())
            while running:
                yield from wait(running.popleft())
        finally:
            for call in running:
                call.cancel()

    def _start(
        self, chunk: Chunk, request: TranslateRequest, timeout_seconds: float | None = None
    ) -> Future[list[Translation]]:
        return self._thread.start(self._translator.translate_chunk, chunk, request, timeout_seconds)
