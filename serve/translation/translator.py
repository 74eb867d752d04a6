"""The translator: tokenizes, reserves, submits, awaits and times a request for one model.

Runs in the event loop; `dragoman.serve.translation.submission` connects it with the threads of the engines. A text may
have several sentences, each a sequence; all sequences of a request run concurrently. Independent of protocols and of
the runtime.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.engine.readiness import Readiness
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.observability.traces import current_trace
from dragoman.serve.observability.usage import Timings
from dragoman.serve.scheduler.admission import Reservation
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceSpec
from dragoman.serve.scheduler.stream_quota import StreamQuota
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.translation.attention import NO_HEADS, AttentionReader, AttentionResponse, PairAttention, check_head
from dragoman.serve.translation.cache import Hypotheses, ResultCache
from dragoman.serve.translation.large_work import SMALL_TEXT_BYTES, Pace, Steps, map_texts, run_part
from dragoman.serve.translation.markup import SMALL_MARKUP_BYTES
from dragoman.serve.translation.request import ModelRequest, TextRequest
from dragoman.serve.translation.response import (
    ResponseBuilder,
    ScoreResponse,
    SentenceResult,
    TranslationDelta,
    TranslationResponse,
)
from dragoman.serve.translation.second_pass import SecondPass
from dragoman.serve.translation.segments import SegmentedRequest, TextSplitter
from dragoman.serve.translation.submission import LoopNotifier, Submission
from dragoman.serve.translation.text_model import TextModel

# The decoded form of an incomplete character in byte tokens; the next token may complete it.
INCOMPLETE = "\ufffd"


class TextStream:
    """The text of a growing translation, in final pieces.

    Text that a later token may change is held back: incomplete characters, and trailing white space, which some
    tokenizers drop. The tokenizer must decode from left to right: further tokens change only the end of the text.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._sent_characters = 0

    def grow(self, target_ids: Sequence[int]) -> str:
        """Returns the new final text, given all tokens so far; may be empty."""
        return self._advance(self._tokenizer.decode(target_ids).rstrip(INCOMPLETE).rstrip())

    def end(self, text: str) -> str:
        """Returns the rest of the whole text."""
        return self._advance(text)

    def _advance(self, text: str) -> str:
        new = text[self._sent_characters :]
        self._sent_characters += len(new)
        return new


AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse, AttentionResponse)
Result = TypeVar("Result")


