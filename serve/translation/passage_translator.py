"""Translates texts of any number of sentences, each sentence as a sequence of its own.

The sentences of one text run side by side, as those of different texts do. Lies between `serve.registry.dispatcher`,
which knows texts, and `serve.translation.translator`, for which a text is a sentence.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from serve.scheduler.reservation import Reservation
from serve.translation.request import RequestLimits, TranslationRequest
from serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse
from serve.translation.segments import Passages, split_text
from serve.translation.translator import Translator
from serve.translation.turns import in_turns


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

    async def reserve(self, request: TranslationRequest) -> Reservation:
        """Lets a request in that comes later, and keeps a place for each of its texts.

        Raises:
            ServiceError: why the request is not let in.
        """
        return await self._translator.reserve(request)

    async def translate(self, request: TranslationRequest, kept: Reservation | None = None) -> TranslationResponse:
        """Translates every text of the request, or none. Cancelling the call frees its slots within one step.

        Args:
            request: what is wanted.
            kept: the places of a request that was let in before, given back in the end; None: it is let in now.

        Raises:
            ServiceError: why there is no translation.
        """
        with kept or await self.reserve(request) as reservation:
            passages = await self._split(request, reservation)
            return passages.join(await self._translator.translate(passages.request, reservation))

    async def stream(
        self, request: TranslationRequest, kept: Reservation | None = None
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        Args:
            request: what is wanted.
            kept: as of `translate`.

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        with kept or await self.reserve(request) as reservation:
            passages = await self._split(request, reservation)
            listeners = passages.streams()
            async with aclosing(self._translator.stream(passages.request, reservation)) as events:
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
        with await self.reserve(request) as reservation:
            return await self._translator.score(request, reservation)

    async def _split(self, request: TranslationRequest, reservation: Reservation) -> Passages:
        fits = partial(self._translator.fits, request.source_prefix)
        split = Passages.of(request, [split_text(request, text, fits) async for text in in_turns(request.texts)])
        sentences = len(split.request.texts)
        if sentences > len(request.texts):
            self._limits.check_rows(f"{sentences} sentences", sentences, request.plan)
            await self._translator.widen(reservation, split.request)
        return split
