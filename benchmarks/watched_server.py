"""`python -m benchmarks.watched_server`: `dragoman serve` that also measures the CPU time of ONNX Runtime.

It takes the options of `dragoman serve` and `--clock-file`, which `read_cpu_times` reads in another process. The clock
needs sessions with one thread: such a run computes in its caller's thread, so that the thread's CPU clock has its cost.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from pydantic import Field
from pydantic_settings import CliApp, SettingsConfigDict

from benchmarks.systems.engine import watched
from serve.app import serve
from serve.registry.engine_models import load_models
from serve.settings import ServeSettings

MOST_THREADS = 256


class RunClock:
    """Measures the CPU time of ONNX Runtime runs and of the threads they run in."""

    def __init__(self, path: Path) -> None:
        """Writes a file, float64 [MOST_THREADS, 2]: CPU seconds of a thread's runs, and of the thread at their end."""
        self._times = np.memmap(path, np.float64, "w+", shape=(MOST_THREADS, 2))
        self._rows = count()
        self._of_thread = threading.local()

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:  # noqa: ARG002 - all graphs count alike
        """Counts the CPU time of the block. The overhead, 4 microseconds of CPU time, is outside the block."""
        started_ns = time.thread_time_ns()
        try:
            yield
        finally:
            ended_ns = time.thread_time_ns()
            if not hasattr(self._of_thread, "times"):
                self._of_thread.times = self._times[next(self._rows)]
            self._of_thread.times[:] = self._of_thread.times[0] + (ended_ns - started_ns) / 1e9, ended_ns / 1e9


def read_cpu_times(path: Path) -> dict[str, float]:
    """Returns CPU seconds so far: of the runs of ONNX Runtime, and of the engine threads up to their last run."""
    runs, engines = np.fromfile(path, np.float64).reshape(-1, 2).sum(axis=0).tolist()
    return {"ONNX Runtime": runs, "engine threads": engines}


class WatchedServer(ServeSettings):
    """Serves as `dragoman serve` does, and measures its CPU time."""

    model_config = SettingsConfigDict(
        cli_prog_name="watched_server", cli_kebab_case=True, cli_implicit_flags=True, cli_avoid_json=True
    )

    clock_file: Path = Field(description="File of the CPU times.")

    def cli_cmd(self) -> None:
        """Serves until a signal.

        Raises:
            SystemExit: if an engine has several threads, or the service cannot start.
        """
        for settings in (self, *map(self.of_model, self.models)):
            if settings.engine_threads != 1:
                problem = "expected 1: the CPU clock covers only the engine's own thread"
                raise SystemExit(f"watched_server: --threads-per-engine: {settings.engine_threads}: {problem}")
        clock = RunClock(self.clock_file)
        serve(self, load=partial(load_models, change=lambda sessions: watched(sessions, clock.measure)))


if __name__ == "__main__":
    CliApp.run(WatchedServer)
