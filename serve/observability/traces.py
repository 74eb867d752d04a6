"""Traces: a span per sampled request, with a child span per phase.

Off until `configure_traces`, which imports OpenTelemetry; configured once per process. Spans hold model, direction,
counts and outcome, never a text. Phases are added after they end, from times that are measured anyway: engines need no
tracing.
"""

import time
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SERVICE_NAME = "dragoman"
# Export timeout per batch; the last export delays the exit of the service.
EXPORT_SECONDS = 2.0

Facts = Mapping[str, str | int | float]


class Trace:
    """The trace of one sampled request, which is the current one of the task until `leave`."""

    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        self._token = _current.set(self)
        self._tracer = tracer
        self._span = span
        # Converts the monotonic clock to the time of day.
        self._offset_seconds = time.time() - time.monotonic()

    def leave(self) -> None:
        """Makes the trace before this one the current one again."""
        _current.reset(self._token)

    @property
    def trace_id(self) -> str:
        """The trace id in hexadecimal."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def add_phase(self, name: str, start_seconds: float, end_seconds: float, facts: Facts) -> None:
        """Adds a finished phase; times are those of `time.monotonic`."""
        # a trace exists, so OpenTelemetry is imported
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

        parent = set_span_in_context(self._span)
        attributes = {f"{SERVICE_NAME}.{fact}": value for fact, value in facts.items()}
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=self._nanoseconds(start_seconds))
        span.end(self._nanoseconds(end_seconds))

    def end(self, facts: Facts, *, failed: bool) -> None:
        """Ends the span of the request with its outcome."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - see above

        for fact, value in facts.items():
            self._span.set_attribute(f"{SERVICE_NAME}.{fact}", value)
        if failed:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()

    def _nanoseconds(self, monotonic_seconds: float) -> int:
        return int((monotonic_seconds + self._offset_seconds) * 1e9)


_provider: "TracerProvider | None" = None
_current: ContextVar[Trace | None] = ContextVar("trace", default=None)
# Returns the trace of the current request; None: not sampled.
current_trace = _current.get


def configure_traces(endpoint: str, sample_ratio: float) -> None:
    """Exports spans to a collector from now on.

    Args:
        endpoint: of the collector, OTLP over gRPC, such as `http://collector:4317`.
        sample_ratio: for requests without a sampling decision of the client.

    Raises ImportError if OpenTelemetry is not installed.
    """
    # only if traces are enabled
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = make_provider(sample_ratio)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)))
    use_provider(provider)


def make_provider(sample_ratio: float) -> "TracerProvider":
    """Returns a tracer provider; a client's sampling decision precedes the ratio."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only if traces are enabled
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    resource = Resource.create({"service.name": SERVICE_NAME, "service.version": version("dragoman")})
    return TracerProvider(ParentBased(TraceIdRatioBased(sample_ratio)), resource, shutdown_on_exit=False)


def use_provider(provider: "TracerProvider | None") -> None:
    """Makes spans with this provider from now on; None: makes none."""
    global _provider  # noqa: PLW0603 - one per process, like logs
    _provider = provider


def stop_traces() -> None:
    """Exports the remaining spans and stops tracing. Blocks up to the export timeout."""
    if _provider is not None:
        _provider.shutdown()
        use_provider(None)


def tracing() -> bool:
    """Returns whether requests may have traces."""
    return _provider is not None


def begin_trace(name: str, protocol: str, headers: Mapping[str, str]) -> Trace | None:
    """Starts the current trace of a sampled request, which may continue that of the headers; the caller ends it."""
    if _provider is None:
        return None
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - only if traces are enabled
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    tracer = _provider.get_tracer(SERVICE_NAME)
    parent = TraceContextTextMapPropagator().extract(headers)
    attributes = {f"{SERVICE_NAME}.protocol": protocol}
    span = tracer.start_span(name, parent, SpanKind.SERVER, attributes)
    return Trace(tracer, span) if span.is_recording() else None
