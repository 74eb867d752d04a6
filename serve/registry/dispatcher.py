"""The one use case that interfaces and commands call: choose who translates a request, and have it translated.

A request goes to one model, or by way of a third language to one after the other. The models that it needs are kept
until it is answered, whatever is loaded or removed meanwhile. Knows no protocol; built by `serve.service`.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from serve.errors import InvalidRequestError
from serve.observability.logs import RequestRecord
from serve.observability.metrics import NO_MODEL
from serve.registry.lifecycle import Lifecycle
from serve.registry.registry import Hop, ModelRegistry, ServedModel, find_hop, find_route
from serve.scheduler.admission import Reservation
from serve.translation import pivot
from serve.translation.request import AskedScore, AskedTranslation, TranslationRequest
from serve.translation.response import Pivot, ScoreResponse, TranslationDelta, TranslationResponse
from serve.translation.translator import SegmentTranslator


@dataclass(frozen=True, slots=True)
class PreparedTranslation:
    """What is left to do for a request: one translation by one model, whose answer is then completed.

    Attributes:
        model: its name.
        translator: that of the model.
        request: valid for the model.
        before: the translation into the pivot's language and the pivot, if there is one.
        kept: the places of the request, if it was let in before that.
    """

    model: str
    translator: SegmentTranslator
    request: TranslationRequest
    before: tuple[TranslationResponse, Pivot] | None = None
    kept: Reservation | None = None

    def complete(self, response: TranslationResponse) -> TranslationResponse:
        """Returns the answer to the client, given that of the translator."""
        named = replace(response, model=self.model)
        return named if self.before is None else pivot.join(self.before[0], named, self.before[1])


class Dispatcher:
    """Translates and scores with the models that are served."""

    def __init__(self, models: ModelRegistry, lifecycle: Lifecycle, default_timeout_seconds: float) -> None:
        """Keeps what it needs.

        Args:
            models: what there is to choose from.
            lifecycle: decides whether requests are let in.
            default_timeout_seconds: how long a request may take whose client sets no deadline.
        """
        self._models = models
        self._lifecycle = lifecycle
        self._default_timeout_seconds = default_timeout_seconds

    def check_admission(self) -> None:
        """Tells whether any request would be let in now, as far as the whole service is concerned.

        Raises:
            ServiceError: why not.
        """
        self._lifecycle.check_admission()

    async def translate(self, asked: AskedTranslation, record: RequestRecord) -> TranslationResponse:
        """Translates every text of the request, or none.

        Args:
            asked: what the client wants.
            record: gets the model and the answer.

        Raises:
            ServiceError: why there is no translation.
        """
        async with self.prepare(asked, record) as last:
            record.response = response = last.complete(await last.translator.translate(last.request, last.kept))
        return response

    async def stream(
        self, asked: AskedTranslation, record: RequestRecord
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        With a pivot, nothing comes before the texts in its language are complete.

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        async with (
            self.prepare(asked, record) as last,
            aclosing(last.translator.stream(last.request, last.kept)) as events,
        ):
            async for event in events:
                if isinstance(event, TranslationResponse):
                    record.response = response = last.complete(event)
                    yield response
                else:
                    yield event

    async def score(self, asked: AskedScore, record: RequestRecord) -> ScoreResponse:
        """Scores the translation of every text of the request, or none; as `translate`.

        Raises:
            ServiceError: why there is no score.
        """
        self._lifecycle.check_admission()
        record.source_texts = [text for text, _ in asked.pairs]
        with ExitStack() as uses:
            ((hop, served),) = self._keep([find_hop(asked.direction, self._models.offers)], record, uses)
            request = served.pipeline.limits.admit_pairs(
                pairs=asked.pairs,
                source_language=hop.source,
                target_language=hop.target,
                deadline_seconds=self._deadline_seconds(asked.deadline_seconds),
            )
            response = await served.pipeline.translator.score(request)
        record.response = named = replace(response, model=served.name)
        return named

    def _deadline_seconds(self, asked_seconds: float | None) -> float:
        """Returns when nobody waits any more for what is asked now."""
        return time.monotonic() + self._default_timeout_seconds if asked_seconds is None else asked_seconds

    @asynccontextmanager
    async def prepare(self, asked: AskedTranslation, record: RequestRecord) -> AsyncIterator[PreparedTranslation]:
        """Does all but the last translation of a request, and keeps its models while the block runs.

        Raises:
            ServiceError: why there will be no translation.
        """
        self._lifecycle.check_admission()
        deadline_seconds = self._deadline_seconds(asked.deadline_seconds)
        record.source_texts = asked.texts
        with ExitStack() as uses:
            hops = self._keep(find_route(asked.direction, self._models.offers), record, uses)
            if len(hops) == 1:
                ((hop, served),) = hops
                request = _admit(asked, hop, served, deadline_seconds)
                yield PreparedTranslation(served.name, served.pipeline.translator, request)
            else:
                first, last = hops
                prepared = await self._via_pivot(asked, deadline_seconds, (first, last), uses)
                try:
                    yield prepared
                except InvalidRequestError as error:
                    raise pivot.explain(error, first[0].target) from error

    def _keep(self, hops: Iterable[Hop], record: RequestRecord, uses: ExitStack) -> list[tuple[Hop, ServedModel]]:
        """Returns the legs with their models, which are kept until `uses` ends; the last one counts the request."""
        kept = [(hop, self._models.get(hop.model)) for hop in hops]
        for _, served in kept:
            uses.enter_context(served.use())
        *before, last = kept
        record.model = last[1].name
        record.direction = f"{kept[0][0].source}-{last[0].target}"
        record.pivot_model = before[0][1].name if before else NO_MODEL
        return kept

    async def _via_pivot(
        self,
        asked: AskedTranslation,
        deadline_seconds: float,
        hops: tuple[tuple[Hop, ServedModel], tuple[Hop, ServedModel]],
        uses: ExitStack,
    ) -> PreparedTranslation:
        """Translates into the pivot's language and prepares the translation from it; both share the deadline.

        What the second model would refuse must not cost a translation by the first: places in both are kept from now
        on, until `uses` ends.
        """
        first, last = hops
        first_options, last_options = pivot.split_options(asked.options)
        asked_last = replace(asked, options=last_options)
        asked_first = replace(asked, options=first_options, target_prefix=())
        requests = [
            _admit(each, *hop, deadline_seconds) for each, hop in zip((asked_first, asked_last), hops, strict=True)
        ]
        translators = [served.pipeline.translator for _, served in hops]
        kept: dict[int, Reservation] = {}
        # In one order for all: of two requests that go opposite ways, neither waits for what the other one keeps.
        for number in sorted(range(len(hops)), key=lambda number: hops[number][1].name):
            kept[number] = uses.enter_context(await translators[number].reserve(requests[number]))
        response = await translators[0].translate(requests[0], kept[0])
        between = Pivot(first[0].target, first[1].name)
        try:
            request = _admit(pivot.ask_last(asked_last, response), *last, deadline_seconds)
        except InvalidRequestError as error:
            raise pivot.explain(error, between.language) from error
        return PreparedTranslation(last[1].name, translators[1], request, (response, between), kept[1])


def _admit(asked: AskedTranslation, hop: Hop, served: ServedModel, deadline_seconds: float) -> TranslationRequest:
    """Returns the request to one model if every field is valid for it."""
    return served.pipeline.limits.admit(
        texts=asked.texts,
        source_language=hop.source,
        target_language=hop.target,
        options=asked.options,
        target_prefix=asked.target_prefix,
        deadline_seconds=deadline_seconds,
        split_sentences=asked.split_sentences,
        priority=asked.priority,
        fairness_key=asked.fairness_key,
    )