class TokenizedRequest(NamedTuple):
    """A request with tokenized sentences.

    Attributes:
        request: with sentences as texts.
        specs: one per sentence.
        cached: hypotheses from the result cache, by index of the sentence.
        searched: indices of the sentences that are not cached.
        started_seconds, tokenized_seconds: start and end of tokenization, on the clock of `time.monotonic`.
    """

    request: ModelRequest
    specs: list[SequenceSpec]
    cached: dict[int, Hypotheses]
    searched: list[int]
    started_seconds: float
    tokenized_seconds: float


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
        attention: AttentionReader | None = None,
    ) -> None:
        """Connects the parts of one model.

        Args:
            readiness: refuses requests while the model is not ready.
            spare_rows: rows that streams leave free for other requests.
            cache: None: no caching.
            attention: reads the attention of heads; None: the model has none.
        """
        self._model = model
        self._responses = ResponseBuilder(model)
        self._scheduler = scheduler
        self._readiness = readiness
        self._metrics = metrics
        self._cache = cache
        self._attention = attention
        self._notifier = LoopNotifier()
        self._stream_quota = StreamQuota(scheduler, spare_rows)
        self._second_pass = SecondPass(model.tokenizer, scheduler, self._responses, self._spec)

    async def reserve(self, request: ModelRequest) -> Reservation:
        """Reserves the rows of a request before its texts are processed.

        Raises:
            ServiceError: if the request is refused.
        """
        self._readiness.check()
        if request.fairness_key is None:
            return self._scheduler.reserve(request.rows, request.deadline_seconds, request.priority)
        return await self._stream_quota.reserve(
            request.rows, request.fairness_key, request.deadline_seconds, request.priority
        )

    async def translate(self, request: ModelRequest, reserved: Reservation | None = None) -> TranslationResponse:
        """Translates all texts of the request, or none. Canceling the call frees its slots within one step.

        Args:
            reserved: rows of the request, released in the end; None: they are reserved now.

        Raises:
            ServiceError: if the translation fails.
        """
        with reserved or await self.reserve(request) as reservation:
            if (repeated := self._repeated(request)) is not None:
                return repeated
            segmented = await self._split(request, reservation)
            tokenized = await self._tokenize(segmented.request)
            sequences = await self._search(tokenized, reservation)
            results = self._results(tokenized, sequences)
            if request.protects:
                results = await self._second_pass.complete(tokenized.request, results)
                segmented = segmented.with_markup(result.sentence.markup for result in results)
            response = await self._joined(segmented, await self._translated(tokenized, sequences, results))
            if self._cache is not None and not sequences:
                self._cache.put_translations(request, response.translations)
            return response

    def _repeated(self, request: ModelRequest) -> TranslationResponse | None:
        """Returns the response of a request that was cached as a whole; None for a trace, which shows its phases."""
        if self._cache is None or current_trace() is not None:
            return None
        started_seconds = time.monotonic()
        translations = self._cache.get_translations(request)
        if translations is None:
            return None
        seconds = time.monotonic() - started_seconds
        timings = Timings(tokenize_seconds=seconds, queue_seconds=0.0, inference_seconds=0.0, total_seconds=seconds)
        return self._observed(TranslationResponse(translations, timings))

    async def stream(
        self, request: ModelRequest, reserved: Reservation | None = None
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response of `translate`.

        Deltas that are not consumed in time are merged. With several hypotheses, the best one is known only at the end:
        its text comes in one delta, as does a text with placeholders or terms. Closing the generator
        (`contextlib.aclosing`) frees the slots within one step.

        Raises:
            ServiceError: if the translation fails, possibly after some deltas.
        """
        if request.protects:
            response = await self.translate(request, reserved)
            for index, translation in enumerate(response.translations):
                yield TranslationDelta(
                    text_index=index,
                    text=translation.text,
                    target_tokens=translation.target_tokens,
                    finish_reason=translation.finish_reason,
                )
            yield response
            return
        with reserved or await self.reserve(request) as reservation:
            segmented = await self._split(request, reservation)
            streams = segmented.streams()
            tokenized = await self._tokenize(segmented.request)
            with self._submission(tokenized, reservation, self._notifier) as submission:
                for delta in segmented.empty_deltas():
                    yield delta
                for index, hypotheses in tokenized.cached.items():
                    last = self._last_delta(tokenized, index, TextStream(self._model.tokenizer), hypotheses)
                    for delta in streams[index](last):
                        yield delta
                texts = [(index, TextStream(self._model.tokenizer)) for index in tokenized.searched]
                while True:
                    pace = Pace()
                    for number, ended in submission.updates():
                        grown = self._delta(tokenized, submission, number, *texts[number], ended=ended)
                        for delta in () if grown is None else streams[grown.text_index](grown):
                            yield delta
                        await pace.keep()
                    # All may have ended while a delta was sent.
                    if submission.done:
                        break
                    await submission.change()
            results = self._results(tokenized, submission.sequences)
            yield await self._joined(segmented, await self._translated(tokenized, submission.sequences, results))

    async def score(self, request: ModelRequest) -> ScoreResponse:
        """Scores the translation of every text, each as one sentence; otherwise as `translate`.

        Raises:
            ServiceError: if scoring fails.
        """
        with await self.reserve(request) as reservation:
            tokenized = await self._tokenize(request)
            sequences = await self._search(tokenized, reservation)
            scores = await _built(request, self._responses.score, self._results(tokenized, sequences))
            return self._observed(ScoreResponse(scores, _timings(tokenized, sequences)))

    async def attend(self, request: ModelRequest, layer: int | None, head: int | None) -> AttentionResponse:
        """Returns the attention of a layer and head while the model reads the translation of every text.

        Each translation is a part of work in the thread of large requests, apart from the engines.

        Args:
            request: as of `score`.
            layer: None: the mean over all layers.
            head: None: the mean over all heads.

        Raises:
            ServiceError: if the model has no attention per head, or reading fails.
        """
        reader = self._attention
        if reader is None:
            raise InvalidRequestError("model", NO_HEADS)
        check_head(reader, layer, head)
        read = partial(self._attend, reader, layer, head)
        with await self.reserve(request):
            started_seconds = time.monotonic()
            specs = await map_texts(partial(self._spec, request), request.texts, request.deadline_seconds)
            tokenized_seconds = time.monotonic()
            texts = zip(request.texts, specs, strict=True)
            attentions = [await run_part(request.deadline_seconds, read, text.text, spec) for text, spec in texts]
            ended_seconds = time.monotonic()
        timings = Timings(
            tokenize_seconds=tokenized_seconds - started_seconds,
            queue_seconds=0.0,
            inference_seconds=ended_seconds - tokenized_seconds,
            total_seconds=ended_seconds - started_seconds,
        )
        return self._observed(AttentionResponse(tuple(attentions), reader.layers, reader.heads, timings))

    def _attend(
        self, reader: AttentionReader, layer: int | None, head: int | None, text: str, spec: SequenceSpec
    ) -> PairAttention:
        attention = reader.read(spec.source_ids, spec.options.target_prefix, layer, head)
        return self._responses.attention(text, spec, attention[spec.options.start_tokens :])

    async def _split(self, request: ModelRequest, reservation: Reservation) -> SegmentedRequest:
        """Splits the texts into sentences with their terms."""
        segmented = await self._sentences(request, reservation)
        if not request.has_terms:
            return segmented
        find = TextRequest.with_terms
        return segmented.with_terms(await map_texts(find, segmented.request.texts, request.deadline_seconds))

    async def _sentences(self, request: ModelRequest, reservation: Reservation) -> SegmentedRequest:
        """Splits the texts into sentences, and extends the reservation if there are more sentences than texts."""
        if not request.split_sentences and request.reading is None:
            return SegmentedRequest.whole(request)
        max_sentences = self._scheduler.capacity_rows // request.plan.options.rows
        splitter = TextSplitter(request, partial(self._model.fits, request.direction.source_prefix), max_sentences)
        small_bytes = SMALL_TEXT_BYTES if request.reading is None else SMALL_MARKUP_BYTES
        texts = await map_texts(splitter.split, request.texts, request.deadline_seconds, small_bytes)
        segmented = SegmentedRequest.of(request, texts)
        if len(segmented.request.texts) > len(texts):
            await self._widen(reservation, segmented.request)
        return segmented

    async def _widen(self, reservation: Reservation, request: ModelRequest) -> None:
        if request.fairness_key is None:
            reservation.resize(request.rows)
        else:
            await self._stream_quota.widen(reservation, request.rows, request.fairness_key, request.deadline_seconds)

    async def _tokenize(self, request: ModelRequest) -> TokenizedRequest:
        """Tokenizes the sentences and looks them up in the result cache."""
        started_seconds = time.monotonic()
        specs = await map_texts(partial(self._spec, request), request.texts, request.deadline_seconds)
        cached: dict[int, Hypotheses] = {}
        if self._cache is not None and request.plan.repeatable:
            results = enumerate(map(self._cache.get, specs))
            cached = {index: hypotheses for index, hypotheses in results if hypotheses is not None}
        searched = [index for index in range(len(specs)) if index not in cached]
        tokenized_seconds = time.monotonic()
        if trace := current_trace():
            trace.add_phase("tokenize", started_seconds, tokenized_seconds, {"texts": len(specs)})
        return TokenizedRequest(request, specs, cached, searched, started_seconds, tokenized_seconds)

    def _spec(self, request: ModelRequest, text: TextRequest) -> SequenceSpec:
        source = self._model.source_ids(request.direction.source_prefix, text.text)
        if len(source) > self._model.max_source_tokens:
            problem = f"{len(source)} tokens, expected at most {self._model.max_source_tokens}"
            raise InvalidRequestError(text.text_field, problem)
        prefix = tuple(self._model.tokenizer.encode_target(text.target_prefix)) if text.target_prefix else ()
        options = request.plan.options_for(len(source), prefix, text.prefix_field, request.direction.start)
        return SequenceSpec(source, options._replace(alignments=True) if text.attended else options)

    async def _search(self, tokenized: TokenizedRequest, reservation: Reservation) -> tuple[DecodingSequence, ...]:
        """Returns the finished sequences of the sentences that are not cached."""
        if not tokenized.searched:
            return ()
        with self._submission(tokenized, reservation) as submission:
            await submission.finish()
        return submission.sequences

    def _submission(
        self, tokenized: TokenizedRequest, reservation: Reservation, notifier: LoopNotifier | None = None
    ) -> Submission:
        request = tokenized.request
        return Submission(
            self._scheduler,
            [tokenized.specs[index] for index in tokenized.searched] if tokenized.cached else tokenized.specs,
            deadline_seconds=request.deadline_seconds,
            notifier=notifier,
            reservation=reservation,
            priority=request.priority,
            fairness_key=request.fairness_key,
            patient=request.fairness_key is not None,
        )

    def _delta(
        self,
        tokenized: TokenizedRequest,
        submission: Submission,
        number: int,
        index: int,
        text_stream: TextStream,
        *,
        ended: bool,
    ) -> TranslationDelta | None:
        """Returns the growth of one sentence; None: no new final text.

        Args:
            number: index of its sequence in the submission.
            ended: whether its translation is complete.
        """
        if ended:
            return self._last_delta(tokenized, index, text_stream, submission.sequences[number].hypotheses)
        markup = tokenized.request.texts[index].markup
        if markup is not None and not markup.grows:
            return None  # tags may enclose any part of the translation
        target_ids = submission.tokens[number].copy()  # the engine appends concurrently
        text = text_stream.grow(target_ids)
        if markup is not None:
            text = markup.escaper.escape(text)
        return TranslationDelta(text_index=index, text=text, target_tokens=len(target_ids)) if text else None

    def _last_delta(
        self, tokenized: TokenizedRequest, index: int, text_stream: TextStream, hypotheses: Sequence[Hypothesis]
    ) -> TranslationDelta:
        best, sentence = hypotheses[0], tokenized.request.texts[index]
        if sentence.markup is not None and not sentence.markup.grows:
            result = SentenceResult(sentence, tokenized.specs[index], hypotheses[:1], None)
            text, _ = sentence.markup.render(self._responses.translation(result, tokenized.request.plan))
        else:
            text = text_stream.end(self._model.tokenizer.decode(best.target_ids))
            text = text if sentence.markup is None else sentence.markup.escaper.escape(text)
        return TranslationDelta(
            text_index=index, text=text, target_tokens=len(best.target_ids), finish_reason=best.finish_reason
        )

    async def _translated(
        self, tokenized: TokenizedRequest, sequences: tuple[DecodingSequence, ...], results: Sequence[SentenceResult]
    ) -> TranslationResponse:
        """Returns the response for the sentences and counts it."""
        started_seconds = time.monotonic()
        build = partial(self._responses.translation, plan=tokenized.request.plan)
        translations = await _built(tokenized.request, build, results)
        if trace := current_trace():
            trace.add_phase("detokenize", started_seconds, time.monotonic(), {"texts": len(translations)})
        return self._observed(TranslationResponse(translations, _timings(tokenized, sequences)))

    async def _joined(self, segmented: SegmentedRequest, response: TranslationResponse) -> TranslationResponse:
        """Returns the response for the texts, given the response for the sentences."""
        if segmented.slow_to_join:
            deadline_seconds = segmented.request.deadline_seconds
            translations = [await run_part(deadline_seconds, join) for join in segmented.joins(response)]
            joined = replace(response, translations=tuple(translations))
        else:
            joined = segmented.join(response)
        least = self._model.least_log_probability
        if least is None or joined is response:  # translations of single sentences have been compared
            return joined
        return TranslationResponse(
            tuple(translation.compared(least) for translation in joined.translations), joined.timings
        )

    def _results(self, tokenized: TokenizedRequest, sequences: tuple[DecodingSequence, ...]) -> list[SentenceResult]:
        """Returns the result of each sentence, and stores new ones in the cache."""
        hypotheses = dict(tokenized.cached)
        for index, sequence in zip(tokenized.searched, sequences, strict=True):
            hypotheses[index] = tuple(sequence.hypotheses)
            if self._cache is not None and tokenized.request.plan.repeatable:
                self._cache.put(tokenized.specs[index], hypotheses[index])
        return [
            SentenceResult(text, spec, hypotheses[index], None if self._cache is None else index in tokenized.cached)
            for index, (text, spec) in enumerate(zip(tokenized.request.texts, tokenized.specs, strict=True))
        ]

    def _observed(self, response: AnyResponse) -> AnyResponse:
        self._metrics.observe_response(response.usage)
        return response


def _timings(tokenized: TokenizedRequest, sequences: tuple[DecodingSequence, ...]) -> Timings:
    return Timings(
        tokenize_seconds=tokenized.tokenized_seconds - tokenized.started_seconds,
        queue_seconds=max(
            (sequence.started_seconds - sequence.submitted_seconds for sequence in sequences), default=0.0
        ),
        inference_seconds=max(
            (sequence.finished_seconds - sequence.started_seconds for sequence in sequences), default=0.0
        ),
        total_seconds=time.monotonic() - tokenized.started_seconds,
    )


async def _built(
    request: ModelRequest, build: Callable[[SentenceResult], Result], results: Sequence[SentenceResult]
) -> tuple[Result, ...]:
    """Returns what `build` makes of each sentence of a request."""
    steps = Steps(request)
    return tuple([await steps.run(build, result) for result in results])
