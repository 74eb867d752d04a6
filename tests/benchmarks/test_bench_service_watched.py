"""The watched server answers as the plain one does, and attributes its CPU time to its parts."""

import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from pydantic_settings import CliApp

from benchmarks.service_results import CpuTimes, CpuTimesCollector, read_cpu_times
from benchmarks.systems.engine import watched
from benchmarks.watched_server import RunClock, WatchedServer
from serve.bundle.bundle import Bundle
from serve.registry.engine_models import load_models
from serve.settings import ServeSettings
from tests.support.live import LiveService, run_service
from tests.support.toy import toy_test_sentences

OPTIONS: tuple[dict[str, Any], ...] = ({}, {"beam_size": 4, "hypotheses": 2}, {"temperature": 0.7, "seed": 7})


def test_a_watched_server_answers_bitwise_as_the_plain_one(toy_server: LiveService, toy_bundle: Path) -> None:
    clock = RunClock()
    settings = ServeSettings(bundle=toy_bundle, engines=1, threads_per_engine=1, slots=8)
    models = load_models(settings, Bundle.open(toy_bundle), change=lambda sessions: watched(sessions, clock))
    texts = toy_test_sentences()[:6]
    with run_service(toy_bundle, models) as service:
        before = clock.read()
        for options in OPTIONS:
            body = {"text": texts, "options": options}
            answers = [each.post(body).json()["translations"] for each in (toy_server, service)]
            assert answers[0] == answers[1]
        assert clock.read().since(before).runs > 0


def test_only_runs_are_counted_in_all_threads() -> None:
    clock = RunClock()

    def work() -> None:
        with clock.measure("decoder"):
            sum(range(100_000))
        sum(range(100_000))
        with clock.measure("encoder"):
            pass

    work()
    alone = clock.read()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    both = clock.read()
    assert 0 < alone.runs < alone.engines < alone.process
    assert alone.runs < both.runs < both.engines < both.process


def test_a_run_that_fails_is_counted() -> None:
    clock = RunClock()
    with pytest.raises(ZeroDivisionError), clock.measure("decoder"):
        sum(range(100_000)) / 0
    assert clock.read().runs > 0


def test_cpu_times_are_read_as_they_are_exported() -> None:
    times = CpuTimes(process=12.5, engines=9.25, runs=8.125)
    registry = CollectorRegistry()
    registry.register(CpuTimesCollector(lambda: times))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        assert read_cpu_times(f"http://127.0.0.1:{server.server_port}/metrics") == times
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_shares_are_relative_to_an_earlier_reading() -> None:
    times = CpuTimes(process=12.0, engines=8.0, runs=7.0).since(CpuTimes(process=2.0, engines=1.0, runs=1.0))
    assert (times.runs_share, times.engines_share, times.others_share) == (0.6, 0.1, 0.3)


@pytest.mark.parametrize("options", [["--threads-per-engine=2"], ['--models={"toy": {"threads_per_engine": 2}}']])
def test_engines_with_several_threads_are_rejected(toy_bundle: Path, options: list[str]) -> None:
    """ONNX Runtime would work in threads that the clock does not measure."""
    with pytest.raises(SystemExit, match=r"^watched_server: --threads-per-engine: 2: expected 1: "):
        CliApp.run(WatchedServer, cli_args=[str(toy_bundle), "--watch-port=1", *options])
