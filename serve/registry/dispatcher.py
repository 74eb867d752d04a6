"""Chooses the model of a request and translates or scores with it.

A request uses one model, or two through a pivot language. Its models stay loaded until it is answered, also if they are
replaced or removed meanwhile. Independent of protocols.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

from dragoman.serve.errors import ForbiddenError
from dragoman.serve.glossaries.store import GlossaryStore
from dragoman.serve.keys.account import Account
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.request_metrics import NO_MODEL
from dragoman.serve.protect.terms.matching import TermIndex
from dragoman.serve.protect.terms.sentence_terms import TextTerms, follow_terms
from dragoman.serve.registry.detected import DetectedTexts
from dragoman.serve.registry.glossaries import find_indexes
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.registry.mixed_texts import Parts
from dragoman.serve.registry.registry import ModelRegistry, ServedModel
from dragoman.serve.registry.route import Hop, Offers, find_hop, find_route, find_sources, has_several_sources
from dragoman.serve.scheduler.admission import Reservation
from dragoman.serve.translation import pivot
from dragoman.serve.translation.attention import AttentionRequest, AttentionResponse
from dragoman.serve.translation.detection import DetectResponse, best_guess, detect_languages
from dragoman.serve.translation.markup import PLAIN
from dragoman.serve.translation.request import AUTO, ModelRequest, RequestLimits, ScoreRequest, TranslateRequest
from dragoman.serve.translation.response import Pivot, ScoreResponse, TranslationDelta, TranslationResponse
from dragoman.serve.translation.translator import Translator

ReadResponse = TypeVar("ReadResponse", ScoreResponse, AttentionResponse)


class PreparedTranslation(NamedTuple):
    """The last hop of a request, ready to translate.

    Attributes:
        before: response and pivot of the first hop; None: a direct translation.
        reserved: rows of the request; None: they are not reserved yet.
    """

    served: ServedModel
    request: ModelRequest
    before: tuple[TranslationResponse, Pivot] | None = None
    reserved: Reservation | None = None

    def complete(self, response: TranslationResponse, record: RequestRecord) -> TranslationResponse:
        """Returns the client's response for that of the translator, and records it."""
        completed = TranslationResponse(response.translations, response.timings, self.served.name)
        if self.before is not None:
            completed = pivot.join(self.before[0], completed, self.before[1])
        record.usage = completed.usage
        record.target_texts = [translation.text for translation in completed.translations]
        return completed


