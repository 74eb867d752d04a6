"""The lifecycle: the service is ready after the golden sentences, and ends after every accepted request."""

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from structlog.testing import capture_logs

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.host.server_process import reserve_ports
from dragoman.serve.http.server import ListenError
from dragoman.serve.registry.lifecycle import Stage
from tests.support.fake_bundles import LONG_TEXT, make_golden, write_bundle
from tests.support.fakes import FakeModel
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.processes import read_log, start_process
from tests.support.promises import Measured

GOOD = {"text": "alpha beta."}
GOOD_MESSAGE = TranslateRequest(text=["alpha beta."])
LONG = {"text": LONG_TEXT}
LONG_MESSAGE = TranslateRequest(text=[LONG_TEXT])


@pytest.fixture
def model() -> GatedModel:
    return GatedModel(2)


def accept_both(live: LiveService, model: GatedModel, pool: ThreadPoolExecutor) -> list[Any]:
    """Sends a long request over each protocol; returns the futures when both are accepted."""
    model.gate.clear()
    futures = [pool.submit(live.post, LONG), pool.submit(live.call, LONG_MESSAGE)]
    eventually(lambda: live.metric("sequences_running") + live.metric("sequences_waiting") == 2)
    return futures


@pytest.mark.promise("R27")
def test_before_the_golden_sentences_the_service_is_live_but_not_ready(bundle_path: Path, model: GatedModel) -> None:
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as live:
        assert model.stepping.wait(WAIT_SECONDS)
        assert live.get("/healthz").status_code == 200
        probe = live.get("/readyz")
        assert (probe.status_code, probe.json()["reason"], probe.headers["retry-after"]) == (503, "not_ready", "1")
        assert live.health() == "NOT_SERVING"
        assert (live.metric("ready"), live.metric("draining")) == (0, 0)
        assert live.post(GOOD).json()["reason"] == "not_ready"
        assert live.call_error(GOOD_MESSAGE).code() is grpc.StatusCode.UNAVAILABLE
        model.gate.set()
        eventually(lambda: live.get("/readyz").status_code == 200)
        assert live.health() == "SERVING"
        assert live.metric("ready") == 1
        assert live.post(GOOD).status_code == 200


@pytest.mark.promise("R23")
def test_a_lame_duck_is_not_ready_but_serves_and_closes_connections(bundle_path: Path, measured: Measured) -> None:
    with run_service(bundle_path, lame_duck_seconds=1000) as live:
        signal_seconds = time.monotonic()
        live.stop()
        eventually(lambda: live.get("/readyz").status_code == 503)
        measured("R23", f"not ready after {(time.monotonic() - signal_seconds) * 1000:.0f} ms")
        assert live.get("/readyz").json()["reason"] == "draining"
        assert live.get("/healthz").status_code == 200
        eventually(lambda: live.health() == "NOT_SERVING")
        assert live.metric("draining") == 1
        answer = live.post(GOOD)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert live.call(GOOD_MESSAGE).translations
        live.abandon()


def test_a_lame_duck_drains_after_its_time(bundle_path: Path) -> None:
    with capture_logs() as logs, run_service(bundle_path, lame_duck_seconds=0.1) as live:
        signal_seconds = time.monotonic()
        live.stop()
        live.join()
        assert time.monotonic() - signal_seconds >= 0.1
    assert [log["event"] for log in logs[1:]] == ["lame_duck", "draining", "stopped"]


@pytest.mark.promise("R22")
def test_draining_finishes_accepted_requests_and_rejects_new_ones(bundle_path: Path, model: GatedModel) -> None:
    with run_service(bundle_path, [model]) as live, ThreadPoolExecutor() as pool:
        accepted = accept_both(live, model, pool)
        live.stop()
        # Polling with requests would be wrong: one before the signal takes effect is accepted and waits for the gate.
        eventually(lambda: live.service.lifecycle.stage is Stage.DRAINING)
        refused = live.post(GOOD)
        assert (refused.json()["reason"], refused.headers["retry-after"]) == ("draining", "1")
        assert live.call_error(GOOD_MESSAGE).code() is grpc.StatusCode.UNAVAILABLE
        model.gate.set()
        rest, message = (future.result(WAIT_SECONDS) for future in accepted)
        assert rest.status_code == 200
        assert message.translations[0].text == rest.json()["translations"][0]["text"]
        live.join()


@pytest.mark.promise("R25")
def test_after_the_drain_time_remaining_requests_fail_and_the_log_counts_them(
    bundle_path: Path, model: GatedModel, measured: Measured
) -> None:
    with (
        capture_logs() as logs,
        run_service(bundle_path, [model], drain_seconds=0) as live,
        ThreadPoolExecutor() as pool,
    ):
        accepted = accept_both(live, model, pool)
        live.stop()
        eventually(lambda: live.engines[0]._stopping)
        model.gate.set()
        assert accepted[0].result(WAIT_SECONDS).json()["reason"] == "draining"
        error: Any = accepted[1].exception(WAIT_SECONDS)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        live.join()
    (late,) = [log for log in logs if log["event"] == "drain_timed_out"]
    left = late["running"] + late["waiting"]
    assert left == len(accepted)
    measured("R25", f"{left} requests left after the drain time: {left} failed with draining, {left} in the log")


