"""Spans of requests over real connections: number, parents and attributes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as Exporter
from structlog.testing import capture_logs

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.app import serve
from dragoman.serve.observability.traces import make_provider, use_provider
from dragoman.serve.settings import ServeSettings
from tests.support.calls import REST, open_call
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, GatedModel, LiveService, eventually
from tests.support.paths import ROOT

PHASES = ["tokenize", "queue", "encode", "decode", "detokenize"]
TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def exporter(request: pytest.FixtureRequest) -> Iterator[Exporter]:
    """Stores the spans of all requests, or of the share in the test's parameter."""
    exporter = Exporter()
    provider = make_provider(getattr(request, "param", 1.0))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    use_provider(provider)
    yield exporter
    use_provider(None)


def spans_of(exporter: Exporter, live: LiveService) -> list[ReadableSpan]:
    """Returns the spans of finished requests when no request is in flight; see `spans_of_ended`."""
    live.settle()
    return spans_of_ended(exporter)


def spans_of_ended(exporter: Exporter) -> list[ReadableSpan]:
    """Returns the request's span first, then its phases by start."""
    spans = exporter.get_finished_spans()
    ended = {trace_id(span) for span in spans if span.name not in PHASES}
    whole = [span for span in spans if trace_id(span) in ended]
    return sorted(whole, key=lambda span: (span.name in PHASES, start(span)))


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def start(span: ReadableSpan) -> int:
    assert span.start_time is not None
    return span.start_time


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("dragoman."): value for name, value in (span.attributes or {}).items()}


def call(live: LiveService, text: str, **metadata: str) -> None:
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD, response_deserializer=TranslateResponse.FromString)
        data = TranslateRequest(text=[text]).SerializeToString()
        method(data, timeout=WAIT_SECONDS, metadata=tuple(metadata.items()))


def test_a_request_has_a_span_with_one_for_each_phase_in_it(live: LiveService, exporter: Exporter) -> None:
    with capture_logs() as logs:
        answer = live.post({"text": LONG_TEXT}, headers={"x-request-id": "id-1"})
        live.settle()
    request, *phases = spans_of(exporter, live)
    assert request.name == "translate"
    assert [log["trace_id"] for log in logs if log["event"] == "request"] == [trace_id(request)]
    (translation,) = answer.json()["translations"]
    expected = {"protocol": "rest", "model": "fake", "direction": "en-de", "outcome": "ok", "request_id": "id-1"}
    counts = {"texts": 1, "target_tokens": translation["target_tokens"]}
    assert attributes(request).items() >= {**expected, **counts}.items()
    assert [phase.name for phase in phases] == PHASES
    assert request.context is not None
    for phase in phases:
        assert phase.parent is not None
        assert phase.parent.span_id == request.context.span_id
        assert request.end_time is not None
        assert phase.end_time is not None
        assert start(request) <= start(phase) <= phase.end_time <= request.end_time
    assert attributes(phases[1])["source_tokens"] == translation["source_tokens"]
    assert attributes(phases[3])["decoded_tokens"] >= translation["target_tokens"]


def test_no_span_holds_a_text_and_a_rejected_request_has_no_phases(live: LiveService, exporter: Exporter) -> None:
    translated = live.post({"text": LONG_TEXT}).json()["translations"][0]["text"]
    live.post({"text": f"{LONG_TEXT}\0"})
    spans = spans_of(exporter, live)
    text = "".join(span.to_json() for span in spans)
    assert "gamma" not in text
    assert translated not in text
    _, rejected, *phases = spans
    assert (attributes(rejected)["outcome"], rejected.status.status_code.name) == ("invalid", "ERROR")
    assert [phase.name for phase in phases] == PHASES


@pytest.mark.parametrize("exporter", [0.0], indirect=True)
@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_client_chooses_sampling_and_its_trace_goes_on(live: LiveService, exporter: Exporter, protocol: str) -> None:
    for flags in ("00", "01"):
        header = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-{flags}"}
        if protocol == "rest":
            live.post({"text": "alpha."}, headers=header)
        else:
            call(live, "alpha.", **header)
    request, *phases = spans_of(exporter, live)
    assert [phase.name for phase in phases] == PHASES
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT_ID
    assert set(map(trace_id, (request, *phases))) == {TRACE_ID}


@pytest.mark.parametrize("exporter", [0.0], indirect=True)
def test_a_request_that_is_not_sampled_has_no_span(live: LiveService, exporter: Exporter) -> None:
    live.post({"text": "alpha."})
    live.post({"text": "alpha."}, headers={"traceparent": "nonsense"})
    assert spans_of(exporter, live) == []


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/translate/stream"])
def test_every_sentence_has_phases_of_its_own(live: LiveService, exporter: Exporter, path: str) -> None:
    live.post({"text": ["alpha beta.", LONG_TEXT]}, path=path)
    names = [span.name for span in spans_of(exporter, live)]
    assert names[0] == path.removeprefix("/v1/").replace("/", "_")
    assert [names.count(name) for name in PHASES] == [1, 2, 2, 2, 1]


def test_a_request_that_is_canceled_in_the_queue_has_a_complete_trace(
    gated: LiveService, model: GatedModel, exporter: Exporter
) -> None:
    model.gate.clear()
    with open_call(gated, REST, LONG_TEXT) as running:
        assert model.stepping.wait(WAIT_SECONDS)
        with open_call(gated, REST, LONG_TEXT):
            eventually(lambda: gated.metric("sequences_waiting") == 1)
        eventually(lambda: spans_of_ended(exporter) != [])
        request, *phases = spans_of_ended(exporter)
        model.gate.set()
        running.finish()
    assert [phase.name for phase in phases] == ["tokenize", "queue"]
    assert attributes(request)["outcome"] == "cancelled"
    assert request.status.status_code.name == "ERROR"
    assert phases[1].end_time is not None
    assert request.end_time is not None
    assert start(phases[1]) < phases[1].end_time <= request.end_time


def test_by_default_tracing_is_off_and_the_sdk_is_not_imported() -> None:
    """FastAPI itself imports OpenTelemetry's interface."""
    assert ServeSettings().trace_endpoint is None
    assert ServeSettings().trace_sample_ratio == 0.001
    program = """
import json, sys
import dragoman.serve.app
from dragoman.serve.observability.logs import RecordedRequest
from dragoman.serve.observability.metrics import ServiceMetrics
with RecordedRequest(ServiceMetrics(), "rest", "translate", "id"):
    pass
print(json.dumps([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(result.stdout.splitlines()[-1]) == []


@pytest.mark.usefixtures("restored_logs")
def test_without_the_extra_an_endpoint_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(SystemExit, match=r"^dragoman serve: --trace-endpoint: "):
        serve(ServeSettings(trace_endpoint="http://localhost:1"))
