"""`TranslateMany`: reads a stream of requests while few texts are unanswered, and sends each response when it is ready.

Requests that arrive together and differ only in their texts share a job. Each request has its own record, metrics and
errors. Flow control slows down a client that sends too fast.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import aclosing, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import structlog

from dragoman.protos.translation_pb2 import TranslateManyResponse
from dragoman.serve.edge.large_answers import LARGE_VALUES
from dragoman.serve.edge.load_shedding import Arrivals
from dragoman.serve.errors import CancelledError, DrainingError, InvalidRequestError, ServiceError
from dragoman.serve.grpc import call, messages
from dragoman.serve.grpc.answers import write_translation_message
from dragoman.serve.grpc.messages import Item, read_item
from dragoman.serve.grpc.waits import Waits
from dragoman.serve.observability.logs import HiddenErrors, RecordedRequest, choose_request_id
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.traces import tracing
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.translation.large_work import SMALL_TEXT_BYTES, split_parts, work_bytes
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import TranslationResponse

_log = structlog.get_logger("dragoman")


@dataclass(slots=True, eq=False)
class _Request:
    """A request of the stream until it is answered."""

    item: Item
    recorded: RecordedRequest

    @property
    def texts(self) -> int:
        """How many texts count; a request without texts counts as one, because it gets a response."""
        return max(1, len(self.item.texts)) * max(1, self.item.targets)

    @property
    def likeness(self) -> Hashable:
        """Equal for requests that may share a job."""
        item = self.item
        alone = isinstance(item.rest, InvalidRequestError) or item.targets or not 0 < len(item.texts) <= LARGE_VALUES
        return self if alone else item.rest


class ManyStream:
    """One call of `TranslateMany`."""

    def __init__(
        self,
        context: call.Context,
        dispatcher: Dispatcher,
        arrivals: Arrivals,
        metrics: ServiceMetrics,
        *,
        unanswered_texts: int,
        max_seconds: float,
        idle: Waits,
        draining: "asyncio.Future[None]",
    ) -> None:
        """Prepares the call; `run` serves it.

        The stream is read while fewer than `unanswered_texts` texts are unanswered, for at most `max_seconds`, until
        `draining` is done or the wait for a request ends by `idle`.
        """
        self._context = context
        self._deadline = call.DeadlineScope(context)
        headers = call.call_headers(context)
        # The request ids start with the id of the stream.
        self._request_id = choose_request_id(headers.get(call.REQUEST_ID_KEY))
        self._dispatcher = dispatcher
        self._arrivals = arrivals
        self._record = call.recording(metrics, "translate_many", headers, self._record_later)
        self._limit_texts = unanswered_texts
        self._max_seconds = max_seconds
        self._idle = idle
        self._draining = draining
        self._stream = FairnessKey()
        self._call_context = copy_context()
        self._read = 0
        self._receiving = False
        # Done at the end of the stream, or when the server stops to read it.
        self._read_all: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end_wait: Callable[[], object] | None = None
        self._arrived: list[_Request] = []
        self._unanswered = set[_Request]()
        self._interrupted = False
        self._unanswered_texts = 0
        # Answers, and the numbers of their texts. gRPC accepts one message at a time.
        self._unwritten, self._unwritten_texts = deque[TranslateManyResponse](), deque[int]()
        self._writing = False
        self._ended: list[Callable[[], None]] = []

    async def run(self) -> None:
        """Serves until the client half-closes; ends with UNAVAILABLE if either side stops reading before."""
        started_seconds = time.monotonic()
        closing = asyncio.get_running_loop().call_later(self._max_seconds, self._end_reading)
        why = "the stream was idle or reached its maximum duration"
        try:
            # The client can see that its stream is accepted before it sends a request.
            await self._context.send_initial_metadata(((call.REQUEST_ID_KEY, self._request_id),))
            async with call.answering() as self._tasks:
                # The callback also runs if a drain has begun already.
                self._draining.add_done_callback(self._end_reading)
                self._read_on()
                await self._read_all
        except CancelledError as unread:
            self._interrupted = True
            why = str(unread)
        finally:
            closing.cancel()
            self._stop_wait()
            self._draining.remove_done_callback(self._end_reading)
            self._record_unanswered()
            seconds = round(time.monotonic() - started_seconds, 6)
            _log.info("stream", request_id=self._request_id, requests=self._read, duration_seconds=seconds)
        if self._interrupted:
            why = "shutting down" if self._draining.done() else why
            error = DrainingError(f"{why}; resend the unanswered requests on a new stream")
            await call.abort(self._context, error, call.trailers(self._request_id, error))
        self._context.set_trailing_metadata(call.trailers(self._request_id))

    def _record_unanswered(self) -> None:
        """Records the requests that were to be answered when the stream was canceled."""
        self._deadline.records = tuple(request.recorded.record for request in self._unanswered)
        with suppress(asyncio.CancelledError), self._deadline:
            raise asyncio.CancelledError
        for request in self._unanswered:
            with suppress(asyncio.CancelledError), request.recorded:
                raise asyncio.CancelledError

    def _end_reading(self, _: object = None) -> None:
        if not self._read_all.done():
            self._interrupted = True
            self._read_all.set_result(None)

    def _read_on(self) -> None:
        """Reads the next request if there is room; the wait for it begins once those that have arrived are answered."""
        if self._read_all.done() or self._unanswered_texts >= self._limit_texts:
            return
        if not self._receiving:
            self._receiving = True
            self._context.receive(self._take, self._call_context)
        if not self._arrived and self._end_wait is None:
            self._end_wait = self._idle.begin(self._end_reading)

    def _stop_wait(self) -> None:
        if self._end_wait is not None:
            self._end_wait()
            self._end_wait = None

    def _take(self, item: object) -> None:
        """Takes a request and reads on, or notes the end of the stream."""
        self._receiving = False
        self._stop_wait()
        if self._read_all.done():
            return
        if not isinstance(item, Item):  # end of the stream
            self._read_all.set_result(None)
            return
        self._read += 1
        request = _Request(item, self._record(f"{self._request_id}-{self._read}"))
        self._unanswered.add(request)
        self._unanswered_texts += request.texts
        self._arrived.append(request)
        if len(self._arrived) == 1:
            self._tasks.create_task(self._answer_arrived())
        self._read_on()

    def _record_later(self, write_down: Callable[[], None]) -> None:
        """Writes down the records of requests that end together once their responses are sent."""
        self._ended.append(write_down)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._write_down)

    def _write_down(self) -> None:
        ended, self._ended = self._ended, []
        for write_down in ended:
            write_down()

    async def _answer_arrived(self) -> None:
        """Answers the requests that arrive together, in groups that may share a job and are no large work."""
        await self._arrivals.come_first()
        arrived, self._arrived = self._arrived, []
        self._read_on()
        alike = defaultdict[Hashable, list[_Request]](list)
        for request in arrived:
            alike[request.likeness].append(request)
        parts = [part for group in alike.values() for part in split_parts(group, SMALL_TEXT_BYTES, _bytes)]
        await self._run([self._answer_alike(part) for part in parts])

    async def _run(self, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Runs coroutines together: the first one in this task, each other one in a task of its own."""
        for other in coroutines[1:]:
            self._tasks.create_task(other)
        for first in coroutines[:1]:
            await first

    async def _answer_alike(self, requests: Sequence[_Request]) -> None:
        """Answers requests that may share a job; those without an outcome of the job alone."""
        if len(requests) > 1 and not tracing():
            with suppress(ServiceError), HiddenErrors(self._request_id):
                await self._share_job(requests)
        await self._run([self._answer_alone(request) for request in requests if request in self._unanswered])

    async def _share_job(self, requests: Sequence[_Request]) -> None:
        records = [request.recorded.record for request in requests]
        with call.DeadlineScope(self._context, *records) as deadline_seconds:
            texts = [text for request in requests for text in request.item.texts]
            common = self._read_request(requests[0].item, texts, deadline_seconds)
            shares = [len(request.item.texts) for request in requests]
            async with aclosing(self._dispatcher.translate_shares(common, shares, records)) as parts:
                async for outcomes in parts:
                    for number, outcome in outcomes:
                        self._answer_part(requests[number], outcome)

    async def _translate(self, request: _Request) -> TranslationResponse:
        item, record = request.item, request.recorded.record
        with call.DeadlineScope(self._context, record) as deadline_seconds:
            requested = self._read_request(item, item.texts, deadline_seconds)
            return await self._dispatcher.translate(requested, record)

    def _read_request(self, item: Item, texts: Sequence[str], deadline_seconds: float | None) -> TranslateRequest:
        """Returns the request of an item with some texts; raises InvalidRequestError if a field is invalid."""
        if isinstance(item.rest, InvalidRequestError):
            raise item.rest
        request, seconds = read_item(item.rest)
        if seconds is not None:
            until_seconds = time.monotonic() + seconds
            deadline_seconds = until_seconds if deadline_seconds is None else min(deadline_seconds, until_seconds)
        return request._replace(text=texts, deadline_seconds=deadline_seconds, fairness_key=self._stream)

    async def _answer_alone(self, request: _Request) -> None:
        """Translates and records a request, and lets its response be written."""
        message = None
        try:
            with request.recorded:
                response = await self._translate(request)
            message = TranslateManyResponse(id=request.item.id)
            await write_translation_message(response, message.response)
        except ServiceError as error:
            message = self._failure(request, error)
        finally:
            self._unanswered.discard(request)
        self._write(request, message)

    def _answer_part(self, request: _Request, outcome: TranslationResponse | ServiceError) -> None:
        """Records a request of a shared job, and lets its response be written, which is small."""
        try:
            with request.recorded:
                if isinstance(outcome, ServiceError):
                    raise outcome
            message = TranslateManyResponse(id=request.item.id)
            messages.translate_response(outcome, message.response)
            self._write(request, message)
        except ServiceError as error:
            self._write(request, self._failure(request, error))
        self._unanswered.discard(request)

    def _failure(self, request: _Request, error: ServiceError) -> TranslateManyResponse | None:
        """Returns the response of a request that failed; None: its client resends it to another server."""
        if isinstance(error, DrainingError):
            self._interrupted = True
            return None
        status = call.rich_status(error, request.recorded.record.request_id)
        return TranslateManyResponse(id=request.item.id, error=status)

    def _write(self, request: _Request, message: TranslateManyResponse | None) -> None:
        if message is None:
            self._unanswered_texts -= request.texts
            return
        self._unwritten.append(message)
        self._unwritten_texts.append(request.texts)
        if not self._writing:
            self._writing = True
            self._tasks.create_task(self._write_answers())

    async def _write_answers(self) -> None:
        """Writes all answers that are ready."""
        while self._unwritten:
            await call.send_all(self._context, self._unwritten, self._note_written)
        self._writing = False

    def _note_written(self) -> None:
        self._unanswered_texts -= self._unwritten_texts.popleft()
        self._read_on()


def _bytes(request: _Request) -> int:
    return work_bytes(request.item.texts)
