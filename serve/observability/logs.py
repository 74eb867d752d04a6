"""Structured logs on stderr, and the record of each request: one log line, one count, one trace.

A request's line holds its id, outcome, token counts and times; its texts only if the operator enables that. An
unexpected exception becomes an `InternalError`: its details are logged, not sent.
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
from typing import Any, Literal, TextIO, cast

import structlog

from serve.errors import CancelledError, InternalError, ServiceError
from serve.keys.account import Account, Charge
from serve.observability.log_writer import LOG_WRITER, RepetitionFilter
from serve.observability.metrics import NO_MODEL, OK, Method, Protocol, ServiceMetrics
from serve.observability.traces import Trace, begin_trace
from serve.observability.usage import RequestUsage

LogFormat = Literal["json", "console"]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_REQUEST_ID_BYTES = 16
_log = structlog.get_logger("dragoman")
_texts_wanted = False


@dataclass(slots=True)
class RequestRecord:
    """The facts of one request for its log line, count and trace.

    Attributes:
        request_id: from the client, or generated.
        outcome: `ok`, or the `reason` of the error.
        model: name of the last model; `NO_MODEL` if the request reached none.
        pivot_model: name of the model into the pivot's language, if there is one.
        direction: as in `en-de`; empty until it is chosen.
        target_texts: None: no translations were requested, or the request failed.
        usage: None: the request failed.
        account: of the client's API key; None: no key is required.
        charge: characters that count for the key while the request runs.
    """

    request_id: str
    outcome: str = OK
    model: str = NO_MODEL
    pivot_model: str = NO_MODEL
    direction: str = ""
    source_texts: Sequence[str] = ()
    target_texts: Sequence[str] | None = None
    usage: RequestUsage | None = None
    account: Account | None = None
    charge: Charge | None = None


def configure_logs(log_format: LogFormat, *, texts: bool = False, worker: int | None = None) -> None:
    """Sends logs of structlog and the standard library to stderr, one line per event.

    Args:
        log_format: "json" for machines, "console" for people.
        texts: whether the line of a request holds its texts and translations.
        worker: the number of this process among several, which every line holds; None: there is one process.
    """
    global _texts_wanted  # noqa: PLW0603 - logging is configured per process
    _texts_wanted = texts
    LOG_WRITER.open(sys.stderr)
    common: list[Any] = [structlog.stdlib.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if worker is not None:
        common.insert(0, lambda _logger, _name, event: {**event, "worker": worker})
    if log_format == "json":
        # Plain tracebacks: structlog's rich ones contain local variables, and thus texts of clients.
        renderers: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        renderers = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*common, *renderers],
        # Directly to the stream: going through the standard library doubles the cost of a request's line.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", LOG_WRITER)),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    to_line = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers]
    handler = logging.StreamHandler(LOG_WRITER)
    handler.addFilter(RepetitionFilter(LOG_WRITER))
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=to_line))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # uvicorn's start and stop lines duplicate those of the service.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # Its warnings describe malformed bodies, which are errors of clients.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


def choose_request_id(given: str | None) -> str:
    """Returns the client's id if it is 1 to 128 visible ASCII characters, otherwise a new one."""
    if given and _REQUEST_ID.fullmatch(given):
        return given
    # The id is no secret. `os.urandom` would release the GIL to another thread.
    return random.randbytes(_REQUEST_ID_BYTES).hex()


@contextmanager
def record_request(
    metrics: ServiceMetrics,
    protocol: Protocol,
    method: Method,
    request_id: str,
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    account: Account | None = None,
    afterwards: Callable[[Callable[[], None]], object] = lambda write: write(),
) -> Iterator[RequestRecord]:
    """Counts, times, logs and traces one request, however it ends.

    Args:
        metrics: counts the request.
        protocol: "grpc" or "rest".
        method: the called method.
        request_id: as of `RequestRecord`.
        headers: may continue a trace of the client (W3C Trace Context).
        account: as of `RequestRecord`.
        afterwards: runs the function that writes the record. In an event loop, `call_soon`: it runs after the response
            is sent.

    Raises:
        ServiceError: the one raised inside, or an `InternalError` in place of any unexpected exception.
    """
    record = RequestRecord(request_id, account=account)
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
                    _log_request(record, protocol, method, seconds, trace)
                finally:
                    # Last: once no request is in flight, all logs and traces are complete.
                    metrics.finish_request(record.model, protocol, method, record.outcome, seconds)

            afterwards(write_down)


def _log_request(
    record: RequestRecord, protocol: Protocol, method: Method, seconds: float, trace: Trace | None
) -> None:
    facts = _facts(record)
    if trace is not None:
        facts["trace_id"] = trace.trace_id
        trace.end(facts, failed=record.outcome != OK)
    texts = _texts(record) if _texts_wanted else {}
    _log.info("request", protocol=protocol, method=method, duration_seconds=round(seconds, 6), **facts, **texts)


@contextmanager
def hide_unexpected(request_id: str) -> Iterator[None]:
    """Logs any unexpected exception and raises an `InternalError` in its place."""
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        _log.exception("unexpected_error", request_id=request_id)
        raise InternalError(f"internal error, logged with request id {request_id}") from error


def _texts(record: RequestRecord) -> dict[str, list[str]]:
    texts = {"source_texts": list(record.source_texts)}
    if record.target_texts is not None:
        texts["target_texts"] = list(record.target_texts)
    return texts


def _facts(record: RequestRecord) -> dict[str, str | int | float]:
    facts: dict[str, str | int | float] = {"request_id": record.request_id, "outcome": record.outcome}
    if record.model != NO_MODEL:
        facts["model"] = record.model
    if record.pivot_model != NO_MODEL:
        facts["pivot_model"] = record.pivot_model
    if record.account is not None and record.account.key.name:
        facts["key"] = record.account.key.name
    if record.direction:
        facts["direction"] = record.direction
    if (usage := record.usage) is not None:
        facts["texts"] = usage.texts
        facts["source_tokens"] = usage.source_tokens
        facts["target_tokens"] = usage.target_tokens
        facts |= {name: round(seconds, 6) for name, seconds in usage.timings.by_name.items()}
    return facts
