"""The translator: the stages of a job, from its texts to the response.

Runs in the event loop; `dragoman.serve.translation.submission` connects it with the threads of the engines. A text may
have several sentences, each a sequence; all sequences of a job run concurrently. Independent of protocols and of the
runtime.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from dragoman.serve.engine.engines import Readiness
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.observability.traces import current_trace
from dragoman.serve.observability.usage import Timings
from dragoman.serve.runtime.attention import HeadAttention
from dragoman.serve.scheduler.request_scheduler import RequestScheduler, Reservation
from dragoman.serve.scheduler.stream_quota import StreamQuota
from dragoman.serve.translation.attention import NO_HEADS, AttentionResponse, PairAttention, check_head
from dragoman.serve.translation.cache import ResultCache
from dragoman.serve.translation.job import Job, SegmentedText, Sentence, characters_of
from dragoman.serve.translation.large_work import Pace, spread
from dragoman.serve.translation.markup import SMALL_MARKUP_BYTES
from dragoman.serve.translation.recall import answer, explain
from dragoman.serve.translation.renderer import Renderer, TextParts
from dragoman.serve.translation.response import ScoreResponse, Translation, TranslationDelta, TranslationResponse
from dragoman.serve.translation.second_pass import SecondPass
from dragoman.serve.translation.segments import (
    TextModel,
    TextSplitter,
    add_context,
    leave_context,
    uncut_text,
    whole_text,
)
from dragoman.serve.translation.shares import Outcome, Share, divide, part_of
from dragoman.serve.translation.streams import JobStream, whole_deltas
from dragoman.serve.translation.submission import LoopNotifier, SharedSubmission, Submission

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse, AttentionResponse)


class Translator:
    """Translates and scores requests with one model."""

    def __init__(
        self,
        model: TextModel,
        scheduler: RequestScheduler,
        readiness: Readiness,
        metrics: Metrics,
        *,
        spare_rows: int = 0,
        cache: ResultCache | None = None,
        attention: HeadAttention | None = None,
    ) -> None:
        """Connects the parts of one model.

        Args:
            readiness: refuses requests while the model is not ready.
            spare_rows: rows that streams leave free for other requests.
            cache: None: no caching.
            attention: reads the attention of heads; None: the model has none.
        """
        self._model = model
        self._renderer = Renderer(model)
        self._scheduler = scheduler
        self._readiness = readiness
        self._metrics = metrics
        self._cache = cache
        self._attention = attention
        self._notifier = LoopNotifier()
        self._stream_quota = StreamQuota(scheduler, spare_rows)
        self._second_pass = SecondPass(model, scheduler, self._renderer)

    async def translate(self, job: Job) -> TranslationResponse:
        """Translates all texts of the job, or none. Canceling the call frees its slots within one step.

        Raises ServiceError if the translation fails.
        """
        with job.reservation or await self.reserve(job) as reservation:
            if self._cache is not None and (repeated := self._repeated(job, self._cache)) is not None:
                return repeated
            await self._segment(job, reservation)
            await self._tokenize(job)
            await self._search(job, reservation)
            if job.context:
                await self._leave_context(job, reservation)
            if job.protects:
                await self._second_pass.complete(job)
            response = await self._respond(job)
            if self._cache is not None and not job.searched:
                self._cache.put_translations(job, response.translations)
            return response

    async def translate_shares(self, job: Job) -> AsyncGenerator[list[Outcome]]:
        """Yields the outcomes of the requests that share a simple job, each when it is ready.

        Raises:
            ServiceError: if one of the requests is refused or must wait for room, before any outcome; later only if the
                deadline passes and no engine notices it.
        """
        with await self.reserve(job) as reservation:
            await self._segment(job, reservation)
            await self._tokenize(job)
            self._look_up(job)
            shares, of_searched = divide(job)
            with self._submission(job, reservation) as submission:
                ready = [share for share in shares if not share.waiting]
                while True:
                    if ready:
                        yield await self._outcomes(job, ready)
                    if submission.done:
                        return
                    await submission.change()
                    ready = []
                    for index, _ in submission.updates():
                        share = of_searched[index]
                        share.waiting -= 1
                        if not share.waiting:
                            ready.append(share)

    async def stream(self, job: Job) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response of `translate`.

        Deltas that are not consumed in time are merged. With several hypotheses, the best one is known only at the end:
        its text comes in one delta, as does a text with placeholders, terms or context. Closing the generator
        (`contextlib.aclosing`) frees the slots within one step.

        Raises ServiceError if the translation fails, possibly after some deltas.
        """
        if job.protects or job.context:
            response = await self.translate(job)
            for delta in whole_deltas(response):
                yield delta
            yield response
            return
        with job.reservation or await self.reserve(job) as reservation:
            await self._segment(job, reservation)
            await self._tokenize(job)
            self._look_up(job)
            deltas = JobStream(job, self._model.tokenizer, self._renderer)
            with self._submission(job, reservation, self._notifier) as submission:
                for delta in deltas.known():
                    yield delta
                while True:
                    pace = Pace()
                    for grown in deltas.updates(submission):
                        for delta in grown:
                            yield delta
                        await pace.keep()
                    # All may have ended while a delta was sent.
                    if submission.done:
                        break
                    await submission.change()
            self._store(job)
            yield await self._respond(job)

    async def score(self, job: Job) -> ScoreResponse:
        """Scores the translation of every text, each as one sentence; otherwise as `translate`.

        Raises ServiceError if scoring fails.
        """
        with await self.reserve(job) as reservation:
            job.fill([whole_text(text) for text in job.texts])
            await self._tokenize(job)
            await self._search(job, reservation)
            score = partial(map, self._renderer.score)
            scores = await spread(score, job.sentences, job.deadline_seconds, large=False)
            return self._observed(ScoreResponse(tuple(scores), _timings(job, job.searched)))

    async def attend(self, job: Job, layer: int | None, head: int | None) -> AttentionResponse:
        """Returns the attention of a layer and head while the model reads the translation of every text.

        Each translation is a part of work in the thread of large requests, apart from the engines.

        Args:
            job: as of `score`.
            layer: None: the mean over all layers.
            head: None: the mean over all heads.

        Raises ServiceError if the model has no attention per head, or reading fails.
        """
        reader = self._attention
        if reader is None:
            raise InvalidRequestError("model", NO_HEADS)
        check_head(reader, layer, head)
        with await self.reserve(job):
            job.fill([whole_text(text) for text in job.texts])
            await self._tokenize(job)
            read = partial(map, partial(self._attend, reader, layer, head))
            attentions = await spread(read, job.sentences, job.deadline_seconds, large=True)
        timings = replace(_timings(job, ()), inference_seconds=time.monotonic() - job.tokenized_seconds)
        return self._observed(AttentionResponse(tuple(attentions), reader.layers, reader.heads, timings))

    async def reserve(self, job: Job) -> Reservation:
        """Reserves the rows of a job before its texts are processed; raises ServiceError if the job is refused."""
        if fault := self._readiness.fault():
            raise fault
        if job.shares and job.fairness_key is not None:
            reservation = self._stream_quota.reserve_now(job.rows, job.fairness_key, job.deadline_seconds, job.priority)
        elif job.fairness_key is None:
            reservation = self._scheduler.reserve(job.rows, job.deadline_seconds, job.priority)
        else:
            reservation = await self._stream_quota.reserve(
                job.rows, job.fairness_key, job.deadline_seconds, job.priority
            )
        job.reservation = reservation
        return reservation

    def _repeated(self, job: Job, cache: ResultCache) -> TranslationResponse | None:
        """Returns the response of a job that was cached as a whole; None for a trace, which shows its phases."""
        if current_trace() is not None:
            return None
        started_seconds = time.monotonic()
        translations = cache.get_translations(job)
        if translations is None:
            return None
        seconds = time.monotonic() - started_seconds
        timings = Timings(tokenize_seconds=seconds, queue_seconds=0.0, inference_seconds=0.0, total_seconds=seconds)
        return self._observed(TranslationResponse(translations, timings))

    async def _segment(self, job: Job, reservation: Reservation) -> None:
        """Splits the texts into sentences with their terms, and reserves rows for more sentences than texts."""
        if job.shared is None:
            cuts = await self._cut(job)
        else:
            before, texts = len(job.direction.source_prefix), (*job.texts, *job.target_prefixes)
            key = (self, job.direction.source, before, texts, job.options, job.split_sentences)
            cuts = await job.shared.once(key, partial(self._cut, job))
        job.fill(cuts if job.recall is None else await answer(job.recall, job, cuts))
        if len(job.sentences) > len(job.texts):
            await self._widen(job, reservation)
        if job.glossary:
            await self._spread(job, job.add_terms)

    async def _cut(self, job: Job) -> list[SegmentedText]:
        if not job.split_sentences and job.reading is None:
            return list(map(uncut_text, job.texts))
        max_sentences = self._scheduler.capacity_rows // (job.options.rows * job.targets)
        splitter = TextSplitter(job, partial(self._model.fits, job.direction.source_prefix), max_sentences)
        if job.small and job.reading is None:
            return list(splitter.split(job.texts))
        large = job.reading is None or job.work_bytes > SMALL_MARKUP_BYTES
        return await spread(splitter.split, job.texts, job.deadline_seconds, large=large, characters=len)

    async def _widen(self, job: Job, reservation: Reservation) -> None:
        if job.shares:
            self._stream_quota.widen_now(reservation, job.rows)
        elif job.fairness_key is None:
            reservation.resize(job.rows)
        else:
            await self._stream_quota.widen(reservation, job.rows, job.fairness_key, job.deadline_seconds)

    async def _tokenize(self, job: Job) -> None:
        job.started_seconds = time.monotonic()
        await self._spread(job, partial(self._model.tokenize, job))
        if job.context:
            add = partial(map, partial(add_context, self._model))
            await spread(add, [job], job.deadline_seconds, large=not job.small)
        job.tokenized_seconds = time.monotonic()
        if trace := current_trace():
            trace.add_phase("tokenize", job.started_seconds, job.tokenized_seconds, {"texts": len(job.sentences)})

    async def _spread(self, job: Job, work: Callable[[Sequence[Sentence]], Iterable[Sentence]]) -> None:
        if job.small:
            list(work(job.sentences))
        else:
            await spread(work, job.sentences, job.deadline_seconds, large=True, characters=characters_of)

    def _look_up(self, job: Job) -> None:
        """Gives sentences the hypotheses that the result cache has; the others are to be searched."""
        job.searched = job.sentences
        if self._cache is None:
            return
        if job.fields.repeatable:
            found = self._cache.find([sentence.spec for sentence in job.sentences])
            for sentence, hypotheses in zip(job.sentences, found, strict=True):
                sentence.hypotheses = hypotheses or ()
        for sentence in job.sentences:
            sentence.cached = bool(sentence.hypotheses)
        job.searched = [sentence for sentence in job.sentences if not sentence.cached]

    async def _search(self, job: Job, reservation: Reservation) -> None:
        self._look_up(job)
        if job.searched:
            with self._submission(job, reservation) as submission:
                await submission.change()
            self._store(job)

    async def _leave_context(self, job: Job, reservation: Reservation) -> None:
        """Removes translations of contexts; a sentence that lost a part by its context is translated without it."""
        leave = partial(map, partial(leave_context, self._model, self._second_pass.lacks))
        kept = await spread(leave, job.sentences, job.deadline_seconds, large=job.slow_to_render)
        if lost := {index: job.sentences[index] for index, is_kept in enumerate(kept) if not is_kept}:
            sentences = [Sentence(text=s.text, number=s.number, markup=s.markup, terms=s.terms) for s in lost.values()]
            alone = replace(job, context="", sentences=sentences)
            await self._tokenize(alone)
            await self._widen(alone, reservation)
            await self._search(alone, reservation)
            job.searched = [*job.searched, *alone.searched]
            for index, sentence in zip(lost, alone.sentences, strict=True):
                job.sentences[index] = sentence

    def _submission(self, job: Job, reservation: Reservation, notifier: LoopNotifier | None = None) -> Submission:
        return (SharedSubmission if job.shares else Submission)(
            self._scheduler,
            job.searched,
            deadline_seconds=job.deadline_seconds,
            notifier=notifier,
            reservation=reservation,
            priority=job.priority,
            fairness_key=job.fairness_key or job.shared,
            patient=job.fairness_key is not None,
        )

    def _store(self, job: Job) -> None:
        """Stores the hypotheses of the searched sentences in the result cache."""
        if self._cache is not None and job.fields.repeatable:
            for sentence in job.searched:
                self._cache.put(sentence.spec, sentence.hypotheses)

    async def _respond(self, job: Job) -> TranslationResponse:
        """Renders the translations of the sentences, counts them, and joins them to those of the texts."""
        translations = await self._render(job)
        response = self._observed(TranslationResponse(tuple(translations), _timings(job, job.searched)))
        if not job.plain:
            response = replace(response, translations=tuple(await self._join(job, translations)))
        if job.recall is not None:
            explain(job, response.translations)
        return response

    async def _outcomes(self, job: Job, shares: Sequence[Share]) -> list[Outcome]:
        """Returns the outcomes of requests that share a job, all of whose sentences have ended."""
        outcomes: list[Outcome] = [(share.number, share.error) for share in shares if share.error is not None]
        done = [share for share in shares if share.error is None] if outcomes else shares
        part = part_of(job, done)
        self._store(part)
        rendered = await self._render(part)
        sentences, plain = iter(rendered), part.plain
        texts = iter(() if plain else await self._join(part, rendered))
        for share in done:
            found, timings = tuple(islice(sentences, len(share.sentences))), _timings(job, share.searched)
            response = self._observed(TranslationResponse(found, timings))
            if not plain:
                response = replace(response, translations=tuple(islice(texts, len(share.cuts))))
            outcomes.append((share.number, response))
        return outcomes

    async def _render(self, job: Job) -> list[Translation]:
        started_seconds = time.monotonic()
        if job.small and job.simple:
            translations = self._renderer.translations(job, job.sentences)
        else:
            render, size = partial(self._renderer.translations, job), characters_of if job.simple else None
            translations = await spread(
                render, job.sentences, job.deadline_seconds, large=job.slow_to_render, characters=size
            )
        if trace := current_trace():
            trace.add_phase("detokenize", started_seconds, time.monotonic(), {"texts": len(translations)})
        return translations

    async def _join(self, job: Job, translations: Sequence[Translation]) -> list[Translation]:
        """Returns the translations of the texts, given those of their sentences."""
        texts, join = TextParts.of(job, translations), partial(map, self._renderer.joined)
        return await spread(join, texts, job.deadline_seconds, large=job.slow_to_join)

    def _attend(self, reader: HeadAttention, layer: int | None, head: int | None, sentence: Sentence) -> PairAttention:
        options = sentence.options
        attention = reader.read(sentence.source_ids, options.target_prefix, layer, head)
        return self._renderer.attention(sentence, attention[options.start_tokens :])

    def _observed(self, response: AnyResponse) -> AnyResponse:
        self._metrics.responses.add(response.usage)
        return response


def _timings(job: Job, sequences: Sequence[Sentence]) -> Timings:
    queue_seconds = inference_seconds = 0.0
    for item in sequences:
        queue_seconds = max(queue_seconds, item.started_seconds - item.group.submitted_seconds)
        inference_seconds = max(inference_seconds, item.finished_seconds - item.started_seconds)
    return Timings(
        tokenize_seconds=job.tokenized_seconds - job.started_seconds,
        queue_seconds=queue_seconds,
        inference_seconds=inference_seconds,
        total_seconds=time.monotonic() - job.started_seconds,
    )
