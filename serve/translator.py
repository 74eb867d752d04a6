"""The one use case behind every interface: tokenize, submit, await, answer and time a valid request.

It lives in the event loop; the engines live in threads of their own. `run_sequences` is the bridge between the two,
used by the translator and by the warm-up. Nothing here knows a protocol or ONNX Runtime.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from model.text_tokenizer import TextTokenizer
from serve.answer import ScoreResponse, Timings, TranslationResponse
from serve.answer_writer import AnswerWriter
from serve.errors import DeadlineExceededError, InvalidRequestError
from serve.metrics import Metrics
from serve.options import SearchOptions
from serve.readiness import Readiness
from serve.request import TextRequest, TranslationRequest
from serve.scheduler import Scheduler
from serve.sequence import Sequence
from serve.target_vocabulary import TargetVocabulary

# A text of this length takes well under a millisecond: the event loop looks at other requests about that often, and a
# hop to another thread, which costs more than a usual sentence, is never needed.
CHARACTERS_PER_TURN = 10_000

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse)


class Wish(NamedTuple):
    """What one sequence is made of: source tokens, prefix and suffix included, and how it is searched for."""

    source_ids: tuple[int, ...]
    options: SearchOptions


class Searched(NamedTuple):
    """A request whose sequences are finished, one for each text; times are of the monotonic clock."""

    sequences: tuple[Sequence, ...]
    started_seconds: float
    tokenized_seconds: float


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
        default_timeout_seconds: float,
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
            default_timeout_seconds: how long a request may take whose client sets no deadline.
        """
        self._tokenizer = tokenizer
        self._writer = AnswerWriter(tokenizer, vocabulary)
        self._scheduler = scheduler
        self._readiness = readiness
        self._metrics = metrics
        self._source_suffix = source_suffix
        self._max_source_tokens = max_source_tokens
        self._default_timeout_seconds = default_timeout_seconds

    async def translate(self, request: TranslationRequest) -> TranslationResponse:
        """Translates every text of the request, or none. Cancelling the call frees its slots within one step.

        Raises:
            ServiceError: why there is no translation.
        """
        searched = await self._search(request)
        token_scores = request.plan.token_scores
        translations = [self._writer.translation(each, token_scores=token_scores) for each in searched.sequences]
        return self._observed(TranslationResponse(tuple(translations), _timings(searched)))

    async def score(self, request: TranslationRequest) -> ScoreResponse:
        """Scores the translation of every text of the request, all of which is forced, or none; as `translate`.

        Raises:
            ServiceError: why there is no score.
        """
        searched = await self._search(request)
        scores = tuple(map(self._writer.score, searched.sequences))
        return self._observed(ScoreResponse(scores, _timings(searched)))

    async def _search(self, request: TranslationRequest) -> Searched:
        self._readiness.check()
        started_seconds = time.monotonic()
        deadline_seconds = request.deadline_seconds
        if deadline_seconds is None:
            deadline_seconds = started_seconds + self._default_timeout_seconds
        wishes = await self._tokenize(request)
        tokenized_seconds = time.monotonic()
        sequences = await run_sequences(self._scheduler, wishes, deadline_seconds=deadline_seconds)
        return Searched(sequences, started_seconds, tokenized_seconds)

    async def _tokenize(self, request: TranslationRequest) -> list[Wish]:
        wishes: list[Wish] = []
        characters = 0
        for text in request.texts:
            wishes.append(self._wish(request, text))
            characters += len(text.text) + len(text.target_prefix)
            if characters >= CHARACTERS_PER_TURN:
                characters = 0
                await asyncio.sleep(0)
        return wishes

    def _wish(self, request: TranslationRequest, text: TextRequest) -> Wish:
        source = (*request.source_prefix, *self._tokenizer.encode(text.text), *self._source_suffix)
        if len(source) > self._max_source_tokens:
            problem = f"{len(source)} tokens, expected at most {self._max_source_tokens}"
            raise InvalidRequestError(text.text_field, problem)
        prefix = tuple(self._tokenizer.encode_target(text.target_prefix)) if text.target_prefix else ()
        return Wish(source, request.plan.options_for(len(source), prefix, text.prefix_field))

    def _observed(self, response: AnyResponse) -> AnyResponse:
        self._metrics.observe_response(response)
        return response


def _timings(searched: Searched) -> Timings:
    sequences = searched.sequences
    return Timings(
        tokenize_seconds=searched.tokenized_seconds - searched.started_seconds,
        queue_seconds=max(sequence.started_seconds - sequence.submitted_seconds for sequence in sequences),
        inference_seconds=max(sequence.finished_seconds - sequence.started_seconds for sequence in sequences),
        total_seconds=time.monotonic() - searched.started_seconds,
    )


async def run_sequences(
    scheduler: Scheduler,
    wishes: Iterable[Wish],
    *,
    deadline_seconds: float | None,
) -> tuple[Sequence, ...]:
    """Runs one sequence for each wish, all or none, and returns them finished. The call is one flow.

    Args:
        scheduler: takes the sequences.
        wishes: what they are made of.
        deadline_seconds: when the client stops waiting (monotonic clock); None: never.

    Raises:
        ServiceError: the first one that any of the sequences ended with; the others are cancelled.
    """
    loop = asyncio.get_running_loop()
    all_finished: asyncio.Future[None] = loop.create_future()
    unfinished = 0

    def count(sequence: Sequence) -> None:
        nonlocal unfinished
        unfinished -= 1
        if all_finished.done():
            return
        if sequence.error is not None:
            all_finished.set_exception(sequence.error)
        elif unfinished == 0:
            all_finished.set_result(None)

    def on_finish(sequence: Sequence) -> None:
        # Called by an engine, which must not fail because the loop of a cancelled request has ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(count, sequence)

    flow = object()
    sequences = tuple(Sequence(*wish, deadline_seconds, on_finish, flow=flow) for wish in wishes)
    unfinished = len(sequences)
    scheduler.submit(sequences)
    try:
        # The engine keeps the deadline too, but an engine that hangs must not make the client wait longer.
        async with asyncio.timeout_at(deadline_seconds):
            await all_finished
    except TimeoutError:
        raise DeadlineExceededError("the deadline passed before the translation was complete") from None
    except BaseException:
        for sequence in sequences:
            sequence.cancelled = True
        raise
    return sequences
