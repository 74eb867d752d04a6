"""Structured logs on stderr, and the record of each request: one log line, one count, one trace.

A request's line holds its id, outcome, token counts and times; its texts only if the operator enables that. An
unexpected exception becomes an `InternalError`: its details are logged, not sent.
"""

import asyncio
import json
import logging
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

import structlog
from pydantic_core import PydanticSerializationError, to_json

from dragoman.serve.errors import CancelledError, InternalError, ServiceError
from dragoman.serve.observability.log_writer import LOG_WRITER, RepetitionFilter
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import NO_MODEL, OK, Method, Protocol
from dragoman.serve.observability.traces import Trace, begin_trace
from dragoman.serve.observability.usage import RequestUsage, to_microseconds

if TYPE_CHECKING:
    from dragoman.serve.keys.account import Account, Charge

LogFormat = Literal["json", "console"]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_REQUEST_ID_BITS = 128
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
        network: address of the client, or network of its IPv6 address; empty: unknown.
    """

    request_id: str
    outcome: str = OK
    model: str = NO_MODEL
    pivot_model: str = NO_MODEL
    direction: str = ""
    source_texts: Sequence[str] = ()
    target_texts: Sequence[str] | None = None
    usage: RequestUsage | None = None
    account: "Account | None" = None
    charge: "Charge | None" = None
    network: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def caller(self) -> str:
        """Who waits in the queue."""
        return caller_of(self.account, self.network)

    @property
    def account_id(self) -> str:
        """The id of the client's API key; empty: no key is required."""
        return "" if self.account is None else self.account.key.id

    @property
    def approves(self) -> bool:
        """Whether the client's API key may approve corrections."""
        return self.account is not None and self.account.key.limits.approve


def caller_of(account: "Account | None", network: str) -> str:
    """Returns who waits in the queue: the API key, or the network of the client if no key is required."""
    return network if account is None else account.key.id


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
    numbered = {} if worker is None else {"worker": worker}
    if numbered:
        common.insert(0, lambda _logger, _name, event: {**event, **numbered})
    if log_format == "json":
        # Plain tracebacks: structlog's rich ones contain local variables, and thus texts of clients.
        json_renderer = structlog.processors.JSONRenderer(lambda event, **_: _encode(event))
        renderers: list[Any] = [structlog.processors.format_exc_info, json_renderer]
    else:
        renderers = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*common, *renderers],
        # Directly to the stream: going through the standard library doubles the cost of a request's line.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", LOG_WRITER)),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    _request_line.configure(numbered if log_format == "json" else None)
    to_line = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers]
    handler = logging.StreamHandler(LOG_WRITER)
    handler.addFilter(RepetitionFilter(LOG_WRITER))
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=to_line))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    # Its warnings describe malformed bodies, which are errors of clients.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    # It logs the address of each download, which may hold a signature.
    logging.getLogger("httpx").setLevel(logging.WARNING)


# One encoder for all lines: `json.dumps` would make one for each.
_encode = json.JSONEncoder(default=repr).encode


def choose_request_id(given: str | None) -> str:
    """Returns the client's id if it is 1 to 128 visible ASCII characters, otherwise a new one."""
    if given and _REQUEST_ID.fullmatch(given):
        return given
    # The id is no secret. `os.urandom` would release the GIL to another thread.
    return f"{random.getrandbits(_REQUEST_ID_BITS):032x}"


