"""How busy the CPUs are that this process may use; what overload is known by. Asked by `serve.api.load_shedding`."""

import time

from serve.system import available_cpus


class Processor:
    """How busy the CPUs are. Belongs to the thread whose time counts by itself."""

    def __init__(self) -> None:
        """Begins to measure."""
        self._cpus = available_cpus()
        self._last = self._read()

    def busy_share(self) -> float:
        """Returns how busy they were since the last call, 0 to 1: all CPUs of this process, or the thread's own one."""
        before, self._last = self._last, self._read()
        seconds, process_seconds, thread_seconds = (new - old for new, old in zip(self._last, before, strict=True))
        return max(process_seconds / self._cpus, thread_seconds) / seconds if seconds else 0.0

    def _read(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), time.thread_time()
