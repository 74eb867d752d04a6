"""A stream of requests: reads as far as it may, answers each as soon as it is ready, and ends when all are answered.

Each request is one of its own to records, metrics and errors; the stream is only how they come. What flow control does
with it, the client sees as a stream that is read slowly. Called by `serve.api.grpc_api` only.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import grpc.aio
import structlog

from protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse, TranslateRequest
from serve.api.grpc_call import REQUEST_ID_KEY, Context, abort, answer, recorded, rich_status, trailers
from serve.api.grpc_messages import Item, translate_response
from serve.errors import DrainingError, InvalidRequestError, ServiceError
from serve.observability.logs import RequestRecord, choose_request_id
from serve.observability.metrics import ServiceMetrics
from serve.translation.request import FairnessKey
from serve.translation.response import TranslationResponse

# Given a request, its deadline on the monotonic clock, its record and the stream that it belongs to.
Translate = Callable[[TranslateRequest, float | None, RequestRecord, FairnessKey], Awaitable[TranslationResponse]]

_log = structlog.get_logger("dragoman")


class ManyStream:
    """One call of TranslateMany."""

    def __init__(
        self,
        context: Context,
        headers: Mapping[str, str],
        translate: Translate,
        metrics: ServiceMetrics,
        *,
        unanswered_texts: int,
        longest_seconds: float,
        draining: asyncio.Event,
    ) -> None:
        """Begins the stream; `run` serves it.

        Args:
            context: of the call.
            headers: of the call; the ids of its requests begin with that of the call.
            translate: translates one request.
            metrics: counts every request.
            unanswered_texts: the stream is read on only while fewer are unanswered.
            longest_seconds: how long it is read. A connection does not last for ever, and what was read is answered.
            draining: set when the server wants to read no more.
        """
        self._context = context
        self._headers = headers
        self._request_id = choose_request_id(headers.get(REQUEST_ID_KEY))
        self._translate = translate
        self._metrics = metrics
        self._limit_texts = unanswered_texts
        self._longest_seconds = longest_seconds
        self._draining = draining
        self._flow = FairnessKey()
        self._read = 0
        self._interrupted = False
        self._unanswered_texts = 0
        self._room = asyncio.Event()
        self._room.set()
        # gRPC takes one message at a time.
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Answers until the client half-closes; ends with UNAVAILABLE if the server reads no more before that."""
        started_seconds = time.monotonic()
        closing = asyncio.create_task(self._wait_closing())
        try:
            # So that the client knows that it is let in before it sends anything.
            await self._context.send_initial_metadata(((REQUEST_ID_KEY, self._request_id),))
            async with asyncio.TaskGroup() as answers:
                while (item := await self._next(closing)) is not None:
                    answers.create_task(self._answer(item, self._read))
        finally:
            closing.cancel()
            seconds = round(time.monotonic() - started_seconds, 6)
            _log.info("stream", request_id=self._request_id, requests=self._read, duration_seconds=seconds)
        if self._interrupted:
            why = "shutting down" if self._draining.is_set() else "this stream has lasted long enough"
            error = DrainingError(f"{why}, send what has no answer on another one")
            await abort(self._context, error, trailers(self._request_id, error))
        self._context.set_trailing_metadata(trailers(self._request_id))

    async def _wait_closing(self) -> None:
        """Waits until nothing is to be read any more."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._draining.wait(), self._longest_seconds)

    async def _next(self, closing: asyncio.Task[None]) -> Item | None:
        """Returns the next request as soon as there is room for it; None: there will be none."""
        await self._room.wait()
        reading = asyncio.ensure_future(self._context.read())
        try:
            await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                self._interrupted = True
                return None
            item = reading.result()
        finally:
            reading.cancel()
        if not isinstance(item, Item):  # the end of the stream
            return None
        self._read += 1
        self._count(_texts(item))
        return item

    async def _answer(self, item: Item, number: int) -> None:
        request_id = f"{self._request_id}-{number}"
        message: TranslateManyResponse | None = None
        try:
            with recorded(self._metrics, "translate_many", request_id, self._headers) as record:
                response = await answer(item.message, self._translate_item, self._context, record)
            message = TranslateManyResponse(id=item.id, response=translate_response(response))
        except DrainingError:
            # The client sends it to another server, as what was not read at all.
            self._interrupted = True
        except ServiceError as error:
            message = TranslateManyResponse(id=item.id, error=rich_status(error, request_id))
        if message is not None:
            # Whoever went away is told nothing; gRPC cancels the call by itself.
            with suppress(grpc.aio.BaseError):
                async with self._writing:
                    await self._context.write(message)
        self._count(-_texts(item))

    async def _translate_item(
        self, message: TranslateManyRequest, deadline_seconds: float | None, record: RequestRecord
    ) -> TranslationResponse:
        if message.HasField("timeout_seconds"):
            seconds = message.timeout_seconds
            if not (math.isfinite(seconds) and seconds > 0):
                raise InvalidRequestError("timeout_seconds", f"{seconds}, expected a finite number above 0")
            deadline_seconds = min(
                math.inf if deadline_seconds is None else deadline_seconds, time.monotonic() + seconds
            )
        return await self._translate(message.request, deadline_seconds, record, self._flow)

    def _count(self, texts: int) -> None:
        self._unanswered_texts += texts
        if self._unanswered_texts < self._limit_texts:
            self._room.set()
        else:
            self._room.clear()


def _texts(item: Item) -> int:
    # A request without texts is one all the same: its answer has to be written.
    return 1 if isinstance(item.message, InvalidRequestError) else max(1, len(item.message.request.text))
