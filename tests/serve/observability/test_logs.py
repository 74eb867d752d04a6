"""One log line per request without texts, and no exception details for clients."""

import io
import json
import logging
import sys
from typing import Any

import httpx
import pytest
import structlog

from dragoman.serve.errors import InternalError
from dragoman.serve.observability.log_writer import LOG_WRITER
from dragoman.serve.observability.logs import RecordedRequest, choose_request_id, configure_logs
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.usage import RequestUsage, Timings

CLIENT_TEXT = "the text of a client"
TIMINGS = Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7)
USAGE = RequestUsage(texts=1, source_tokens=3, target_tokens=2, timings=TIMINGS)


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch, restored_logs: None) -> io.StringIO:  # noqa: ARG001 - restores them
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    configure_logs("json")
    return output


@pytest.fixture
def metrics() -> ServiceMetrics:
    return ServiceMetrics()


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_request_leaves_one_line_with_counts_and_timings(stderr: io.StringIO, metrics: ServiceMetrics) -> None:
    with RecordedRequest(metrics, "rest", "translate", "id-1") as record:
        record.target_texts, record.usage = [CLIENT_TEXT], USAGE
    (line,) = lines(stderr)
    assert line["event"] == "request"
    assert (line["request_id"], line["protocol"], line["outcome"]) == ("id-1", "rest", "ok")
    assert (line["texts"], line["source_tokens"], line["target_tokens"]) == (1, 3, 2)
    assert (line["tokenize_seconds"], line["queue_seconds"], line["inference_seconds"]) == (0.1, 0.2, 0.3)
    assert line["duration_seconds"] >= 0
    assert CLIENT_TEXT not in stderr.getvalue()


@pytest.mark.parametrize("worker", [None, 3])
def test_a_line_is_as_structlog_writes_it(stderr: io.StringIO, metrics: ServiceMetrics, worker: int | None) -> None:
    configure_logs("json", worker=worker)
    LOG_WRITER.open(stderr)
    with RecordedRequest(metrics, "rest", "translate", 'an id with " and \u00e4'):
        pass
    (quick,) = lines(stderr)
    facts = {name: value for name, value in quick.items() if name not in ("level", "worker", "timestamp")}
    structlog.get_logger("dragoman").info(**facts)
    (first, first_time), (second, second_time) = (line.split('"timestamp":') for line in stderr.getvalue().splitlines())
    assert first == second
    assert len(first_time) == len(second_time)


def test_an_unexpected_error_is_hidden_and_logged_without_locals(stderr: io.StringIO, metrics: ServiceMetrics) -> None:
    def fail(_text: str) -> None:
        raise ZeroDivisionError("a detail of the inside")

    with pytest.raises(InternalError) as raised, RecordedRequest(metrics, "grpc", "translate", "id-3"):
        fail(CLIENT_TEXT)
    assert "id-3" in str(raised.value)
    assert "inside" not in str(raised.value)
    error, request = lines(stderr)
    assert "a detail of the inside" in error["exception"]
    assert error["request_id"] == request["request_id"] == "id-3"
    assert CLIENT_TEXT not in stderr.getvalue()


def test_the_standard_librarys_logs_are_json_too(stderr: io.StringIO) -> None:
    logging.getLogger("some.library").warning("a warning about %s", "something")
    (line,) = lines(stderr)
    assert (line["event"], line["level"]) == ("a warning about something", "warning")


def test_the_clients_request_id_is_kept_if_it_is_visible_ascii() -> None:
    for fit in ("a", "0af7651916cd43dd-8448eb211c80319c", "x" * 128):
        assert choose_request_id(fit) == fit
    for given in (None, "", "x" * 129, "a b", "a\nb", "ä", '{"event"}\x00'):
        chosen = choose_request_id(given)
        assert len(chosen) == 32
        assert chosen != choose_request_id(given)


def test_the_line_of_a_request_follows_the_configured_level(stderr: io.StringIO, metrics: ServiceMetrics) -> None:
    for level in (logging.CRITICAL, logging.INFO):
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
        with RecordedRequest(metrics, "rest", "translate", str(level)):
            pass
    (line,) = lines(stderr)
    assert line["request_id"] == str(logging.INFO)


def test_addresses_of_downloads_are_not_logged(stderr: io.StringIO) -> None:
    """Those of a hub may hold a signature, which gives access."""
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as client:
        client.get("https://hub.test/file?signature=1")
    assert lines(stderr) == []


@pytest.mark.parametrize("wanted", [False, True])
def test_texts_are_logged_only_if_the_operator_wants_it(
    stderr: io.StringIO, metrics: ServiceMetrics, monkeypatch: pytest.MonkeyPatch, *, wanted: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    configure_logs("json", texts=wanted)
    with RecordedRequest(metrics, "rest", "translate", "id-1") as record:
        record.source_texts = ["what a client wrote"]
        record.target_texts, record.usage = [CLIENT_TEXT], USAGE
    configure_logs("json")
    (line,) = lines(stderr)
    assert ("what a client wrote" in str(line)) == (CLIENT_TEXT in str(line)) == wanted
    if wanted:
        assert (line["source_texts"], line["target_texts"]) == (["what a client wrote"], [CLIENT_TEXT])