class RecordedRequest:
    """Counts, times, logs and traces the request of a block, however it ends.

    The request begins with the object. The block raises the ServiceError of the request, and an `InternalError` in
    place of any unexpected exception. A class, because generators would take twice the time, for every request.
    """

    def __init__(
        self,
        metrics: ServiceMetrics,
        protocol: Protocol,
        method: Method,
        request_id: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        account: "Account | None" = None,
        network: str = "",
        afterwards: Callable[[Callable[[], None]], object] = lambda write: write(),
    ) -> None:
        """Begins the request, which a block must end.

        Args:
            protocol: "grpc" or "rest".
            request_id, account, network: as of `RequestRecord`.
            headers: may continue a trace of the client (W3C Trace Context).
            afterwards: runs the function that writes the record. In an event loop, `call_soon`: it runs after the
                response is sent.
        """
        self._metrics = metrics
        self._protocol = protocol
        self._method = method
        self._headers = headers
        self._afterwards = afterwards
        self.record = RequestRecord(request_id, account=account, network=network, headers=headers)
        self._started_seconds = time.monotonic()
        metrics.start_request()

    def __enter__(self) -> RequestRecord:
        self._trace = begin_trace(self._method, self._protocol, self._headers)
        return self.record

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                self.record.outcome = self._outcome(error)
                HiddenErrors(self.record.request_id).__exit__(kind, error, trace)
        finally:
            self._seconds = time.monotonic() - self._started_seconds
            if self._trace is not None:
                self._trace.leave()
            self._afterwards(self._write_down)

    def _outcome(self, error: BaseException) -> str:
        if isinstance(error, ServiceError):
            return error.reason
        if isinstance(error, asyncio.CancelledError):
            return CancelledError.reason if self.record.outcome == OK else self.record.outcome
        return InternalError.reason if isinstance(error, Exception) else self.record.outcome

    def _write_down(self) -> None:
        record = self.record
        try:
            _log_request(record, self._protocol, self._method, self._seconds, self._trace)
        finally:
            # Last: once no request is in flight, all logs and traces are complete.
            self._metrics.finish_request(record.model, self._protocol, self._method, record.outcome, self._seconds)


def _log_request(
    record: RequestRecord, protocol: Protocol, method: Method, seconds: float, trace: Trace | None
) -> None:
    facts = _facts(record)
    if trace is not None:
        facts["trace_id"] = trace.trace_id
        trace.end(facts, failed=record.outcome != OK)
    if _texts_wanted:
        facts |= _texts(record)
    duration_seconds = to_microseconds(seconds)
    _request_line("request", {"protocol": protocol, "method": method, "duration_seconds": duration_seconds, **facts})


class _RequestLine:
    """Writes the lines of requests: in JSON as structlog would, but without its steps, which are most of the cost."""

    def __init__(self) -> None:
        self._common: Mapping[str, int] | None = None
        self._configured: dict[str, Any] = {}

    def configure(self, common: Mapping[str, int] | None) -> None:
        """Writes JSON with `common` facts from now on, until structlog is configured otherwise; None: as structlog."""
        self._common = common
        config = structlog.get_config()
        # structlog changes the list of processors in place.
        self._configured = {**config, "processors": list(config["processors"])}

    def __call__(self, event: str, facts: dict[str, Any]) -> None:
        if self._common is None or structlog.get_config() != self._configured:
            _log.info(event, **facts)
            return
        seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
        timestamp = f"{_format_second(seconds)}.{microseconds:06}Z"
        facts.update(event=event, **self._common, level="info", timestamp=timestamp)
        LOG_WRITER.write(f"{_to_line(facts)}\n")


@lru_cache(maxsize=1)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _to_line(facts: dict[str, Any]) -> str:
    """Returns JSON in ASCII; most lines take a quarter of the time that the standard library needs."""
    try:
        line = to_json(facts)
    except PydanticSerializationError:  # half a surrogate pair in a text of a client
        return _encode(facts)
    return line.decode() if line.isascii() else _encode(facts)


_request_line = _RequestLine()


class HiddenErrors:
    """Logs any unexpected exception of a block and raises an `InternalError` in its place."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ServiceError):
            _log.error("unexpected_error", request_id=self._request_id, exc_info=error)
            raise InternalError(f"internal error, logged with request id {self._request_id}") from error


def _texts(record: RequestRecord) -> dict[str, Any]:
    texts = {"source_texts": list(record.source_texts)}
    if record.target_texts is not None:
        texts["target_texts"] = list(record.target_texts)
    return texts


def _facts(record: RequestRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {"request_id": record.request_id, "outcome": record.outcome}
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
        facts.update(usage.timings.rounded)
    return facts
