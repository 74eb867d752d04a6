"""How the texts of a request of another server's clients are translated, once its languages are known."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request

from dragoman.serve.compat.served_languages import ServedLanguages
from dragoman.serve.edge.reader import unless_disconnected
from dragoman.serve.errors import InvalidRequestError, QueueFullError, ServiceError
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.mixed_texts import Parts, SourceText, translate_texts
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.registry.targets import translate_together
from dragoman.serve.translation.markup import AUTO as IF_ALIGNED
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation

# Translates the texts of a request in parts.
Work = Callable[[Parts, Sequence[SourceText], TranslateRequest], Awaitable[list[Translation | None]]]


class CompatibleTexts:
    """Translates the texts of a compatible interface.

    Attributes:
        languages: those that the models translate.
    """

    def __init__(self, dispatcher: Dispatcher, models: ModelRegistry, *, placeholders: bool) -> None:
        """Creates the way of the texts; `placeholders`: translations keep those of their texts, if the model can."""
        self.languages = ServedLanguages(models)
        self._dispatcher = dispatcher
        self._models = models
        self._placeholders = (IF_ALIGNED,) if placeholders else ()

    @property
    def aligned(self) -> bool:
        """Whether all models have alignments."""
        return all(model.settings.alignments for model in self._models)

    @property
    def slots(self) -> int:
        """The slots of the smallest engine."""
        return min(model.settings.slots for model in self._models)

    def unserved(self, texts: Sequence[SourceText], target: str) -> str | None:
        """Returns the language of the first text that is not translated into a target; None: all are."""
        for text in texts:
            if text.language != target and target not in self.languages.targets_of(text.language):
                return text.language
        return None

    async def translate(
        self, request: Request, texts: Sequence[SourceText], order: TranslateRequest, work: Work = translate_texts
    ) -> list[Translation | None]:
        """Returns a translation per text; None: the text comes back unchanged.

        Args:
            order: all but the texts, their language, and what every request of the interface has.
            work: how the texts are translated.

        Raises:
            ServiceError: if a translation fails.
        """
        (translations,) = await self.translate_each(request, texts, order, work=work)
        return translations

    async def translate_each(
        self, request: Request, texts: Sequence[SourceText], *orders: TranslateRequest, work: Work = translate_texts
    ) -> list[list[Translation | None]]:
        """Returns the result of `translate` per order; they differ in their targets. For its key, all are one request.

        Each order counts its characters. Together they run as long as one request may have all their texts.
        """
        complete = [order._replace(allow_pivot=True, placeholders=self._placeholders) for order in orders]
        record, found = request.state.record, list[list[Translation | None]]()

        async def translate(order: TranslateRequest, own: RequestRecord) -> list[Translation | None]:
            return await work(Parts(self._dispatcher.translate_accepted, own), texts, order)

        async with self._dispatcher.accept_texts(record, [text.text for _ in orders for text in texts]):
            if len(orders) == 1:
                return [await unless_disconnected(request, translate(complete[0], record))]
            at_once = max(1, self._models.text_limits.max_texts // len(texts))
            for first in range(0, len(complete), at_once):
                found += await self._translate_together(request, translate, complete[first : first + at_once])
        return found

    async def _translate_together(
        self,
        request: Request,
        translate: Callable[[TranslateRequest, RequestRecord], Awaitable[list[Translation | None]]],
        orders: Sequence[TranslateRequest],
    ) -> list[list[Translation | None]]:
        """Returns the result of each order; one that fails for a limit of all of them runs once more, alone."""
        record, found = request.state.record, list[list[Translation | None]]()
        outcomes = await unless_disconnected(request, translate_together(translate, orders, record))
        for order, outcome in zip(orders, outcomes, strict=True):
            if not isinstance(outcome, ServiceError):
                found.append(outcome)
            elif len(orders) > 1 and isinstance(outcome, InvalidRequestError | QueueFullError):
                found += await self._translate_together(request, translate, [order])
            else:
                raise outcome
        return found
