"""The one use case behind every interface: tokenize, submit, await, answer and time a valid request for sentences.

It lives in the event loop; `serve.translation.submission` leads from there to the engines, which live in threads of
their own. Nothing here knows a protocol or ONNX Runtime.

The text of a translation as it grows, in pieces that never have to be taken back.

What a later token may still change is held back: bytes that are no whole character yet, and white space, which some
tokenizers drop at the end. Called by `serve.translation.translator`; knows neither sequences nor any protocol.

Work on texts in the event loop, in turns that are short enough for everybody else in it.

Called by whatever goes through the texts of a request before anything waits.

Translates texts of any number of sentences, each sentence as a sequence of its own.

The sentences of one text run side by side, as those of different texts do. Lies between `serve.registry.dispatcher`,
which knows texts, and `serve.translation.translator`, for which a text is a sentence.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from model.tokenizer.tokenizer import TextTokenizer
from serve.engine.readiness import Readiness
from serve.errors import InvalidRequestError
from serve.observability.metrics import Metrics
from serve.observability.traces import current_trace
from serve.scheduler.admission import Reservation
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.search.hypothesis import Hypothesis
from serve.translation.cache import Hypotheses, ResultCache
from serve.translation.request import RequestLimits, TargetVocabulary, TextRequest, TranslationRequest
from serve.translation.response import (
    Found,
    ResponseBuilder,
    ScoreResponse,
    Timings,
    TranslationDelta,
    TranslationResponse,
)
from serve.translation.segments import SegmentedRequest, split_text
from serve.translation.submission import LoopNotifier, StreamAdmission, Submission

# What tokenizers write in the place of a byte that is no character by itself; the next byte may make it one.
INCOMPLETE = "\ufffd"


class TextStream:
    """One translation; its pieces make up its text."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Starts with no text.

        Args:
            tokenizer: turns ids into text from left to right: further tokens change no more than the end of it.
        """
        self._tokenizer = tokenizer
        self._sent_characters = 0

    def grow(self, target_ids: Sequence[int]) -> str:
        """Returns what is new and stays, given all tokens so far; it may be empty."""
        return self._advance(self._tokenizer.decode(target_ids).rstrip(INCOMPLETE).rstrip())

    def end(self, text: str) -> str:
        """Returns what is left of the whole text."""
        return self._advance(text)

    def _advance(self, text: str) -> str:
        new = text[self._sent_characters :]
        self._sent_characters += len(new)
        return new


# A text of this length takes well under a millisecond: the event loop looks at other requests about that often, and a
# hop to another thread, which costs more than a usual sentence, is never needed.
CHARACTERS_PER_TURN = 10_000


async def in_turns(texts: Iterable[TextRequest]) -> AsyncIterator[TextRequest]:
    """Yields the texts, and lets others have their turn whenever enough was done."""
    characters = 0
    for text in texts:
        yield text
        characters += len(text.text) + len(text.target_prefix)
        if characters >= CHARACTERS_PER_TURN:
            characters = 0
            await asyncio.sleep(0)


AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was let in.

    Attributes:
        request: what is wanted.
        reservation: the places that are kept for its texts.
        specs: one for each text.
        kept: what the result cache has for the text of some indices.
        started_seconds, tokenized_seconds: times of the monotonic clock.
    """

    request: TranslationRequest
    reservation: Reservation
    specs: list[SequenceSpec]
    kept: dict[int, Hypotheses]
    started_seconds: float
    tokenized_seconds: float

    @property
    def searched(self) -> list[int]:
        """The indices of the texts that have to be searched for."""
        return [index for index in range(len(self.specs)) if index not in self.kept]


