"""A measured system in its own process: `SystemProcess` is the outside, `work` the inside.

The process isolates the memory and the libraries of a system. Both sides exchange lines of JSON over standard input and
output: options, answered by `Loaded`, then one `Turn` per task. `python -m benchmarks.harness.process MODULE:NAME` runs
the inside, which imports only the standard library: it adds nothing to the memory of a system. Also: the CPUs of a
process (Linux only).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, Self

# Does the task and returns the number of target tokens.
Work = Callable[[], int]


class System(Protocol):
    """A measured system."""

    @property
    def prepare(self) -> Callable[..., Work]:
        """Maps the arguments of a task to the timed work. Preparation is not timed."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The system is ready; `seconds` excludes the import of its libraries."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of one turn: target tokens, duration, and peak memory of the process since its start."""

    tokens: int
    seconds: float
    peak_bytes: int

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second."""
        return self.tokens / self.seconds


def work(load: Callable[..., System]) -> None:
    """Loads a system with the options on standard input and works through the tasks that follow."""
    options = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    system = load(**options)
    _answer(Loaded(time.perf_counter() - started))
    for line in sys.stdin:
        task = system.prepare(**json.loads(line))
        started = time.perf_counter()
        tokens = task()
        _answer(Turn(tokens, time.perf_counter() - started, peak_bytes()))


def peak_bytes() -> int:
    """Returns the peak resident memory of this process (Linux).

    Not `ru_maxrss` of `getrusage`: a process inherits that from its parent, which holds whole models.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kibibytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024


def _answer(record: Loaded | Turn) -> None:
    print(json.dumps(asdict(record)), flush=True)


class SystemFailedError(Exception):
    """A system failed to load or failed in its turn; the message has the last line of its standard error."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a system: its process calls `load`, as `module:name`, with the options; JSON can hold them."""

    name: str
    load: str
    options: dict[str, Any]
    python: str = sys.executable


class SystemProcess:
    """A loaded system that waits for its turns."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        self._name = name
        self._process = process
        self._requests, self._answers = process.stdin, process.stdout
        self._errors = errors
        self.loaded: Loaded

    @classmethod
    @contextmanager
    def run(cls, launch: Launch) -> Iterator[Self]:
        """Runs a system until the block ends.

        Raises:
            SystemFailedError: if it does not load.
        """
        command = [launch.python, "-m", "benchmarks.harness.process", launch.load]
        with (
            TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            # In its own session: Ctrl-C reaches only this process, which ends the block.
            subprocess.Popen(  # noqa: S603 - a fixed command line
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                start_new_session=True,
            ) as process,
        ):
            system = cls(launch.name, process, errors)
            try:
                system.loaded = Loaded(**system._ask(launch.options))
                yield system
            finally:
                process.kill()
                # A dead process has unread input; `SystemFailedError` already reports its death.
                with suppress(BrokenPipeError):
                    system._requests.close()

    def take_turn(self, task: dict[str, Any]) -> Turn:
        """Does a task, given by the arguments of `System.prepare`, and waits for its end.

        Raises:
            SystemFailedError: if the system fails.
        """
        return Turn(**self._ask(task))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            print(json.dumps(request), file=self._requests, flush=True)
            answer: dict[str, Any] = json.loads(self._answers.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise SystemFailedError(f"{self._name}: {self._last_line()}") from error
        return answer

    def _last_line(self) -> str:
        self._process.kill()  # it has ended, or writes something else and would never end
        self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"ended with status {self._process.returncode} and wrote nothing"


class AffinityError(Exception):
    """This process may not run on a CPU; the message names the CPUs."""


@contextmanager
def running_on(cpus: Collection[int]) -> Iterator[None]:
    """Restricts this thread, and the processes it starts, to some CPUs until the block ends.

    Raises:
        AffinityError: if this process may not run there.
    """
    before = os.sched_getaffinity(0)
    try:
        # The kernel ignores CPUs that do not exist, and raises only if none exists.
        with suppress(OSError):
            os.sched_setaffinity(0, cpus)
        if missing := set(cpus) - os.sched_getaffinity(0):
            raise AffinityError(f"CPUs {sorted(missing)}: expected existing CPUs that this process may use")
        yield
    finally:
        os.sched_setaffinity(0, before)


if __name__ == "__main__":
    work(resolve_name(sys.argv[1]))
