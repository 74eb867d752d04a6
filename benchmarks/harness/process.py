"""The inside of a system's process: loads the system, then works whenever it is its turn, and times both.

Speaks lines of JSON on standard input and output: options in, `Loaded` out; then for every `Assignment` a `Turn`.
Knows no system; the module that is the process gives it one. The other side is `benchmarks.harness.system_process`.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

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
