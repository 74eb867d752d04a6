"""`python -m benchmarks.watched_server`: `dragoman serve` that also measures its CPU time.

It takes the options of `dragoman serve` and `--watch-port`, which exports `benchmarks.service_results.CpuTimes`.
`RunClock` separates the CPU time of ONNX Runtime from the rest. It needs sessions with one thread: such a run computes
in its caller's thread, so that the thread's CPU clock has its cost.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, start_http_server
from pydantic import Field
from pydantic_settings import CliApp, SettingsConfigDict

from benchmarks.service_results import CpuTimes, CpuTimesCollector
from benchmarks.systems.engine import watched
from serve.app import serve
from serve.registry.engine_models import load_models
from serve.server_process import HOST
from serve.settings import ServeSettings


@dataclass(slots=True)
class _Thread:
    """CPU times of one thread, written by this thread alone."""

    runs_ns: int = 0
    until_last_run_ns: int = 0


class RunClock:
    """Measures the CPU time of ONNX Runtime runs and of the threads they run in, in constant memory per thread."""

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:  # noqa: ARG002 - all graphs count alike
        """Counts the CPU time of the block. The overhead, 4 microseconds of CPU time, is outside the block."""
        started_ns = time.thread_time_ns()
        try:
            yield
        finally:
            ended_ns = time.thread_time_ns()
            thread = self._threads.setdefault(threading.get_ident(), _Thread())
            thread.runs_ns += ended_ns - started_ns
            thread.until_last_run_ns = ended_ns

    def read(self) -> CpuTimes:
        """Returns the CPU times of this process so far. Thread-safe."""
        threads = list(self._threads.values())
        return CpuTimes(
            time.process_time_ns() / 1e9,
            sum(each.until_last_run_ns for each in threads) / 1e9,
            sum(each.runs_ns for each in threads) / 1e9,
        )


class WatchedServer(ServeSettings):
    """Serves as `dragoman serve` does, and exports its CPU times."""

    model_config = SettingsConfigDict(
        cli_prog_name="watched_server", cli_kebab_case=True, cli_implicit_flags=True, cli_avoid_json=True
    )

    watch_port: int = Field(ge=1, le=65535, description="Port of 127.0.0.1 that exports the CPU times.")

    def cli_cmd(self) -> None:
        """Serves until a signal.

        Raises:
            SystemExit: if an engine has several threads, a port is taken, or the bundle is invalid.
        """
        for settings in (self, *map(self.of_model, self.models)):
            if settings.engine_threads != 1:
                problem = "expected 1: the work of others than the engine's own thread would be missed"
                raise SystemExit(f"watched_server: --threads-per-engine: {settings.engine_threads}: {problem}")
        clock = RunClock()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(CpuTimesCollector(clock.read))
        try:
            start_http_server(self.watch_port, HOST, registry)
        except OSError as error:
            raise SystemExit(f"watched_server: --watch-port: {self.watch_port}: {error.strerror}") from error
        serve(self, load=partial(load_models, change=lambda sessions: watched(sessions, clock)))


if __name__ == "__main__":
    CliApp.run(WatchedServer)
