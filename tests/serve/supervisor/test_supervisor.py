"""Several processes serve the same ports as one service."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import eventually
from tests.support.paths import ROOT
from tests.support.processes import children
from tests.support.served import WAIT_SECONDS, Server, serve

BUNDLE = ROOT / "bundles" / "multi30k-en-de"
TEXT = "A man is walking."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(BUNDLE, "--processes", "2", "--slots", "4", "--admin-key", "key") as running:
        assert running.ready, running.lines
        yield running


def workers(server: Server) -> set[int]:
    return set(children(server.process.pid))


def test_both_protocols_answer_and_the_metrics_are_those_of_all(server: Server) -> None:
    assert len(workers(server)) == 2
    for _ in range(4):
        assert server.rest(TEXT) == server.grpc(TEXT)
    eventually(lambda: server.metric("inflight_requests") == 0)
    eventually(lambda: server.metric("slots") == 2 * 4 * engines_per_worker())
    eventually(lambda: server.metric("processes") == 2)
    eventually(lambda: server.metric("ready") == 1)


def engines_per_worker() -> int:
    return max(1, len(os.sched_getaffinity(0)) // 2)


def test_each_worker_has_its_own_cpus(server: Server) -> None:
    first, second = (os.sched_getaffinity(worker) for worker in workers(server))
    assert first | second == os.sched_getaffinity(0)
    if len(first | second) > 1:
        assert not first & second


def test_a_reload_reaches_every_worker(server: Server) -> None:
    before = server.metric("reloads_total")
    status, body = server.post({}, "/v1/admin/reload", Authorization="Bearer key")
    assert (status, "unchanged" in body) == (200, True)
    eventually(lambda: server.metric("reloads_total") == before + 2)


def test_a_rolling_restart_replaces_every_worker_and_fails_no_request(server: Server) -> None:
    before, count = workers(server), server.metric("requests_total")
    server.process.send_signal(signal.SIGUSR2)
    answers = 0
    while workers(server) & before or len(workers(server)) > 2:
        assert server.rest(TEXT)
        answers += 1
    eventually(lambda: server.metric("requests_total") == count + answers)
    eventually(lambda: server.metric("process_restarts_total") == 2)


def test_a_killed_worker_is_replaced_and_counters_do_not_fall(server: Server) -> None:
    server.rest(TEXT)
    eventually(lambda: server.metric("inflight_requests") == 0)
    before = workers(server)
    count, victim = server.metric("requests_total"), min(before)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in workers(server))
    eventually(lambda: server.metric("requests_total") == count)
    eventually(lambda: len(workers(server)) == 2)
    assert server.rest(TEXT)


def test_a_worker_whose_event_loop_stands_still_is_replaced_and_holds_up_no_reload() -> None:
    options = ("--processes", "2", "--slots", "1", "--admin-key", "key", "--step-timeout-seconds", "4")
    with serve(BUNDLE, *options) as service:
        assert service.ready, service.lines
        stuck = min(workers(service))
        os.kill(stuck, signal.SIGSTOP)
        status, _ = service.post({}, "/v1/admin/reload", Authorization="Bearer key")
        assert status == 200
        eventually(lambda: stuck not in workers(service) and service.metric("processes") == 2)
        assert service.metric("process_restarts_total") == 1
        assert any('"worker_ended"' in line and "did not answer for 4 seconds" in line for line in service.lines)


def test_a_second_server_on_the_ports_is_refused(server: Server) -> None:
    port = server.ready["grpc_port"]
    with serve(BUNDLE, "--processes", "2", "--grpc-port", str(port)) as second:
        assert second.process.wait(WAIT_SECONDS) == 1
        assert second.lines[-1].startswith(f"dragoman serve: 127.0.0.1:{port}: Address already in use")


def test_a_bundle_that_cannot_be_served_ends_the_service_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with serve(tmp_path, "--processes", "2") as failing:
        assert failing.process.wait(WAIT_SECONDS) == 1
        assert failing.lines[-1].startswith(f"dragoman serve: {tmp_path}/manifest.json: ")


def test_more_workers_than_cpus_start_serve_and_stop(*, thorough: bool) -> None:
    count = 16 if thorough else 3
    with serve(BUNDLE, "--processes", str(count), "--slots", "1") as many:
        assert many.ready, many.lines
        assert len(workers(many)) == count
        answered = 0
        for _ in range(16):
            answered += bool(many.rest(TEXT)) + bool(many.grpc(TEXT))
        eventually(lambda: many.metric("requests_total") == answered == 32)
        eventually(lambda: many.metric("processes") == count)
        many.process.send_signal(signal.SIGTERM)
        assert many.process.wait(WAIT_SECONDS) == 0


def test_a_signal_ends_all_workers(server: Server) -> None:
    """Last, because the tests above share the service."""
    server.process.send_signal(signal.SIGTERM)
    try:
        assert server.process.wait(WAIT_SECONDS) == 0
    except subprocess.TimeoutExpired:
        pytest.fail("\n".join(server.lines[-20:]))
