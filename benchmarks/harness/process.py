"""A measured system in its own process: `run_system` is the outside, `work` the inside.

The process isolates the memory and the libraries of a system. Both sides exchange lines of JSON over standard input and
output: options, answered by the seconds of loading, then one `Measurement` per task. The inside imports only the
standard library: it adds nothing to the memory of a system. Also: the CPUs of a process (Linux only).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from benchmarks.harness.errors import BenchmarkError

# Does the task and returns the number of target tokens.
Work = Callable[[], int]


class Measurement(NamedTuple):
    """The result of one measurement: target tokens, duration, and memory of the system's processes.

    Their peak is that since their start; `proportional_bytes` is after the measurement, with parts of shared pages.
    """

    tokens: int
    seconds: float
    peak_bytes: int
    proportional_bytes: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second."""
        return self.tokens / self.seconds


def work(load: Callable[..., Any]) -> None:
    """Loads a system with the options on standard input and works through the tasks that follow.

    The method `prepare` of the system maps the arguments of a task to its `Work`. Only the work is timed. The system is
    this process, or those of its attribute `process_ids`.
    """
    options = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    system = load(**options)
    print(time.perf_counter() - started, flush=True)
    for line in sys.stdin:
        task: Work = system.prepare(**json.loads(line))
        started = time.perf_counter()
        tokens = task()
        seconds, processes = time.perf_counter() - started, getattr(system, "process_ids", [os.getpid()])
        memory = (sum(map(read, processes)) for read in (peak_bytes, proportional_bytes))
        print(json.dumps(Measurement(tokens, seconds, *memory)), flush=True)


def peak_bytes(process_id: int | None = None) -> int:
    """Returns the peak resident memory of a process so far. `ru_maxrss` would be that of the parent if it is larger."""
    _, _, peak = Path(f"/proc/{process_id or 'self'}/status").read_text(encoding="utf-8").partition("VmHWM:")
    return int(peak.split()[0]) * 1024


def proportional_bytes(process_id: int) -> int:
    """Returns the memory of a process, with its parts of shared pages."""
    _, _, found = Path(f"/proc/{process_id}/smaps_rollup").read_text(encoding="utf-8").partition("\nPss:")
    return int(found.split()[0]) * 1024


class Launch(NamedTuple):
    """How to start a system, and its tasks.

    Attributes:
        load: `module:name` of what the process calls with the options; JSON can hold them.
        tasks: arguments of `prepare`, by name; the same names for all systems. The last should need the most memory.
    """

    name: str
    load: str
    options: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Any]]


class SystemProcess(NamedTuple):
    """A system that waits for its tasks."""

    name: str
    process: subprocess.Popen[str]
    errors: IO[str]

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Sends options or the arguments of a task, and waits for the answer.

        Raises BenchmarkError with the last line of its standard error if the system fails.
        """
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline() if self.process.stdout else "")
        except (BrokenPipeError, json.JSONDecodeError) as error:
            self.process.kill()  # it has ended, or writes something else and would never end
            self.process.wait()
            self.errors.seek(0)
            nothing = f"ended with status {self.process.returncode} and wrote nothing"
            *_, last = [nothing, *filter(None, map(str.strip, self.errors))]
            raise BenchmarkError(f"{self.name}: {last}") from error


def run_system(launch: Launch) -> AbstractContextManager[SystemProcess]:
    """Runs the process of a system, which awaits its options, until the block ends."""
    return run_process(launch.name, [sys.executable, "-m", "benchmarks.harness.process", launch.load])


@contextmanager
def run_process(name: str, command: Sequence[str]) -> Iterator[SystemProcess]:
    """Runs a process that answers each line of JSON by a line of JSON, until the block ends."""
    with (
        TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        # The child has its own session: Ctrl-C reaches only this process, which ends the block.
        subprocess.Popen(  # noqa: S603 - a fixed command line
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            start_new_session=True,
        ) as process,
    ):
        try:
            yield SystemProcess(name, process, errors)
        finally:
            process.kill()
            if process.stdin is not None:
                # A dead process has unread input; the error of `ask` already reports its death.
                with suppress(BrokenPipeError):
                    process.stdin.close()


@contextmanager
def running_on(cpus: Collection[int]) -> Iterator[None]:
    """Restricts this thread and its processes to some CPUs during the block; raises BenchmarkError if it may not."""
    before = os.sched_getaffinity(0)
    try:
        # The kernel ignores CPUs that do not exist, and raises only if none exists.
        with suppress(OSError):
            os.sched_setaffinity(0, cpus)
        if missing := set(cpus) - os.sched_getaffinity(0):
            raise BenchmarkError(f"CPUs {sorted(missing)}: expected existing CPUs that this process may use")
        yield
    finally:
        os.sched_setaffinity(0, before)


if __name__ == "__main__":
    sys.modules["rich"] = None  # type: ignore[assignment]  # structlog imports it, but no server has it
    work(resolve_name(sys.argv[1]))
