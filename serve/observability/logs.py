"""Structured logs on stderr, and the one line and the one count that every request leaves behind.

A request's line holds its id, its outcome, its token counts and where its time went, and its text only if the operator
asks for that. Both interfaces wrap each request in `record_request`, which also turns an unexpected exception into an
`InternalError`.
"""

import asyncio
import logging
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import structlog

from serve.errors import CancelledError, InternalError, ServiceError
from serve.observability.metrics import NO_MODEL, OK, Method, Protocol, ServiceMetrics
from serve.observability.traces import Trace, begin_trace
from serve.translation.response import Response, TranslationResponse

LogFormat = Literal["json", "console"]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_REQUEST_ID_BYTES = 16
_log = structlog.get_logger("dragoman")
_texts_wanted = False


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request when it ends.

    Attributes:
        request_id: the client's id, or one made here.
        outcome: `ok`, or the `reason` of the error that it was answered with.
        model: the one that answers it; empty: it came to none.
        pivot_model: the one that comes before it, if there is a pivot.
        direction: from what into what it is to be translated, as in `en-de`; empty as long as nobody knows.
        source_texts: what is to be translated.
        response: the answer, if there is one.
    """

    request_id: str
    outcome: str = OK
    model: str = NO_MODEL
    pivot_model: str = NO_MODEL
    direction: str = ""
    source_texts: Sequence[str] = ()
    response: Response | None = None


def configure_logs(log_format: LogFormat, *, texts: bool = False) -> None:
    """Sends structlog and the standard library's logging to stderr, one line for each event.

    Args:
        log_format: for machines or for people.
        texts: whether the line of a request holds its texts and their translations.
    """
    global _texts_wanted  # noqa: PLW0603 - as the rest, for the whole process
    _texts_wanted = texts
    common: list[Any] = [structlog.stdlib.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if log_format == "json":
        # Plain tracebacks: structlog's richer ones hold local variables, and those hold text of clients.
        renderers: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        renderers = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*common, *renderers],
        # Straight to the stream: the detour through the standard library doubles the cost of a request's line.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    to_line = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=to_line))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # Its start and stop lines repeat ours.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def choose_request_id(given: str | None) -> str:
    """Returns the client's id if it is 1 to 128 visible ASCII characters, and a new one otherwise."""
    if given and _REQUEST_ID.fullmatch(given):
        return given
    # It is a name, no secret: the system's random numbers cost a call that lets another thread take Python's lock.
    return random.randbytes(_REQUEST_ID_BYTES).hex()


@contextmanager
def record_request(
    metrics: ServiceMetrics,
    protocol: Protocol,
    method: Method,
    request_id: str,
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    afterwards: Callable[[Callable[[], None]], object] = lambda write: write(),
) -> Iterator[RequestRecord]:
    """Counts, times, logs and traces one request, however it ends.

    Args:
        metrics: counts it.
        protocol: how it came.
        method: what it wants.
        request_id: what it is called.
        headers: where its client may tell of a trace of its own.
        afterwards: calls what writes all of that down; `call_soon` of the event loop, where the answer leaves only
            after the block and is not to wait for that.

    Raises:
        ServiceError: the one raised inside, or an `InternalError` in place of any unexpected exception.
    """
    record = RequestRecord(request_id)
    started_seconds = time.monotonic()
    metrics.start_request()
    with begin_trace(method, protocol, headers) as trace:
        try:
            with hide_unexpected(request_id):
                yield record
        except ServiceError as error:
            record.outcome = error.reason
            raise
        except asyncio.CancelledError:
            if record.outcome == OK:
                record.outcome = CancelledError.reason
            raise
        finally:
            seconds = time.monotonic() - started_seconds

            def write_down() -> None:
                try:
                    _tell(record, protocol, method, seconds, trace)
                finally:
                    # Last: who sees that nothing is in flight finds all of it in logs and traces.
                    metrics.finish_request(record.model, protocol, method, record.outcome, seconds)

            afterwards(write_down)


def _tell(record: RequestRecord, protocol: Protocol, method: Method, seconds: float, trace: Trace | None) -> None:
    facts = _facts(record)
    if trace is not None:
        facts["trace_id"] = trace.trace_id
        trace.end(facts, failed=record.outcome != OK)
    texts = _texts(record) if _texts_wanted else {}
    _log.info("request", protocol=protocol, method=method, duration_seconds=round(seconds, 6), **facts, **texts)


@contextmanager
def hide_unexpected(request_id: str) -> Iterator[None]:
    """Logs what no client should see, and raises an `InternalError` in its place."""
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        _log.exception("unexpected error", request_id=request_id)
        raise InternalError(f"internal error, logged with request id {request_id}") from error


def _texts(record: RequestRecord) -> dict[str, list[str]]:
    texts = {"source_texts": list(record.source_texts)}
    if isinstance(record.response, TranslationResponse):
        texts["target_texts"] = [translation.text for translation in record.response.translations]
    return texts


def _facts(record: RequestRecord) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {"request_id": record.request_id, "outcome": record.outcome}
    if record.model != NO_MODEL:
        facts["model"] = record.model
    if record.pivot_model != NO_MODEL:
        facts["pivot_model"] = record.pivot_model
    if record.direction:
        facts["direction"] = record.direction
    if record.response is not None:
        results = record.response.results
        facts["texts"] = len(results)
        facts["source_tokens"] = sum(result.source_tokens for result in results)
        facts["target_tokens"] = sum(result.target_tokens for result in results)
        facts |= {name: round(seconds, 6) for name, seconds in record.response.timings.by_name.items()}
    return facts
