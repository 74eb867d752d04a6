"""Translates the segments of jobs with the served models, behind all requests of clients.

The segments of a job wait for room like those of a stream. They take at most half of the slots, so that a request finds
free ones.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from dragoman.serve.documents.document import Segment
from dragoman.serve.documents.inline import TAGS
from dragoman.serve.documents.job import Job, JobOptions
from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents.reader import DocumentText
from dragoman.serve.documents.translation import TranslateParts
from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.parameters import ParameterReader
from dragoman.serve.errors import (
    DeadlineExceededError,
    DeadlineUnmeetableError,
    DrainingError,
    InvalidRequestError,
    NotReadyError,
    QueueFullError,
    QueueTimeoutError,
    ServiceError,
)
from dragoman.serve.languages.detector import MAX_CHARACTERS
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.registry.route import equal_languages
from dragoman.serve.registry.targets import numbered
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.translation.detection import best_guess, detect_languages
from dragoman.serve.translation.divided import divide_window, translate_divided
from dragoman.serve.translation.fields import shown
from dragoman.serve.translation.request import AUTO, TranslateRequest

# Lower than that of every request, whose key has a priority of at least -1,000; a key of 1,000 adds to it.
PRIORITY = -2001
ATTEMPT_SECONDS = 120.0
PAUSE_SECONDS = 1.0
# A job waits until these are over.
_PASSING = (QueueFullError, QueueTimeoutError, DeadlineUnmeetableError, DeadlineExceededError, NotReadyError)


class _InterruptedError(Exception):
    """The job is canceled: another worker does it again, and its characters count then."""


class SegmentTranslator:
    """Translates segments with the models of a server."""

    def __init__(self, dispatcher: Dispatcher, models: ModelRegistry, authenticator: Authenticator) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        slots = min(model.settings.total_slots for model in models)
        self.in_flight = max(1, slots // 2)
        requests, _ = divide_window(self.in_flight)
        self._free_requests = asyncio.Semaphore(requests)

    def check(self, request: TranslateRequest, record: RequestRecord) -> list[str]:
        """Returns the targets of a request; raises ServiceError if no permitted model translates into one of them."""
        several = bool(request.target_languages)
        parts = self._dispatcher.split_targets(request, record) if several else [request]
        for number, part in enumerate(parts):
            try:
                self._dispatcher.find_languages(part, record)
            except ServiceError as error:
                raise (numbered(error, number) if several else error) from error
        return [part.target_language for part in parts]

    @asynccontextmanager
    async def begin(self, job: Job, document: DocumentText) -> AsyncIterator[TranslateParts]:
        """Yields a function that translates segments of one format; the source language is that of the whole document.

        The job is one request of its API key, whose characters count if the block succeeds.

        Raises:
            RateLimitedError: if the key has too many requests now.
            ServiceError: if the job exceeds a limit or no model has the direction. The function raises it too.
        """
        record = RequestRecord("document", account=self._authenticator.find_account(job.account))
        template = request_for(job.source_language, job.target_language, job.options)
        target, sources = self._dispatcher.find_languages(template, record)
        if job.source_language == AUTO or len(sources) > 1:
            source = await _detect(document.segments, (*sources, target))
            if source == target:
                raise equal_languages(target)
            template = template._replace(source_language=source, source_detected=True)
        template = template._replace(priority=PRIORITY, fairness_key=FairnessKey())
        try:
            async with self._charge(record, document.characters):
                try:
                    yield partial(self._translate_segments, template, record)
                except asyncio.CancelledError:
                    raise _InterruptedError from None
        except _InterruptedError:
            raise asyncio.CancelledError from None

    @asynccontextmanager
    async def _charge(self, record: RequestRecord, characters: int) -> AsyncIterator[None]:
        """Counts the job for its key; waits while the server is not ready."""
        async with AsyncExitStack() as stack:
            while True:
                try:
                    await stack.enter_async_context(self._dispatcher.accept(record, characters))
                except (NotReadyError, DrainingError):
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    break
            yield

    async def _translate_segments(
        self, template: TranslateRequest, record: RequestRecord, segments: Sequence[Segment]
    ) -> list[str]:
        request = template._replace(format=segments[0].format)
        if request.format == "xml":
            request = request._replace(**TAGS)
        translate = partial(self._translate, request, record)
        texts = [segment.text for segment in segments]
        async with self._free_requests:
            return [found async for found in translate_divided(translate, texts, _is_invalid)]

    async def _translate(self, template: TranslateRequest, record: RequestRecord, texts: Sequence[str]) -> list[str]:
        while True:
            deadline_seconds = time.monotonic() + ATTEMPT_SECONDS
            request = template._replace(text=texts, deadline_seconds=deadline_seconds)
            try:
                response = await self._dispatcher.translate_accepted(request, record)
            except _PASSING:
                await asyncio.sleep(PAUSE_SECONDS)
            except InvalidRequestError as error:
                problem = f"{error.problem} (of the document's text {shown(texts[0])})"
                raise InvalidRequestError(error.field.removesuffix("[0]"), problem) from error
            else:
                return [translation.text for translation in response.translations]


def _is_invalid(error: Exception) -> bool:
    return isinstance(error, InvalidRequestError)


async def _detect(segments: Sequence[Segment], candidates: Sequence[str]) -> str:
    text, characters = list[str](), 0
    for segment in segments:
        if characters > MAX_CHARACTERS:
            break
        text.append(segment.text)
        characters += len(segment.text)
    deadline_seconds = time.monotonic() + ATTEMPT_SECONDS
    (found,) = await detect_languages(["\n".join(text)], candidates, deadline_seconds, markup=True)
    return best_guess(found, candidates).code


def request_for(source_language: str, target_language: str, options: JobOptions) -> TranslateRequest:
    """Returns the request of a job, without a text."""
    return TranslateRequest(
        source_language=source_language,
        target_language=target_language,
        **options.model_dump(exclude=set(options.of_document)),
    )


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """The jobs of documents, None: documents are refused, what checks languages and models, and reads large bodies."""

    jobs: DocumentJobs | None
    translator: SegmentTranslator
    reader: ParameterReader
