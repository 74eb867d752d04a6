"""Chooses the model of a request and translates or scores with it.

A request uses one model, or two through a pivot language. Its models stay loaded until it is answered, also if they are
replaced or removed meanwhile. Independent of protocols.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from dragoman.serve.errors import ForbiddenError, InvalidRequestError
from dragoman.serve.memory.entry import Client, Pair
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.request_metrics import NO_MODEL
from dragoman.serve.protect.terms.matching import TermIndex
from dragoman.serve.protect.terms.sentence_terms import TextTerms, follow_terms
from dragoman.serve.registry.glossaries import find_indexes
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.registry.mixed_texts import DetectedTexts, Parts
from dragoman.serve.registry.pipeline import Pipeline
from dragoman.serve.registry.registry import Presence, ServedModel, Uses
from dragoman.serve.registry.route import Hop, Offers, find_hop, find_route, find_sources, has_several_sources
from dragoman.serve.registry.targets import find_candidates, join_targets, split_targets, translate_together
from dragoman.serve.translation import pivot
from dragoman.serve.translation.attention import AttentionRequest, AttentionResponse
from dragoman.serve.translation.detection import DetectedLanguage, DetectResponse, best_guess, detect_languages
from dragoman.serve.translation.job import Job
from dragoman.serve.translation.markup import PLAIN
from dragoman.serve.translation.recall import find_known, find_recall
from dragoman.serve.translation.request import AUTO, ScoreRequest, TranslateRequest
from dragoman.serve.translation.response import Pivot, ScoreResponse, TranslationDelta, TranslationResponse
from dragoman.serve.translation.shares import Outcome
from dragoman.serve.translation.translator import Translator

if TYPE_CHECKING:
    # SQLAlchemy is slow, and a translator without a state directory needs none.
    from dragoman.serve.glossaries.store import GlossaryStore
    from dragoman.serve.keys.account import Account
    from dragoman.serve.memory.store import MemoryStore, Recall

    # They import ONNX Runtime.
    from dragoman.serve.registry.keeper import ModelKeeper
    from dragoman.serve.registry.on_demand import OnDemand

ReadResponse = TypeVar("ReadResponse", ScoreResponse, AttentionResponse)


class Dispatcher:
    """Translates and scores with the served models.

    Attributes:
        lifecycle: refuses requests while the service starts or drains.
    """

    def __init__(
        self,
        keeper: "ModelKeeper",
        lifecycle: Lifecycle,
        default_timeout_seconds: float,
        glossaries: "GlossaryStore | None" = None,
        on_demand: "OnDemand | None" = None,
        *,
        memories: "MemoryStore | None" = None,
        memory: str | None = None,
    ) -> None:
        """Creates a dispatcher; `memory`: name of the memory of requests that name none."""
        self.lifecycle = lifecycle
        self._memories = memories
        self._memory = memory
        self._glossaries = glossaries
        self._models = keeper.models
        self._keeper = keeper
        self._on_demand = on_demand
        self._default_timeout_seconds = default_timeout_seconds

    async def translate(self, request: TranslateRequest, record: RequestRecord) -> TranslationResponse:
        """Translates all texts of the request, or none.

        Args:
            record: receives model, direction and response.

        Raises ServiceError if the translation fails; with several targets, if all of them fail.
        """
        if request.target_languages:
            return await self._translate_targets(request, record)
        if record.account is None:
            with self.lifecycle.begin_request():
                return await self.translate_accepted(request, record)
        async with self.accept_texts(record, request.text):
            return await self.translate_accepted(request, record)

    async def translate_accepted(self, request: TranslateRequest, record: RequestRecord) -> TranslationResponse:
        """Translates all texts of a request, or none, in a block of `accept`; several such requests count as one.

        Raises ServiceError if the translation fails.
        """
        if self._detects(request, record):
            detected = await self._detect_sources(request, record)
            return await detected.translate(Parts(self.translate_accepted, record))
        if (found := self._find_loaded(request, record)) is not None:
            model, translator, job = found
            with model.uses:
                return _complete(job, await translator.translate(job), record)
        with ExitStack() as uses:
            translator, job = await self._prepare(request, record, uses)
            return _complete(job, await translator.translate(job), record)

    async def _translate_targets(self, request: TranslateRequest, record: RequestRecord) -> TranslationResponse:
        """Returns the translations into each target, or its error. All targets are one request of a key."""
        requests = self.split_targets(request, record)
        characters = sum(map(len, request.text))
        async with self.accept(record, characters * len(requests)):
            outcomes = await translate_together(self.translate_accepted, requests, record)
            response, failed = join_targets(request.target_languages, outcomes)
            if record.charge is not None:
                record.charge.failed = failed * characters
            return response

    def _find_loaded(
        self, request: TranslateRequest, record: RequestRecord
    ) -> tuple[ServedModel, Translator, Job] | None:
        """Returns the model and the job of a request that one loaded model translates without terms, as most are.

        `_prepare` would take several times as long. Raises ServiceError if the request is refused.
        """
        if record.account is not None or request.terms or request.glossary or request.memory or self._memory:
            return None
        hop, *further = self._models.routes.find(request)
        model = self._models.find(hop.model)
        if further or model is None or model.pipeline is None or model.presence is not Presence.LOADED:
            return None
        record.model, record.direction = hop.model, f"{hop.direction.source}-{hop.direction.target}"
        record.source_texts = request.text
        job = model.pipeline.limits.prepare(request, hop.direction, self._deadline(request.deadline_seconds))
        return model, model.pipeline.translator, job

    async def translate_shares(
        self, request: TranslateRequest, shares: Sequence[int], records: Sequence[RequestRecord]
    ) -> AsyncGenerator[list[Outcome]]:
        """Translates requests of a stream as one job, and yields the outcome of each when it is ready.

        Requests without an outcome in the end must be translated alone. None has an outcome if they have a key, whose
        limits count each, if they ask for more than words, if their language is to be detected or takes two hops, or if
        their model is not loaded.

        Args:
            request: what they have in common, and all their texts; of a stream.
            shares: number of texts of each.
            records: of each.

        Raises ServiceError if one of them is refused or must wait for room.
        """
        common = replace(records[0])
        self.lifecycle.check_accepting()
        if self._detects(request, common) or (found := self._find_loaded(request, common)) is None:
            return
        model, translator, job = found
        with self.lifecycle.requests, model.uses:
            if not (job.simple and job.fields.repeatable and job.small):
                return
            job.shares, texts = shares, iter(request.text)
            for record, count in zip(records, shares, strict=True):
                record.model, record.direction = common.model, common.direction
                record.source_texts = list(islice(texts, count))
            async with aclosing(translator.translate_shares(job)) as parts:
                async for outcomes in parts:
                    yield [
                        (number, _complete(job, outcome, records[number]))
                        if isinstance(outcome, TranslationResponse)
                        else (number, outcome)
                        for number, outcome in outcomes
                    ]

    async def stream(
        self, request: TranslateRequest, record: RequestRecord
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response of `translate`.

        With a pivot, the first delta follows the complete translation into the pivot language.

        Raises ServiceError if the translation fails, possibly after some deltas.
        """
        if request.target_languages:
            raise InvalidRequestError("target_languages", "expected none in a stream: name one target_language")
        async with self.accept_texts(record, request.text):
            if self._detects(request, record):
                detected = await self._detect_sources(request, record)
                stream = detected.stream(self._stream_named, Parts(self.translate_accepted, record))
            else:
                stream = self._stream_named(request, record)
            async with aclosing(stream) as events:
                async for event in events:
                    if record.charge is not None:
                        record.charge.keep()
                    yield event

    async def _stream_named(
        self, request: TranslateRequest, record: RequestRecord
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        with ExitStack() as uses:
            translator, job = await self._prepare(request, record, uses)
            async with aclosing(translator.stream(job)) as events:
                async for event in events:
                    yield _complete(job, event, record) if isinstance(event, TranslationResponse) else event

    async def score(self, request: ScoreRequest, record: RequestRecord) -> ScoreResponse:
        """Scores all pairs of the request, or none; raises ServiceError if scoring fails."""
        return await self._read(request, record, Translator.score)

    async def attend(self, request: AttentionRequest, record: RequestRecord) -> AttentionResponse:
        """Returns the attention of a layer and head for all pairs of the request, or none.

        Raises ServiceError if reading fails.
        """
        return await self._read(
            request, record, lambda translator, job: translator.attend(job, request.layer, request.head)
        )

    async def _read(
        self, request: ScoreRequest, record: RequestRecord, work: Callable[[Translator, Job], Awaitable[ReadResponse]]
    ) -> ReadResponse:
        """Returns what `work` finds for the pairs of a request with the model of its direction."""
        texts = [text for text, _ in request.pairs]
        async with self.accept_texts(record, texts):
            record.source_texts = texts
            with ExitStack() as uses:
                deadline_seconds = self._deadline(request.deadline_seconds)
                ((hop, pipeline),) = await self._use(
                    lambda: (find_hop(request, self._offers(request.model, record)),), deadline_seconds, record, uses
                )
                job = pipeline.limits.prepare_scores(request, hop.direction, deadline_seconds)
                response = await work(pipeline.translator, job)
        record.usage = response.usage
        return replace(response, model=hop.model)

    async def detect(self, texts: Sequence[str], deadline_seconds: float | None) -> DetectResponse:
        """Detects the language of each text among the source languages of the models.

        Raises ServiceError if the texts are refused or the deadline passes.
        """
        with self.lifecycle.begin_request():
            self.check_texts(texts)
            sources = {source for directions in self._models.offers.values() for source in directions.sources_of("")}
            return DetectResponse(tuple(await detect_languages(texts, sources, self._deadline(deadline_seconds))))

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raises InvalidRequestError if every model refuses the number of texts or one of them, which may be blank."""
        self._models.text_limits.check_detected(texts)

    def accept(self, record: RequestRecord, characters: int) -> AbstractAsyncContextManager[None]:
        """Accepts a request while the block runs, and counts it and its characters for the client's API key, if any.

        A request of several parts translates them with `translate_accepted`: it finishes while the service drains.

        Raises ServiceError if the service accepts no requests, or the request exceeds a limit of the key.
        """
        requests, account = self.lifecycle.begin_request(), record.account
        return requests if account is None else _charge(requests, account, record, characters)

    def accept_texts(self, record: RequestRecord, texts: Iterable[str]) -> AbstractAsyncContextManager[None]:
        """Accepts a request with these texts, as `accept`."""
        return self.accept(record, 0 if record.account is None else sum(map(len, texts)))

    def split_targets(self, request: TranslateRequest, record: RequestRecord) -> list[TranslateRequest]:
        """Returns the request of each target; raises InvalidRequestError if the targets are not a valid list."""
        return split_targets(request, self._offers(request.model, record))

    def find_languages(self, request: TranslateRequest, record: RequestRecord) -> tuple[str, tuple[str, ...]]:
        """Returns the target of a request, and the source languages that its texts may have; translates nothing.

        Raises ServiceError if no model that the client may use has the direction.
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
        self._models.text_limits.check_texts(request)
        offers = self._offers(request.model, record)
        target, sources = find_sources(request, offers)
        deadline_seconds = self._deadline(request.deadline_seconds)

        async def detect() -> list[DetectedLanguage]:
            markup = request.format not in ("", PLAIN)
            candidates = find_candidates(request, offers) if request.shared else (*sources, target)
            found = await detect_languages(request.text, candidates, deadline_seconds, markup=markup)
            return [best_guess(result, candidates) for result in found]

        languages = await (request.shared.once("languages", detect) if request.shared else detect())
        requested = request._replace(target_language=target, source_detected=True, deadline_seconds=deadline_seconds)
        return DetectedTexts(requested, languages)

    def _deadline(self, deadline_seconds: float | None) -> float:
        """Returns the deadline of the client, or the default one from now on."""
        return time.monotonic() + self._default_timeout_seconds if deadline_seconds is None else deadline_seconds

    async def _prepare(
        self, request: TranslateRequest, record: RequestRecord, uses: ExitStack
    ) -> tuple[Translator, Job]:
        """Returns the last hop of a request, after the hop before it; keeps the models loaded until `uses` ends.

        Raises ServiceError if the request is refused or the first hop fails.
        """
        deadline_seconds = self._deadline(request.deadline_seconds)
        if record.account is not None and (priority := record.account.key.limits.priority):
            request = request._replace(priority=request.priority + priority)
        record.source_texts = request.text

        def find() -> Sequence[Hop]:
            offers = self._offers(request.model, record)
            return self._models.routes.find(request) if offers is self._models.offers else find_route(request, offers)

        hops = await self._use(find, deadline_seconds, record, uses)
        indexes: tuple[TermIndex, ...] = ()
        if request.terms or request.glossary:
            stored = None if self._glossaries is None else self._glossaries.of(record.account_id, record.caller)
            ends = hops[0][0].direction.source, hops[-1][0].direction.target
            indexes = await find_indexes(request, stored, *ends)
        recall: Recall | None = None
        if request.memory or self._memory is not None:
            client, pair = Client(record.account_id), Pair(hops[0][0].direction.source, hops[-1][0].direction.target)
            recall = await find_recall(request, self._memories, client, self._memory, pair)
        if len(hops) == 1:
            ((hop, pipeline),) = hops
            glossary = [TextTerms(indexes)] * len(request.text) if indexes else ()
            job = pipeline.limits.prepare(request, hop.direction, deadline_seconds, glossary, recall)
            return pipeline.translator, job
        first, last = hops
        whole = recall and replace(recall, whole_texts=True)
        job = await self._via_pivot(request, indexes, deadline_seconds, (first, last), uses, recall=whole)
        uses.enter_context(pivot.explained(first[0].direction.target))
        return last[1].translator, job

    async def _use(
        self, find: Callable[[], Sequence[Hop]], deadline_seconds: float, record: RequestRecord, uses: ExitStack
    ) -> list[tuple[Hop, Pipeline]]:
        """Returns the hops that `find` chooses with their pipelines, which stay until `uses` ends.

        The last model counts the request.

        Raises ServiceError if the request is refused, or a model cannot be loaded within the deadline.
        """
        while True:
            hops = find()
            absent = [hop.model for hop in hops if self._models.find(hop.model) is None]
            if absent and self._on_demand is not None:
                await self._on_demand.bring(absent, record, deadline_seconds)
                continue
            models = [self._models.get(hop.model) for hop in hops]
            first, last = hops[0], hops[-1]
            record.model, record.pivot_model = last.model, NO_MODEL if first is last else first.model
            record.direction = f"{first.direction.source}-{last.direction.target}"
            if all(model.presence is Presence.LOADED for model in models):
                for model in models:
                    uses.enter_context(model.uses)
            elif not await self._keeper.use(models, deadline_seconds, uses):
                continue
            return [(hop, model.pipeline) for hop, model in zip(hops, models, strict=True) if model.pipeline]

    async def _via_pivot(
        self,
        request: TranslateRequest,
        indexes: tuple[TermIndex, ...],
        deadline_seconds: float,
        hops: tuple[tuple[Hop, Pipeline], tuple[Hop, Pipeline]],
        uses: ExitStack,
        *,
        recall: "Recall | None",
    ) -> Job:
        """Translates into the pivot language and prepares the second hop; both share the deadline.

        The first hop translates no text that a memory has in the last language; the second hop keeps it as it is.

        Rows are reserved in both models first, until `uses` ends: a request that the second model refuses costs no
        translation by the first. If one model does both, the second hop reserves when the first is done: a request must
        not wait for its own rows.
        """
        (first_hop, first), (last_hop, last) = hops
        first_options, last_options = pivot.split_options(request.options)
        request_last = request._replace(options=last_options, context="")
        request_first = request._replace(options=first_options, target_prefix=())
        terms = TextTerms(indexes, traced=True)
        glossary = [terms] * len(request.text) if indexes else ()
        job = first.limits.prepare(request_first, first_hop.direction, deadline_seconds, glossary, recall)
        place = last.limits.prepare(request_last, last_hop.direction, deadline_seconds, glossary)
        # Without terms and memories, the first hop serves all targets, and reserves when it begins.
        shared = None if indexes or recall or request.fairness_key else request.shared
        # All requests reserve in the order of model names: requests in opposite directions cannot deadlock.
        ahead = [] if shared else [(first_hop.model, first, job)]
        ahead += [] if last is first else [(last_hop.model, last, place)]
        for _, pipeline, prepared in sorted(ahead, key=lambda item: item[0]):
            uses.enter_context(await pipeline.translator.reserve(prepared))
        translate = partial(first.translator.translate, job)
        response = await (shared.once((first_hop, first, first_options), translate) if shared else translate())
        between = Pivot(first_hop.direction.target, first_hop.model)
        with pivot.explained(between.language):
            request_last = pivot.ask_last(request_last, response)
            followed = (
                [follow_terms(translation.terms or (), terms) for translation in response.translations]
                if indexes
                else ()
            )
            job = last.limits.prepare(
                request_last, last_hop.direction, deadline_seconds, followed, find_known(response.translations)
            )
        job.reservation, job.before = place.reservation, (response, between)
        return job


def _complete(job: Job, response: TranslationResponse, record: RequestRecord) -> TranslationResponse:
    """Returns the client's response for that of the translator, and records it."""
    response.model = record.model
    if job.before is not None:
        response = pivot.join(job.before[0], response, job.before[1])
    record.usage = response.usage
    record.target_texts = [translation.text for translation in response.translations]
    return response


@asynccontextmanager
async def _charge(requests: Uses, account: "Account", record: RequestRecord, characters: int) -> AsyncIterator[None]:
    with requests:
        async with account.charge(characters) as charge:
            record.charge = charge
            try:
                yield
            finally:
                record.charge = None
