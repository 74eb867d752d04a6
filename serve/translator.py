"""The one use case behind every interface: tokenize, submit, await, detokenize and time a valid request.

It lives in the event loop; the engines live in threads of their own. `run_sequences` is the bridge between the two,
used by the translator and by the warm-up. Nothing here knows a protocol or ONNX Runtime.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress

from model.text_tokenizer import TextTokenizer
from serve.errors import DeadlineExceededError, InvalidRequestError
from serve.lifecycle import Lifecycle
from serve.metrics import Metrics
from serve.options import SearchOptions
from serve.request import Timings, Translation, TranslationRequest, TranslationResponse
from serve.scheduler import Scheduler
from serve.sequence import Sequence

# A text of this length takes well under a millisecond: the event loop looks at other requests about that often, and a
# hop to another thread, which costs more than a usual sentence, is never needed.
CHARACTERS_PER_TURN = 10_000


class Translator:
    """Translates requests with one model."""

    def __init__(
        self,
        *,
        tokenizer: TextTokenizer,
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
            scheduler: takes the sequences.
            lifecycle: decides whether requests are let in.
            metrics: gets counts and timings of each translated request.
            source_suffix: tokens after every source.
            max_source_tokens: the longest source that the model reads, prefix and suffix included.
            default_timeout_seconds: how long a request may take whose client sets no deadline.
        """
        self._tokenizer = tokenizer
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
        self._lifecycle.check_admission()
        started_seconds = time.monotonic()
        deadline_seconds = request.deadline_seconds
        if deadline_seconds is None:
            deadline_seconds = started_seconds + self._default_timeout_seconds
        sources = await self._tokenize(request)
        tokenize_seconds = time.monotonic() - started_seconds
        sequences = await run_sequences(
            self._scheduler,
            sources,
            SearchOptions(max_target_tokens=request.max_target_tokens),
            deadline_seconds=deadline_seconds,
        )
        translations = tuple(self._detokenize(sequence) for sequence in sequences)
        timings = Timings(
            tokenize_seconds=tokenize_seconds,
            queue_seconds=max(sequence.started_seconds - sequence.submitted_seconds for sequence in sequences),
            inference_seconds=max(sequence.finished_seconds - sequence.started_seconds for sequence in sequences),
            total_seconds=time.monotonic() - started_seconds,
        )
        response = TranslationResponse(translations, timings)
        self._metrics.observe_response(response)
        return response

    async def _tokenize(self, request: TranslationRequest) -> list[tuple[int, ...]]:
        sources: list[tuple[int, ...]] = []
        characters = 0
        for index, text in enumerate(request.texts):
            source = (*request.source_prefix, *self._tokenizer.encode(text), *self._source_suffix)
            if len(source) > self._max_source_tokens:
                problem = f"{len(source)} tokens, expected at most {self._max_source_tokens}"
                raise InvalidRequestError(f"text[{index}]", problem)
            sources.append(source)
            characters += len(text)
            if characters >= CHARACTERS_PER_TURN:
                characters = 0
                await asyncio.sleep(0)
        return sources

    def _detokenize(self, sequence: Sequence) -> Translation:
        best = sequence.best
        return Translation(
            text=self._tokenizer.decode(best.target_ids),
            score=best.score,
            finish_reason=best.finish_reason,
            source_tokens=len(sequence.source_ids),
            target_tokens=len(best.target_ids),
        )


async def run_sequences(
    scheduler: Scheduler,
    sources: Iterable[tuple[int, ...]],
    options: SearchOptions,
    *,
    deadline_seconds: float | None,
) -> tuple[Sequence, ...]:
    """Runs one sequence for each source, all or none, and returns them finished. The call is one flow.

    Args:
        scheduler: takes the sequences.
        sources: source tokens, prefix and suffix included.
        options: how each of them is searched for.
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
    sequences = tuple(Sequence(source, options, deadline_seconds, on_finish, flow=flow) for source in sources)
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