class Translator:
    """Translates requests with one model."""

    def __init__(
        self,
        *,
        tokenizer: TextTokenizer,
        vocabulary: TargetVocabulary,
        scheduler: Scheduler,
        readiness: Readiness,
        metrics: Metrics,
        source_suffix: tuple[int, ...],
        max_source_tokens: int,
        spare_rows: int = 0,
        cache: ResultCache | None = None,
    ) -> None:
        """Keeps what it needs.

        Args:
            tokenizer: the served model's.
            vocabulary: its tokens of translations.
            scheduler: takes the sequences.
            readiness: decides whether requests are let in.
            metrics: gets counts and timings of each answered request.
            source_suffix: tokens after every source.
            max_source_tokens: the longest source that the model reads, prefix and suffix included.
            spare_rows: how many rows streams of requests leave free for others.
            cache: keeps answers; None: nobody does.
        """
        self._tokenizer = tokenizer
        self._writer = ResponseBuilder(tokenizer, vocabulary)
        self._scheduler = scheduler
        self._readiness = readiness
        self._metrics = metrics
        self._source_suffix = source_suffix
        self._max_source_tokens = max_source_tokens
        self._cache = cache
        self._notifier = LoopNotifier()
        self._stream_admission = StreamAdmission(scheduler, spare_rows)

    def fits(self, source_prefix: tuple[int, ...], sentence: str) -> bool:
        """Tells whether the model can read a sentence behind the tokens that tell the direction."""
        longest = self._max_source_tokens - len(source_prefix) - len(self._source_suffix)
        # A token is a byte at least, but for the one that begins a text: most sentences need not be looked at.
        return len(sentence.encode()) < longest or len(self._tokenizer.encode(sentence)) <= longest

    async def reserve(self, request: TranslationRequest) -> Reservation:
        """Lets the request in, before anything of it is looked at: a context manager that keeps a place for each text.

        Raises:
            ServiceError: why the request is not let in.
        """
        self._readiness.check()
        return await self._stream_admission.enter(
            request.rows, request.fairness_key, request.deadline_seconds, request.priority
        )

    async def widen(self, reservation: Reservation, request: TranslationRequest) -> None:
        """Keeps as many places as a request needs that turned out to be larger.

        Raises:
            ServiceError: if there are not so many.
        """
        await self._stream_admission.widen(reservation, request.rows, request.fairness_key, request.deadline_seconds)

    async def translate(self, request: TranslationRequest, reservation: Reservation) -> TranslationResponse:
        """Translates every text of the request, or none. Cancelling the call frees its slots within one step.

        Args:
            request: what is wanted.
            reservation: that of the request; texts that it has no places for need free ones.

        Raises:
            ServiceError: why there is no translation.
        """
        admitted = await self._admit(request, reservation)
        return self._translated(request, admitted, await self._search(admitted))

    async def score(self, request: TranslationRequest, reservation: Reservation) -> ScoreResponse:
        """Scores the translation of every text of the request, all of which is forced, or none; as `translate`.

        Raises:
            ServiceError: why there is no score.
        """
        admitted = await self._admit(request, reservation)
        sequences = await self._search(admitted)
        scores = tuple(map(self._writer.score, self._found(admitted, sequences)))
        return self._observed(ScoreResponse(scores, _timings(admitted, sequences)))

    async def stream(
        self, request: TranslationRequest, reservation: Reservation
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        What grows while nobody takes it comes in one piece. A translation that is searched for with several hypotheses
        comes in one piece, too, since nobody knows before its end which of them it is going to be. Closing the
        generator frees the slots within one step (`contextlib.aclosing`).

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        admitted = await self._admit(request, reservation)
        with self._submission(admitted, self._notifier) as submission:
            for index, hypotheses in admitted.kept.items():
                yield self._last_delta(index, self._text_stream(), hypotheses[0])
            texts = [(index, self._text_stream()) for index in admitted.searched]
            while not submission.done:
                await submission.change()
                for place, ended in submission.updates():
                    index, text_stream = texts[place]
                    if ended:
                        yield self._last_delta(index, text_stream, submission.sequences[place].best)
                    else:
                        target_ids = submission.tokens[place].copy()  # the engine goes on writing
                        if text := text_stream.grow(target_ids):
                            yield TranslationDelta(text_index=index, text=text, target_tokens=len(target_ids))
        yield self._translated(request, admitted, submission.sequences)

    async def _admit(self, request: TranslationRequest, reservation: Reservation) -> Admitted:
        started_seconds = time.monotonic()
        specs = await self._tokenize(request)
        kept = self._kept(specs) if request.plan.repeatable else {}
        tokenized_seconds = time.monotonic()
        if trace := current_trace():
            trace.add_phase("tokenize", started_seconds, tokenized_seconds, {"texts": len(specs)})
        return Admitted(request, reservation, specs, kept, started_seconds, tokenized_seconds)

    def _kept(self, specs: list[SequenceSpec]) -> dict[int, Hypotheses]:
        if self._cache is None:
            return {}
        answers = enumerate(map(self._cache.get, specs))
        return {index: hypotheses for index, hypotheses in answers if hypotheses is not None}

    def _submission(self, admitted: Admitted, notifier: LoopNotifier | None = None) -> Submission:
        return Submission(
            self._scheduler,
            [admitted.specs[index] for index in admitted.searched],
            deadline_seconds=admitted.request.deadline_seconds,
            notifier=notifier,
            reservation=admitted.reservation,
            priority=admitted.request.priority,
            fairness_key=admitted.request.fairness_key,
            patient=admitted.request.fairness_key is not None,
        )

    async def _search(self, admitted: Admitted) -> tuple[DecodingSequence, ...]:
        with self._submission(admitted) as submission:
            await submission.finish()
        return submission.sequences

    def _found(self, admitted: Admitted, sequences: tuple[DecodingSequence, ...]) -> list[Found]:
        """Returns what was found for each text; what is new goes to the cache."""
        found = dict(admitted.kept)
        for index, sequence in zip(admitted.searched, sequences, strict=True):
            found[index] = tuple(sequence.hypotheses)
            if self._cache is not None and admitted.request.plan.repeatable:
                self._cache.put(admitted.specs[index], found[index])
        return [
            Found(spec, found[index], None if self._cache is None else index in admitted.kept)
            for index, spec in enumerate(admitted.specs)
        ]

    def _translated(
        self, request: TranslationRequest, admitted: Admitted, sequences: tuple[DecodingSequence, ...]
    ) -> TranslationResponse:
        token_scores = request.plan.token_scores
        started_seconds = time.monotonic()
        found = self._found(admitted, sequences)
        translations = tuple(self._writer.translation(each, token_scores=token_scores) for each in found)
        if trace := current_trace():
            trace.add_phase("detokenize", started_seconds, time.monotonic(), {"texts": len(translations)})
        return self._observed(TranslationResponse(translations, _timings(admitted, sequences)))

    def _text_stream(self) -> TextStream:
        return TextStream(self._tokenizer)

    def _last_delta(self, text_index: int, stream: TextStream, best: Hypothesis) -> TranslationDelta:
        return TranslationDelta(
            text_index=text_index,
            text=stream.end(self._tokenizer.decode(best.target_ids)),
            target_tokens=len(best.target_ids),
            finish_reason=best.finish_reason,
        )

    async def _tokenize(self, request: TranslationRequest) -> list[SequenceSpec]:
        return [self._spec(request, text) async for text in in_turns(request.texts)]

    def _spec(self, request: TranslationRequest, text: TextRequest) -> SequenceSpec:
        source = (*request.source_prefix, *self._tokenizer.encode(text.text), *self._source_suffix)
        if len(source) > self._max_source_tokens:
            problem = f"{len(source)} tokens, expected at most {self._max_source_tokens}"
            raise InvalidRequestError(text.text_field, problem)
        prefix = tuple(self._tokenizer.encode_target(text.target_prefix)) if text.target_prefix else ()
        return SequenceSpec(source, request.plan.options_for(len(source), prefix, text.prefix_field))

    def _observed(self, response: AnyResponse) -> AnyResponse:
        # The client need not wait for it.
        asyncio.get_running_loop().call_soon(self._metrics.observe_response, response)
        return response


def _timings(admitted: Admitted, sequences: tuple[DecodingSequence, ...]) -> Timings:
    return Timings(
        tokenize_seconds=admitted.tokenized_seconds - admitted.started_seconds,
        queue_seconds=max((each.started_seconds - each.submitted_seconds for each in sequences), default=0.0),
        inference_seconds=max((each.finished_seconds - each.started_seconds for each in sequences), default=0.0),
        total_seconds=time.monotonic() - admitted.started_seconds,
    )


class SegmentTranslator:
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

    async def _split(self, request: TranslationRequest, reservation: Reservation) -> SegmentedRequest:
        fits = partial(self._translator.fits, request.source_prefix)
        split = SegmentedRequest.of(
            request, [split_text(request, text, fits) async for text in in_turns(request.texts)]
        )
        sentences = len(split.request.texts)
        if sentences > len(request.texts):
            self._limits.check_rows(f"{sentences} sentences", sentences, request.plan)
            await self._translator.widen(reservation, split.request)
        return split
