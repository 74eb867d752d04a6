"""`TranslateMany`: reads a stream of requests while few texts are unanswered, and sends each response when it is ready.

Each request has its own record, metrics and errors. Flow control slows down a client that sends too fast.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse, TranslateRequest
from dragoman.serve.errors import CancelledError, DrainingError, InvalidRequestError, ServiceError
from dragoman.serve.grpc import call
from dragoman.serve.grpc.answers import write_translation_message
from dragoman.serve.grpc.messages import Item
from dragoman.serve.grpc.waits import Waits
from dragoman.serve.observability.logs import RequestRecord, choose_request_id
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.translation.response import TranslationResponse

# Arguments: request, deadline on the monotonic clock, record, fairness key of the stream.
Translate = Callable[[TranslateRequest, float | None, RequestRecord, FairnessKey], Awaitable[TranslationResponse]]

_log = structlog.get_logger("dragoman")


class ManyStream:
    """One call of `TranslateMany`."""

    def __init__(
        self,
        context: call.Context,
        headers: Mapping[str, str],
        translate: Translate,
        metrics: ServiceMetrics,
        *,
        unanswered_texts: int,
        max_seconds: float,
        idle: Waits,
        draining: "asyncio.Future[None]",
    ) -> None:
        """Prepares the call; `run` serves it.

        The request ids start with the id in `headers`. The stream is read while fewer than `unanswered_texts` texts are
        unanswered, for at most `max_seconds`, until `draining` is done or the wait for a request ends by `idle`.
        """
        self._context = context
        self._headers = headers
        self._request_id = choose_request_id(headers.get(call.REQUEST_ID_KEY))
        self._translate = translate
        self._metrics = metrics
        self._limit_texts = unanswered_texts
        self._max_seconds = max_seconds
        self._idle = idle
        self._draining = draining
        self._stream = FairnessKey()
        self._read = 0
        self._reading: asyncio.Task[None] | None = None
        self._interrupted = False
        self._unanswered_texts = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        # gRPC accepts one message at a time.
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Serves until the client half-closes; ends with UNAVAILABLE if either side stops reading before."""
        started_seconds = time.monotonic()
        closing = asyncio.get_running_loop().call_later(self._max_seconds, self._end_reading)
        why = "the stream was idle or reached its maximum duration"
        try:
            # The client can see that its stream is accepted before it sends a request.
            await self._context.send_initial_metadata(((call.REQUEST_ID_KEY, self._request_id),))
            async with call.answering() as tasks:
                self._reading = tasks.create_task(self._read_items(tasks))
                # The callback also runs if a drain has begun already.
                self._draining.add_done_callback(self._end_reading)
        except CancelledError as unread:
            self._interrupted = True
            why = str(unread)
        finally:
            closing.cancel()
            self._draining.remove_done_callback(self._end_reading)
            seconds = round(time.monotonic() - started_seconds, 6)
            _log.info("stream", request_id=self._request_id, requests=self._read, duration_seconds=seconds)
        if self._interrupted:
            why = "shutting down" if self._draining.done() else why
            error = DrainingError(f"{why}; resend the unanswered requests on a new stream")
            await call.abort(self._context, error, call.trailers(self._request_id, error))
        self._context.set_trailing_metadata(call.trailers(self._request_id))

    def _end_reading(self, _: object = None) -> None:
        if self._reading is not None and not self._reading.done():
            self._interrupted = True
            self._reading.cancel()

    async def _read_items(self, answers: asyncio.TaskGroup) -> None:
        """Reads requests while there is room, and answers each in a task, until the end of the stream."""
        while True:
            await self._has_room.wait()
            finish = self._idle.begin(self._end_reading)
            try:
                item = await self._context.read()
            finally:
                finish()
            if not isinstance(item, Item):  # end of the stream
                return
            self._read += 1
            self._count(_texts(item))
            answers.create_task(self._answer(item, self._read))

    async def _answer(self, item: Item, number: int) -> None:
        request_id = f"{self._request_id}-{number}"
        message: TranslateManyResponse | None = None
        try:
            with call.recorded(self._metrics, "translate_many", request_id, self._headers) as record:
                response = await call.answer(item.message, self._translate_item, self._context, record)
            message = TranslateManyResponse(id=item.id, response=await write_translation_message(response))
        except DrainingError:
            # The client resends it to another server, like a request that was not read.
            self._interrupted = True
        except ServiceError as error:
            message = TranslateManyResponse(id=item.id, error=call.rich_status(error, request_id))
        if message is not None:
            async with self._writing:
                await call.send(self._context, message)
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
        return await self._translate(message.request, deadline_seconds, record, self._stream)

    def _count(self, texts: int) -> None:
        self._unanswered_texts += texts
        if self._unanswered_texts < self._limit_texts:
            self._has_room.set()
        else:
            self._has_room.clear()


def _texts(item: Item) -> int:
    # A request without texts counts as one, because it gets a response.
    return 1 if isinstance(item.message, InvalidRequestError) else max(1, len(item.message.request.text))
