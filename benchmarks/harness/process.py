"""The inside of a system's process: loads the system, then works whenever it is its turn, and times both.

Speaks lines of JSON on standard input and output: options in, `Loaded` out; then for every `Assignment` a `Turn`.
Knows no system; the module that is the process gives it one. The other side is `benchmarks.harness.process`.

A system in a process of its own, seen from outside: it is started, given turns and stopped.

A process of its own gives a system all of its memory figures, and keeps the libraries of systems apart. What happens
inside is `benchmarks.harness.process`. Called by `benchmarks.harness.rounds`.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, Self

# Does a task so many times and returns how many target tokens it made.
Work = Callable[[int], int]


class System(Protocol):
    """Something that is measured."""

    @property
    def plan(self) -> Callable[..., Work]:
        """Takes a task and returns what the clock is to run; whatever that needs beforehand is done there."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A system is ready; `seconds` is how long it took once its libraries were imported."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """What is to be done in a turn.

    Attributes:
        task: arguments of the system's `plan`.
        seconds: the task is warmed up, then repeated until about so much time has passed, once at least; None: it is
            done once, and `plan` has warmed it up.
    """

    task: dict[str, Any]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What was done in a turn.

    Attributes:
        tokens: target tokens that were made.
        seconds: how long that took.
        peak_bytes: the most memory that the process has held so far.
    """

    tokens: int
    seconds: float
    peak_bytes: int

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second."""
        return self.tokens / self.seconds


def work(load: Callable[..., System]) -> None:
    """Loads a system and takes its turns, until there are no more.

    Args:
        load: makes the system of the options.
    """
    options = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    system = load(**options)
    _answer(Loaded(time.perf_counter() - started))
    for line in sys.stdin:
        assignment = Assignment(**json.loads(line))
        _answer(take_turn(system.plan(**assignment.task), assignment.seconds))


def take_turn(task: Work, at_least_seconds: float | None, clock: Callable[[], float] = time.perf_counter) -> Turn:
    """Does a task, timed: once, or so long; then it is done once before, to warm up and to see how often."""
    times = 1 if at_least_seconds is None else _warm_up(task, at_least_seconds, clock)
    started = clock()
    tokens = task(times)
    return Turn(tokens, clock() - started, peak_bytes())


def _warm_up(task: Work, at_least_seconds: float, clock: Callable[[], float]) -> int:
    started = clock()
    task(1)
    return max(1, math.ceil(at_least_seconds / (clock() - started)))


def peak_bytes() -> int:
    """Returns the most memory that this process has held (Linux).

    Not `ru_maxrss` of `getrusage`: a process inherits that from the one that started it, which holds whole models.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kibibytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024


def _answer(record: Loaded | Turn) -> None:
    print(json.dumps(asdict(record)), flush=True)


class SystemFailedError(Exception):
    """A system did not load, or failed in its turn; the message holds what it wrote last."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a system is started.

    Attributes:
        name: in tables and messages.
        module: what its process runs; it calls `benchmarks.harness.process.work`.
        options: from which the system is made; JSON can hold them.
        python: the interpreter of its process, ours or that of another environment.
    """

    name: str
    module: str
    options: dict[str, Any]
    python: str = sys.executable


class SystemProcess:
    """A system that has loaded and waits for its turns.

    Attributes:
        loaded: how long it took to load.
    """

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
        command = [launch.python, "-m", launch.module]
        with (
            TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            # In a session of its own, Ctrl-C reaches us alone, and the block ends.
            subprocess.Popen(  # noqa: S603 - our own command line
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
                # What a process that has died never read; the message is about its death, not about that.
                with suppress(BrokenPipeError):
                    system._requests.close()

    def take_turn(self, assignment: Assignment) -> Turn:
        """Gives the system a turn and waits for its end.

        Raises:
            SystemFailedError: if it fails.
        """
        return Turn(**self._ask(asdict(assignment)))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            print(json.dumps(request), file=self._requests, flush=True)
            answer: dict[str, Any] = json.loads(self._answers.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise SystemFailedError(f"{self._name}: {self._last_line()}") from error
        return answer

    def _last_line(self) -> str:
        self._process.kill()  # it has ended, or it does not speak our language and would wait for ever
        self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"ended with status {self._process.returncode} and wrote nothing"
