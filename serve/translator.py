"""The one use case behind every interface: tokenize, submit, await, answer and time a valid request.

It lives in the event loop; `serve.submission` leads from there to the engines, which live in threads of their own.
Nothing here knows a protocol or ONNX Runtime.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import NamedTuple, TypeVar

from model.text_tokenizer import TextTokenizer
from serve.answer import ScoreResponse, Timings, TranslationDelta, TranslationResponse
from serve.answer_writer import AnswerWriter
from serve.errors import InvalidRequestError
from serve.hypothesis import Hypothesis
from serve.lifecycle import Lifecycle
from serve.metrics import Metrics
from serve.request import TextRequest, TranslationRequest
from serve.scheduler import Scheduler
from serve.sequence import Sequence, Wish
from serve.submission import Submission
from serve.target_vocabulary import TargetVocabulary
from serve.text_stream import TextStream

# A text of this length takes well under a millisecond: the event loop looks at other requests about that often, and a
# hop to another thread, which costs more than a usual sentence, is never needed.
CHARACTERS_PER_TURN = 10_000

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse)


class Tokenized(NamedTuple):
    """A request that was let in, with a wish for each text; times are of the monotonic clock."""

    wishes: list[Wish]
    deadline_seconds: float
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
        lifecycle: Lifecycle,
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
            lifecycle: decides whether requests are let in.
            metrics: gets counts and timings of each answered request.
            source_suffix: tokens after every source.
            max_source_tokens: the longest source that the model reads, prefix and suffix included.
            default_timeout_seconds: how long a request may take whose client sets no deadline.
        """
        self._tokenizer = tokenizer
        self._writer = AnswerWriter(tokenizer, vocabulary)
        self._scheduler = scheduler
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._source_suffix = source_suffix
        self._max_source_tokens = max_source_tokens
        self._default_timeout_seconds = default_timeout_seconds

    async def translate(self, request: TranslationRequest) -> TranslationResponse:
        """Translates every text of the request, or none. Cancelling the call frees its slots within one step.

        Raises:
            ServiceError: why there is no translation.
        """
        tokenized = await self._admit(request)
        return self._translated(request, tokenized, await self._search(tokenized))

    async def score(self, request: TranslationRequest) -> ScoreResponse:
        """Scores the translation of every text of the request, all of which is forced, or none; as `translate`.

        Raises:
            ServiceError: why there is no score.
        """
        tokenized = await self._admit(request)
        sequences = await self._search(tokenized)
        scores = tuple(map(self._writer.score, sequences))
        return self._observed(ScoreResponse(scores, _timings(tokenized, sequences)))

    async def stream(self, request: TranslationRequest) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        What grows while nobody takes it comes in one piece. A translation that is searched for with several hypotheses
        comes in one piece, too, since nobody knows before its end which of them it is going to be. Closing the
        generator frees the slots within one step (`contextlib.aclosing`).

        Raises:
            ServiceError: why there is no translation, at any moment.
        """
        tokenized = await self._admit(request)
        with self._submission(tokenized, streamed=True) as submission:
            texts = [TextStream(self._tokenizer) for _ in submission.sequences]
            while not submission.done:
                await submission.change()
                for place, ended in submission.news():
                    if ended:
                        yield self._last_delta(place, texts[place], submission.sequences[place].best)
                    else:
                        target_ids = submission.tokens[place].copy()  # the engine goes on writing
                        if text := texts[place].grow(target_ids):
                            yield TranslationDelta(text_index=place, text=text, target_tokens=len(target_ids))
        yield self._translated(request, tokenized, submission.sequences)

    async def _admit(self, request: TranslationRequest) -> Tokenized:
        self._lifecycle.check_admission()
        started_seconds = time.monotonic()
        deadline_seconds = request.deadline_seconds
        if deadline_seconds is None:
            deadline_seconds = started_seconds + self._default_timeout_seconds
        wishes = await self._tokenize(request)
        return Tokenized(wishes, deadline_seconds, started_seconds, time.monotonic())

    def _submission(self, tokenized: Tokenized, *, streamed: bool = False) -> Submission:
        return Submission(
            self._scheduler, tokenized.wishes, deadline_seconds=tokenized.deadline_seconds, streamed=streamed
        )

    async def _search(self, tokenized: Tokenized) -> tuple[Sequence, ...]:
        with self._submission(tokenized) as submission:
            await submission.finish()
        return submission.sequences

    def _translated(
        self, request: TranslationRequest, tokenized: Tokenized, sequences: tuple[Sequence, ...]
    ) -> TranslationResponse:
        token_scores = request.plan.token_scores
        translations = tuple(self._writer.translation(each, token_scores=token_scores) for each in sequences)
        return self._observed(TranslationResponse(translations, _timings(tokenized, sequences)))

    def _last_delta(self, text_index: int, stream: TextStream, best: Hypothesis) -> TranslationDelta:
        return TranslationDelta(
            text_index=text_index,
            text=stream.end(self._tokenizer.decode(best.target_ids)),
            target_tokens=len(best.target_ids),
            finish_reason=best.finish_reason,
        )

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


def _timings(tokenized: Tokenized, sequences: tuple[Sequence, ...]) -> Timings:
    return Timings(
        tokenize_seconds=tokenized.tokenized_seconds - tokenized.started_seconds,
        queue_seconds=max(sequence.started_seconds - sequence.submitted_seconds for sequence in sequences),
        inference_seconds=max(sequence.finished_seconds - sequence.started_seconds for sequence in sequences),
        total_seconds=time.monotonic() - tokenized.started_seconds,
    )
