"""Rounds in which systems take turns, so that other load on the machine affects all of them alike.

In each round every system starts in a new process; then all run each task, one after the other. Every round begins with
another system. Ratios of two systems are taken within a round and reported as median and range. Also: CPU affinity
(Linux only), a check for missing libraries, and the frame of every benchmark that writes a report.
"""

import os
import statistics
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Protocol, Self, TypeVar

from pydantic import Field

from benchmarks.harness.process import Assignment, Launch, Loaded, SystemFailedError, SystemProcess, Turn
from loadtest.report_files import ReportFileError, ReportFiles
from model.data.corpus import CorpusError
from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import BundleError

# Smaller figures have one decimal.
FINE_BELOW = 100


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Self:
        """Returns the spread of one or more figures."""
        return cls(statistics.median(figures), min(figures), max(figures))

    def format(self, form: str) -> str:
        """Returns `237 (125-241)`: median, minimum and maximum, each formatted with `form`."""
        return f"{form.format(self.median)} ({form.format(self.low)}-{form.format(self.high)})"


def ratio(system: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Returns the ratio of the system to the baseline; both have one figure per round."""
    return Spread.of([figure / base for figure, base in zip(system, baseline, strict=True)])


def format_spread(figures: Sequence[float], base: Sequence[float] | None) -> str:
    """Returns `3,402, 1.66x (1.61-1.70)`: the median of the rounds, then median and range of the ratios to a base."""
    return format_figures(figures, None if base is None else ratio(figures, base))


def format_figures(figures: Sequence[float], times: Spread | None) -> str:
    """Returns the median of figures, followed by a ratio if given."""
    middle = Spread.of(figures).median
    median = f"{middle:.1f}" if middle < FINE_BELOW else f"{middle:,.0f}"
    return median if times is None else f"{median}, {format_ratio(times)}"


def format_range(figures: Sequence[float], form: str) -> str:
    """Returns the spread of the rounds; a single figure without a range."""
    return form.format(figures[0]) if len(figures) == 1 else Spread.of(figures).format(form)


def format_ratio(times: Spread) -> str:
    """Returns `1.66x (1.61-1.70)`: median, minimum and maximum."""
    return f"{times.median:.2f}x ({times.low:.2f}-{times.high:.2f})"


def table_line(cells: Sequence[str]) -> str:
    """Returns a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


# CPU numbers of an option, from 0.
Cpus = tuple[Annotated[int, Field(ge=0)], ...]


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
        _move(cpus)
        yield
    finally:
        os.sched_setaffinity(0, before)


def check_cpus(cpus: Collection[int]) -> None:
    """Reports CPUs that this process may not use before anything is measured.

    Raises:
        AffinityError: if there is one.
    """
    with running_on(cpus):
        return


def _move(cpus: Collection[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise AffinityError(f"CPUs {sorted(cpus)}: {error.strerror}, expected existing CPUs") from error
    # The kernel silently ignores CPUs that do not exist.
    missing = set(cpus) - os.sched_getaffinity(0)
    if missing:
        raise AffinityError(f"CPUs {sorted(missing)}: expected existing CPUs that this process may use")


def require_libraries(libraries: Iterable[str]) -> None:
    """Checks that libraries are installed, without importing them.

    Raises:
        ModuleNotFoundError: for the first library that is missing.
    """
    for library in libraries:
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)


# Reported by every benchmark.
FAILURES = (AffinityError, BundleError, CorpusError, ReportFileError, SystemFailedError, TokenizerError)


@contextmanager
def reporting(command: str, files: Iterable[ReportFiles], *errors: type[Exception]) -> Iterator[None]:
    """Prepares the files of a report, and runs the block that measures and writes it.

    Raises:
        SystemExit: with the reason, if the input is invalid, a file cannot be written, or one of the errors occurs.
    """
    known: tuple[type[Exception], ...] = (*FAILURES, *errors)
    try:
        for each in files:
            each.prepare()
        yield
    except known as error:
        raise SystemExit(f"dragoman bench {command}: {error}") from error


AnyPlayer = TypeVar("AnyPlayer")
AnyName = TypeVar("AnyName", bound=Hashable)
AnyTurn = TypeVar("AnyTurn")


class Progress(Protocol):
    """A progress bar, such as `tqdm`."""

    def update(self, n: float = 1) -> object:
        """Advances by `n` steps."""


@dataclass(frozen=True, slots=True)
class Player:
    """A system and its tasks by name, the same names for all players. The last task should need the most memory."""

    launch: Launch
    tasks: Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one system in one round; speeds, in target tokens per second, and durations by task."""

    load_seconds: float
    peak_bytes: int
    tokens_per_second: dict[str, float]
    seconds: dict[str, float]


def in_turn(players: Sequence[AnyPlayer], number: int) -> list[AnyPlayer]:
    """Returns the order of a round: round `number` begins with player `number` modulo their count."""
    first = number % len(players)
    return [*players[first:], *players[:first]]


async def take_turns(
    players: Sequence[AnyName],
    rounds: int,
    take_turn: Callable[[AnyName], Awaitable[AnyTurn]],
    advance: Callable[[], object],
) -> dict[AnyName, list[AnyTurn]]:
    """Has each player take a turn in every round; returns the turns of each. Calls `advance` after each turn."""
    turns: dict[AnyName, list[AnyTurn]] = {player: [] for player in players}
    for number in range(rounds):
        for player in in_turn(players, number):
            turns[player].append(await take_turn(player))
            advance()
    return turns


def steps_of(systems: int, tasks: int, rounds: int) -> int:
    """Returns the number of progress steps that `play` reports."""
    return rounds * systems * (1 + tasks)


def play(
    players: Sequence[Player], *, rounds: int, seconds: float | None, progress: Progress
) -> dict[str, list[Round]]:
    """Measures systems; returns the rounds of each, by its name.

    A turn lasts about `seconds` or more; None: each task runs once. `progress` advances at each start and each turn.

    Raises:
        SystemFailedError: if one fails.
    """
    played: dict[str, list[Round]] = {player.launch.name: [] for player in players}
    for number in range(rounds):
        for name, result in _play_round(in_turn(players, number), seconds, progress).items():
            played[name].append(result)
    return played


def _play_round(order: Sequence[Player], seconds: float | None, progress: Progress) -> dict[str, Round]:
    turns: dict[str, dict[str, Turn]] = {player.launch.name: {} for player in order}
    with ExitStack() as stack:
        systems = []
        for player in order:
            systems.append(stack.enter_context(SystemProcess.run(player.launch)))
            progress.update()
        for task in order[0].tasks:
            for player, system in zip(order, systems, strict=True):
                turns[player.launch.name][task] = system.take_turn(Assignment(player.tasks[task], seconds))
                progress.update()
    return {
        player.launch.name: _round(system.loaded, turns[player.launch.name])
        for player, system in zip(order, systems, strict=True)
    }


def _round(loaded: Loaded, turns: Mapping[str, Turn]) -> Round:
    return Round(
        loaded.seconds,
        max(turn.peak_bytes for turn in turns.values()),
        {task: turn.tokens_per_second for task, turn in turns.items()},
        {task: turn.seconds for task, turn in turns.items()},
    )