class Dispatcher:
    """Translates and scores with the served models.

    Attributes:
        lifecycle: refuses requests while the service starts or drains.
    """

    def __init__(
        self,
        models: ModelRegistry,
        lifecycle: Lifecycle,
        default_timeout_seconds: float,
        glossaries: GlossaryStore | None = None,
    ) -> None:
        self.lifecycle = lifecycle
        self._glossaries = glossaries
        self._models = models
        self._default_timeout_seconds = default_timeout_seconds

    async def translate(self, request: TranslateRequest, record: RequestRecord) -> TranslationResponse:
        """Translates all texts of the request, or none.

        Args:
            record: receives model, direction and response.

        Raises:
            ServiceError: if the translation fails.
        """
        async with self.accept(record, _characters(request.text)):
            return await self.translate_accepted(request, record)

    async def translate_accepted(self, request: TranslateRequest, record: RequestRecord) -> TranslationResponse:
        """Translates all texts of a request, or none, in a block of `accept`; several such requests count as one.

        Raises:
            ServiceError: if the translation fails.
        """
        if self._detects(request, record):
            detected = await self._detect_sources(request, record)
            return await detected.translate(Parts(self._translate_named, record))
        return await self._translate_named(request, record)

    async def _translate_named(self, request: TranslateRequest, record: RequestRecord) -> TranslationResponse:
        """Translates a request that names its source language, or has only one that fits."""
        with ExitStack() as uses:
            last = await self._prepare(request, record, uses)
            translator = last.served.pipeline.translator
            return last.complete(await translator.translate(last.request, last.reserved), record)

    async def stream(
        self, request: TranslateRequest, record: RequestRecord
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response of `translate`.

        With a pivot, the first delta follows the complete translation into the pivot language.

        Raises:
            ServiceError: if the translation fails, possibly after some deltas.
        """
        async with (
            self.accept(record, _characters(request.text)),
            aclosing(self._stream_accepted(request, record)) as events,
        ):
            async for event in events:
                if record.charge is not None:
                    record.charge.keep()
                yield event

    async def _stream_accepted(
        self, request: TranslateRequest, record: RequestRecord
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        if self._detects(request, record):
            detected = await self._detect_sources(request, record)
            stream = detected.stream(self._stream_named, Parts(self._translate_named, record))
        else:
            stream = self._stream_named(request, record)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def _stream_named(
        self, request: TranslateRequest, record: RequestRecord
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Streams as `_translate_named` translates."""
        with ExitStack() as uses:
            last = await self._prepare(request, record, uses)
            async with aclosing(last.served.pipeline.translator.stream(last.request, last.reserved)) as events:
                async for event in events:
                    yield last.complete(event, record) if isinstance(event, TranslationResponse) else event

    async def score(self, request: ScoreRequest, record: RequestRecord) -> ScoreResponse:
        """Scores all pairs of the request, or none.

        Raises:
            ServiceError: if scoring fails.
        """
        return await self._read(request, record, Translator.score)

    async def attend(self, request: AttentionRequest, record: RequestRecord) -> AttentionResponse:
        """Returns the attention of a layer and head for all pairs of the request, or none.

        Raises:
            ServiceError: if reading fails.
        """
        return await self._read(
            request,
            record,
            lambda translator, model_request: translator.attend(model_request, request.layer, request.head),
        )

    async def _read(
        self,
        request: ScoreRequest,
        record: RequestRecord,
        work: Callable[[Translator, ModelRequest], Awaitable[ReadResponse]],
    ) -> ReadResponse:
        """Returns what `work` finds for the pairs of a request with the model of its direction."""
        texts = [text for text, _ in request.pairs]
        async with self.accept(record, _characters(texts)):
            record.source_texts = texts
            with ExitStack() as uses:
                ((hop, served),) = self._use([find_hop(request, self._offers(request.model, record))], record, uses)
                deadline_seconds = self._deadline(request.deadline_seconds)
                model_request = served.pipeline.limits.prepare_scores(request, hop.direction, deadline_seconds)
                response = await work(served.pipeline.translator, model_request)
        record.usage = response.usage
        return replace(response, model=served.name)

    async def detect(self, texts: Sequence[str], deadline_seconds: float | None) -> DetectResponse:
        """Detects the language of each text among the source languages of the models.

        Raises:
            ServiceError: if the texts are refused or the deadline passes.
        """
        with self.lifecycle.begin_request():
            self.check_texts(texts)
            sources = {source for directions in self._models.offers.values() for source in directions.sources_of("")}
            return DetectResponse(tuple(await detect_languages(texts, sources, self._deadline(deadline_seconds))))

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raises InvalidRequestError if every model refuses the number of texts or one of them, which may be blank."""
        self._widest_limits().check_detected(texts)

    @asynccontextmanager
    async def accept(self, record: RequestRecord, characters: int) -> AsyncIterator[None]:
        """Accepts a request while the block runs, and counts it and its characters for the client's API key, if any.

        A request of several parts translates them with `translate_accepted`: it finishes while the service drains.

        Raises:
            ServiceError: if the service accepts no requests, or the request exceeds a limit of the key.
        """
        with self.lifecycle.begin_request():
            if record.account is None:
                yield
                return
            async with _charge(record.account, record, characters):
                yield

    def find_languages(self, request: TranslateRequest, record: RequestRecord) -> tuple[str, tuple[str, ...]]:
        """Returns the target of a request, and the source languages that its texts may have; translates nothing.

        Raises:
            ServiceError: if no model that the client may use has the direction.
        """
        offers = self._offers(request.model, record)
        if request.source_language == AUTO or has_several_sources(request, offers):
            return find_sources(request, offers)
        hops = find_route(request, offers)
        return hops[-1].direction.target, (hops[0].direction.source,)

    def _offers(self, model: str, record: RequestRecord) -> Offers:
        """Returns what the client may use of the served models; `model`: the requested one."""
        account, offers = record.account, self._models.offers
        if account is None or not account.key.limits.models:
            return offers
        if model in offers:
            account.check_model(model)
        allowed = {name: directions for name, directions in offers.items() if account.allows(name)}
        if not allowed:
            raise ForbiddenError("model: none of the served models is one that the API key may use")
        return allowed

    def _detects(self, request: TranslateRequest, record: RequestRecord) -> bool:
        """Returns whether the language of each text is detected: as requested, or as none is named and several fit."""
        if request.source_language:
            return request.source_language == AUTO
        return has_several_sources(request, self._offers(request.model, record))

    async def _detect_sources(self, request: TranslateRequest, record: RequestRecord) -> DetectedTexts:
        """Detects the language of each text of a request, among the target and what is translated into it."""
        self._widest_limits().read_texts(request)
        target, sources = find_sources(request, self._offers(request.model, record))
        deadline_seconds = self._deadline(request.deadline_seconds)
        markup = request.format not in ("", PLAIN)
        candidates = (*sources, target)
        found = await detect_languages(request.text, candidates, deadline_seconds, markup=markup)
        requested = request._replace(target_language=target, source_detected=True, deadline_seconds=deadline_seconds)
        return DetectedTexts(requested, [best_guess(result, candidates) for result in found])

    def _widest_limits(self) -> RequestLimits:
        """Returns limits that refuse only what each model refuses."""
        limits = [model.pipeline.limits for model in self._models]
        return replace(
            limits[0],
            max_texts=max(limit.max_texts for limit in limits),
            max_text_characters=max(limit.max_text_characters for limit in limits),
        )

    def _deadline(self, deadline_seconds: float | None) -> float:
        """Returns the deadline of the client, or the default one from now on."""
        return time.monotonic() + self._default_timeout_seconds if deadline_seconds is None else deadline_seconds

    async def _prepare(self, request: TranslateRequest, record: RequestRecord, uses: ExitStack) -> PreparedTranslation:
        """Runs all but the last hop of a request, and keeps its models loaded until `uses` ends.

        Raises:
            ServiceError: if the request is refused or the first hop fails.
        """
        deadline_seconds = self._deadline(request.deadline_seconds)
        if record.account is not None and (priority := record.account.key.limits.priority):
            request = request._replace(priority=request.priority + priority)
        record.source_texts = request.text
        hops = self._use(find_route(request, self._offers(request.model, record)), record, uses)
        languages = hops[0][0].direction.source, hops[-1][0].direction.target
        has_terms = request.terms or request.glossary
        stored = None if self._glossaries is None else self._glossaries.of(record.account_id, record.caller)
        indexes = await find_indexes(request, stored, *languages) if has_terms else ()
        if len(hops) == 1:
            ((hop, served),) = hops
            glossary = [TextTerms(indexes)] * len(request.text) if indexes else ()
            return PreparedTranslation(
                served, served.pipeline.limits.prepare(request, hop.direction, deadline_seconds, glossary)
            )
        first, last = hops
        prepared = await self._via_pivot(request, indexes, deadline_seconds, (first, last), uses)
        uses.enter_context(pivot.explained(first[0].direction.target))
        return prepared

    def _use(self, hops: Iterable[Hop], record: RequestRecord, uses: ExitStack) -> list[tuple[Hop, ServedModel]]:
        """Returns the hops with their models, kept loaded until `uses` ends; the last model counts the request."""
        used = [(hop, self._models.get(hop.model)) for hop in hops]
        for _, served in used:
            uses.enter_context(served.uses)
        *before, last = used
        record.model = last[1].name
        record.direction = f"{used[0][0].direction.source}-{last[0].direction.target}"
        record.pivot_model = before[0][1].name if before else NO_MODEL
        return used

    async def _via_pivot(
        self,
        request: TranslateRequest,
        indexes: tuple[TermIndex, ...],
        deadline_seconds: float,
        hops: tuple[tuple[Hop, ServedModel], tuple[Hop, ServedModel]],
        uses: ExitStack,
    ) -> PreparedTranslation:
        """Translates into the pivot language and prepares the second hop; both share the deadline.

        Rows are reserved in both models first, until `uses` ends: a request that the second model refuses costs no
        translation by the first. If one model does both, the second hop reserves when the first is done: a request must
        not wait for its own rows.
        """
        (first_hop, first), (last_hop, last) = hops
        first_options, last_options = pivot.split_options(request.options)
        request_last = request._replace(options=last_options)
        request_first = request._replace(options=first_options, target_prefix=())
        terms = TextTerms(indexes, traced=True)
        glossary = [terms] * len(request.text) if indexes else ()
        prepared_first = first.pipeline.limits.prepare(request_first, first_hop.direction, deadline_seconds, glossary)
        prepared_last = last.pipeline.limits.prepare(request_last, last_hop.direction, deadline_seconds, glossary)
        reserved: dict[int, Reservation] = {}
        # All requests reserve in the order of model names: requests in opposite directions cannot deadlock.
        ahead = [(0, first, prepared_first), *([] if last is first else [(1, last, prepared_last)])]
        for number, served, prepared in sorted(ahead, key=lambda item: item[1].name):
            reserved[number] = uses.enter_context(await served.pipeline.translator.reserve(prepared))
        response = await first.pipeline.translator.translate(prepared_first, reserved[0])
        between = Pivot(first_hop.direction.target, first.name)
        with pivot.explained(between.language):
            request_last = pivot.ask_last(request_last, response)
            followed = (
                [follow_terms(translation.terms or (), terms) for translation in response.translations]
                if indexes
                else ()
            )
            prepared_last = last.pipeline.limits.prepare(request_last, last_hop.direction, deadline_seconds, followed)
        return PreparedTranslation(last, prepared_last, (response, between), reserved.get(1))


def _characters(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


@asynccontextmanager
async def _charge(account: Account, record: RequestRecord, characters: int) -> AsyncIterator[None]:
    async with account.charge(characters) as charge:
        record.charge = charge
        try:
            yield
        finally:
            record.charge = None
