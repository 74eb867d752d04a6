"""Translates texts of any number of sentences, each sentence as a sequence of its own.

The sentences of one text run side by side, as those of different texts do. Lies between `serve.dispatcher`, which
knows texts, and `serve.translator`, for which a text is a sentence.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from serve.answer import ScoreResponse, TranslationDelta, TranslationResponse
from serve.passages import Passages, split_text
from serve.request import RequestLimits, TranslationRequest
from serve.translator import Translator
from serve.turns import in_turns


class PassageTranslator:
    """Translates with one model."""

    def __init__(self, translator: Translator, limits: RequestLimits) -> None:
        """Keeps what it needs.

        Args:
            translator: translates sentences.
            limits: how many of them one request may have.
        """
        self._translator = translator
        self._limits = limits

    async def translate(self, request: TranslationRequest) -> TranslationResponse:
        """Translates every text of the request, or none. Cancelling the call frees its slots within one step.

        Raises:
            ServiceError: why there is no translation.
        """
        passages = await self._split(request)
        return passages.join(await self._translator.translate(passages.request))

    async def stream(self, request: TranslationRequest) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        passages = await self._split(request)
        listeners = passages.streams()
        async with aclosing(self._translator.stream(passages.request)) as events:
            async for event in events:
                if isinstance(event, TranslationResponse):
                    yield passages.join(event)
                else:
                    for delta in listeners[event.text_index](event):
                        yield delta

    async def score(self, request: TranslationRequest) -> ScoreResponse:
        """Scores the translation of every text of the request, each of which is taken for one sentence, or none.

        Raises:
            ServiceError: why there is no score.
        """
        return await self._translator.score(request)

    async def _split(self, request: TranslationRequest) -> Passages:
        fits = partial(self._translator.fits, request.source_prefix)
        split = Passages.of(request, [split_text(request, text, fits) async for text in in_turns(request.texts)])
        sentences = len(split.request.texts)
        if sentences > len(request.texts):
            self._limits.check_rows(f"{sentences} sentences", sentences, request.plan)
        return split