@pytest.mark.promise("R23")
def test_a_lame_duck_under_load_fails_no_request(bundle_path: Path, measured: Measured) -> None:
    """Persistent connections close after a response, never during a request."""
    enough = threading.Event()

    def send(live: LiveService, statuses: list[int]) -> None:
        with live.http() as client:
            while not enough.is_set():
                statuses.append(client.post("/v1/translate", json=LONG).status_code)

    with run_service(bundle_path, lame_duck_seconds=1000) as live, ThreadPoolExecutor() as pool:
        statuses: list[list[int]] = [[], [], []]
        workers = [pool.submit(send, live, kept) for kept in statuses]
        eventually(lambda: all(len(kept) > 5 for kept in statuses))
        live.stop()
        eventually(lambda: live.metric("draining") == 1)
        before = [len(kept) for kept in statuses]
        eventually(lambda: all(len(kept) > count + 5 for kept, count in zip(statuses, before, strict=True)))
        enough.set()
        for worker in workers:
            worker.result(WAIT_SECONDS)
        live.settle()
        assert {status for kept in statuses for status in kept} == {200}
        assert live.metric("requests_total", outcome="ok") == sum(map(len, statuses))
        measured("R23", f"{sum(map(len, statuses)) - sum(before)} requests of a lame duck answered, 0 failed")
        live.abandon()


@pytest.mark.promise("R29")
def test_a_failing_model_makes_the_service_unready_until_it_recovers(bundle_path: Path, measured: Measured) -> None:
    model = FakeModel(2)
    with run_service(bundle_path, [model]) as live:
        model.decode_error = RuntimeError("broken")
        assert [live.post(GOOD).status_code for _ in range(3)] == [500, 500, 500]
        eventually(lambda: live.get("/readyz").status_code == 503)
        measured("R29", "requests to a failing model: 500 at once; not ready after three failures in a row")
        assert live.call_error(GOOD_MESSAGE).code() is grpc.StatusCode.UNAVAILABLE
        eventually(lambda: live.health() == "NOT_SERVING")
        model.decode_error = None
        eventually(lambda: live.get("/readyz").status_code == 200)
        eventually(lambda: live.health() == "SERVING")
        assert live.post(GOOD).status_code == 200


@pytest.mark.parametrize("setting", ["http_port", "grpc_port"])
def test_a_taken_port_is_named(bundle_path: Path, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"^127\.0\.0\.1:{port}: "), run_service(bundle_path, **{setting: port}):
            pass


def test_a_port_for_both_protocols_is_named(bundle_path: Path) -> None:
    with (
        reserve_ports(0) as (port,),
        pytest.raises(ListenError, match=rf"^127\.0\.0\.1:{port}: "),
        run_service(bundle_path, http_port=port, grpc_port=port),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_success(bundle_path: Path, number: signal.Signals) -> None:
    with start_process(bundle_path) as process:
        ready = read_log(process)
        assert (ready["event"], ready["bundle"], ready["models"]) == ("ready", str(bundle_path), ["fake"])
        assert ready["directions"] == ["en-de"]
        url = f"http://127.0.0.1:{ready['http_port']}/v1/translate"
        assert httpx.post(url, json=GOOD, trust_env=False, timeout=WAIT_SECONDS).status_code == 200
        process.send_signal(number)
        _, log = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
        events = [json.loads(line)["event"] for line in log.splitlines()]
        assert events == ["request", "lame_duck", "draining", "stopped"]


@pytest.mark.parametrize("kind", ["loading", "warming"])
def test_a_bundle_that_never_loads_ends_the_process_with_one_line(bundle_path: Path, kind: str) -> None:
    with start_process(bundle_path, kind, "--load-timeout-seconds", "1") as process:
        _, log = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 1
    assert log.splitlines()[-1].startswith(f"dragoman serve: {bundle_path}: not loaded within ")
    assert "Traceback" not in log


@pytest.mark.promise("R25")
def test_a_second_signal_ends_the_process_at_once(bundle_path: Path) -> None:
    with start_process(bundle_path, kind="shut") as process, ThreadPoolExecutor() as pool:
        ready = read_log(process)
        url = f"http://127.0.0.1:{ready['http_port']}"
        stuck = pool.submit(httpx.post, f"{url}/v1/translate", json=LONG, trust_env=False, timeout=WAIT_SECONDS)
        with httpx.Client(base_url=url, trust_env=False, timeout=WAIT_SECONDS) as client:
            eventually(lambda: 'sequences_running{model="fake"} 1.0' in client.get("/metrics").text)
            process.send_signal(signal.SIGTERM)
            eventually(lambda: client.get("/readyz").status_code == 503)
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_SECONDS)
        assert process.returncode == 1
        assert isinstance(stuck.exception(WAIT_SECONDS), httpx.TransportError)


@pytest.mark.promise("R28")
def test_a_wrong_tokenizer_is_detected_even_if_its_hash_is_in_the_manifest(
    tmp_path: Path, tokenizer: Tokenizer, two_way_tokenizer: Tokenizer
) -> None:
    bundle_path = write_bundle(tmp_path, two_way_tokenizer, make_golden(tokenizer))
    with pytest.raises(BundleError, match="sentence 0: source "), run_service(bundle_path):
        pass
