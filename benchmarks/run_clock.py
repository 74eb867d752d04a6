"""Counts the CPU time of runs of ONNX Runtime, and that of the threads in which they happen.

A run of a session with one thread computes in the thread that asks for it, so that thread's CPU clock tells what the
run cost, however often the thread had to wait. Knows no sessions; `benchmarks.watched_server` puts it around
them.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.cpu_times import CpuTimes


@dataclass(slots=True)
class _Thread:
    """What is known of a thread, which alone changes it."""

    runs_ns: int = 0
    until_last_run_ns: int = 0


class RunClock:
    """Two numbers for each thread, however long it runs."""

    def __init__(self) -> None:
        """Begins with no run."""
        self._threads: dict[int, _Thread] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:  # noqa: ARG002 - it does not matter which graph runs
        """Counts the CPU time of the block; that takes 4 microseconds of the thread's time, outside the block."""
        started_ns = time.thread_time_ns()
        try:
            yield
        finally:
            ended_ns = time.thread_time_ns()
            thread = self._threads.setdefault(threading.get_ident(), _Thread())
            thread.runs_ns += ended_ns - started_ns
            thread.until_last_run_ns = ended_ns

    def read(self) -> CpuTimes:
        """Returns the CPU times of this process until now. May be called from any thread."""
        threads = list(self._threads.values())
        return CpuTimes(
            time.process_time_ns() / 1e9,
            sum(each.until_last_run_ns for each in threads) / 1e9,
            sum(each.runs_ns for each in threads) / 1e9,
        )
