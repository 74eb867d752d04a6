"""Traces: a span for each request that is sampled, and under it one for each phase of its way, sent to a collector.

Off unless `configure_traces` was called with an endpoint; only then is OpenTelemetry imported. Like logs, traces are
configured once for the process. A span tells the model, the direction, counts of tokens and the outcome, never a text.
Phases are told afterwards, from times that are taken anyway: an engine knows nothing of traces.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING

from serve.scheduler.sequence import DecodingSequence

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SERVICE_NAME = "dragoman"
# How long some spans may take to the collector; the last ones hold up the end of the service.
EXPORT_SECONDS = 2.0

Facts = Mapping[str, str | int | float]


class Trace:
    """One request that is sampled."""

    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        """Begins with no phases.

        Args:
            tracer: makes spans.
            span: of the whole request.
        """
        self._tracer = tracer
        self._span = span
        # What the monotonic clock is behind the time of day.
        self._offset_seconds = time.time() - time.monotonic()

    @property
    def trace_id(self) -> str:
        """What the collector knows the trace by."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def add_phase(self, name: str, start_seconds: float, end_seconds: float, facts: Facts) -> None:
        """Adds a phase that is over.

        Args:
            name: of the phase.
            start_seconds: when it began, on the clock of `time.monotonic`.
            end_seconds: when it ended.
            facts: what else to tell.
        """
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - who has a trace has imported it

        parent = set_span_in_context(self._span)
        attributes = {f"{SERVICE_NAME}.{fact}": value for fact, value in facts.items()}
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=self._nanoseconds(start_seconds))
        span.end(self._nanoseconds(end_seconds))

    def add_sequences(self, sequences: Iterable[DecodingSequence]) -> None:
        """Adds the phases of sequences, as far as they came; what goes on is left by its request now."""
        now_seconds = time.monotonic()
        for sequence in sequences:
            facts = {"source_tokens": len(sequence.source_ids)}
            for name, start_seconds, end_seconds in _phases(sequence, now_seconds):
                counts = {"decoded_tokens": sequence.decoded_tokens} if name == "decode" else {}
                self.add_phase(name, start_seconds, end_seconds, {**facts, **counts})

    def end(self, facts: Facts, *, failed: bool) -> None:
        """Ends the span of the request with what became of it."""
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


def configure_traces(endpoint: str, sample_ratio: float) -> None:
    """Sends spans to a collector from now on.

    Args:
        endpoint: of the collector, for OTLP over gRPC, as in `http://collector:4317`.
        sample_ratio: of the requests whose clients did not decide it themselves.

    Raises:
        ImportError: if OpenTelemetry is not installed.
    """
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - only if wanted
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = make_provider(sample_ratio)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)))
    use_provider(provider)


def make_provider(sample_ratio: float) -> "TracerProvider":
    """Returns what makes spans; whether a request is sampled, its client decides, if it says anything about it."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only if wanted
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    resource = Resource.create({"service.name": SERVICE_NAME, "service.version": version("dragoman")})
    return TracerProvider(ParentBased(TraceIdRatioBased(sample_ratio)), resource, shutdown_on_exit=False)


def use_provider(provider: "TracerProvider | None") -> None:
    """Makes spans with this provider from now on; None: makes none."""
    global _provider  # noqa: PLW0603 - one for the process, as logs are
    _provider = provider


def stop_traces() -> None:
    """Sends what is left and makes no more spans. Takes its time."""
    if _provider is not None:
        _provider.shutdown()
        use_provider(None)


def current_trace() -> Trace | None:
    """Returns the trace of the request that is being served here; None: there is none."""
    return _current.get()


@contextmanager
def begin_trace(name: str, protocol: str, headers: Mapping[str, str]) -> Iterator[Trace | None]:
    """Traces what happens inside, if it is sampled; whoever called ends the trace.

    Args:
        name: of the span.
        protocol: how the request came.
        headers: those of the request, where a client may tell its own trace as W3C's Trace Context says.
    """
    trace = None if _provider is None else _sampled(_provider, name, protocol, headers)
    if trace is None:
        yield None
        return
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)


def _sampled(provider: "TracerProvider", name: str, protocol: str, headers: Mapping[str, str]) -> Trace | None:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - only if wanted
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    tracer = provider.get_tracer(SERVICE_NAME)
    parent = TraceContextTextMapPropagator().extract(headers)
    attributes = {f"{SERVICE_NAME}.protocol": protocol}
    span = tracer.start_span(name, parent, SpanKind.SERVER, attributes)
    return Trace(tracer, span) if span.is_recording() else None


def _phases(sequence: DecodingSequence, now_seconds: float) -> Iterator[tuple[str, float, float]]:
    """Yields name, start and end of each phase that a sequence came to; a time of 0 has not come."""
    times = (sequence.submitted_seconds, sequence.started_seconds, sequence.encoded_seconds)
    end_seconds = sequence.finished_seconds or now_seconds
    for name, start_seconds, following_seconds in zip(
        ("queue", "encode", "decode"), times, (*times[1:], 0.0), strict=True
    ):
        if start_seconds:
            yield name, start_seconds, following_seconds or end_seconds
