"""Translates the segments of jobs with the served models, behind all requests of clients.

The segments of a job wait for room like those of a stream. They take at most half of the slots, so that a request finds
free ones.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from serve.documents.document import Segment
from serve.documents.inline import IGNORE_TAGS, NON_SPLITTING_TAGS
from serve.documents.job import Job, JobOptions
from serve.errors import (
    DeadlineExceededError,
    DeadlineUnmeetableError,
    InvalidRequestError,
    NotReadyError,
    QueueFullError,
    QueueTimeoutError,
)
from serve.languages.detector import MOST_CHARACTERS
from serve.observability.logs import RequestRecord
from serve.registry.dispatcher import Dispatcher
from serve.registry.registry import ModelRegistry
from serve.registry.route import find_route, find_sources
from serve.scheduler.sequence import FairnessKey
from serve.translation.detection import best_guess, detect_languages
from serve.translation.fields import shown
from serve.translation.request import AUTO, TranslateRequest

# Lower than that of every request.
PRIORITY = -1
ATTEMPT_SECONDS = 120.0
PAUSE_SECONDS = 1.0
# A job waits until these are over.
_PASSING = (QueueFullError, QueueTimeoutError, DeadlineUnmeetableError, DeadlineExceededError, NotReadyError)


class SegmentTranslator:
    """Translates segments with the models of a server."""

    def __init__(self, dispatcher: Dispatcher, models: ModelRegistry) -> None:
        self._dispatcher = dispatcher
        self._models = models
        slots = min(model.pipeline.settings.total_slots for model in models)
        self.in_flight = max(1, slots // 2)
        self._turns = asyncio.Semaphore(self.in_flight)

    def check(self, request: TranslateRequest) -> None:
        """Checks the languages and the model of a request.

        Raises:
            ServiceError: if no model has the direction.
        """
        if request.source_language == AUTO:
            find_sources(request, self._models.offers)
        else:
            find_route(request, self._models.offers)

    async def begin(self, job: Job, segments: Sequence[Segment]) -> Callable[[Segment], Awaitable[str]]:
        """Returns a function that translates one segment; the source language is that of the whole document.

        Raises:
            ServiceError: if no model has the direction. The function raises it too.
        """
        asked = request_for(job.source_language, job.target_language, job.options)
        self.check(asked)
        if job.source_language == AUTO:
            source = await self._detect(asked, segments)
            if source == job.target_language:
                return _unchanged
            asked = replace(asked, source_language=source)
        asked = replace(asked, priority=PRIORITY, fairness_key=FairnessKey())
        record = RequestRecord("document")

        async def translate(segment: Segment) -> str:
            request = replace(asked, text=(segment.text,), format=segment.format)
            if segment.format == "xml":
                request = replace(request, ignore_tags=IGNORE_TAGS, non_splitting_tags=NON_SPLITTING_TAGS)
            async with self._turns:
                return await self._translate(request, record)

        return translate

    async def _translate(self, request: TranslateRequest, record: RequestRecord) -> str:
        while True:
            deadline_seconds = time.monotonic() + ATTEMPT_SECONDS
            try:
                response = await self._dispatcher.translate(replace(request, deadline_seconds=deadline_seconds), record)
            except _PASSING:
                await asyncio.sleep(PAUSE_SECONDS)
            except InvalidRequestError as error:
                problem = f"{error.problem} (of the document's text {shown(request.text[0])})"
                raise InvalidRequestError(error.field.removesuffix("[0]"), problem) from error
            else:
                return response.translations[0].text

    async def _detect(self, asked: TranslateRequest, segments: Sequence[Segment]) -> str:
        target, sources = find_sources(asked, self._models.offers)
        text, characters = list[str](), 0
        for segment in segments:
            if characters > MOST_CHARACTERS:
                break
            text.append(segment.text)
            characters += len(segment.text)
        deadline_seconds = time.monotonic() + ATTEMPT_SECONDS
        candidates = (*sources, target)
        (found,) = await detect_languages(["\n".join(text)], candidates, deadline_seconds, markup=True)
        return best_guess(found, candidates).code


def request_for(source_language: str, target_language: str, options: JobOptions) -> TranslateRequest:
    """Returns the request of a job, without a text."""
    return TranslateRequest(
        source_language=source_language,
        target_language=target_language,
        **options.model_dump(exclude={"retranslate"}),
    )


async def _unchanged(segment: Segment) -> str:
    return segment.text
