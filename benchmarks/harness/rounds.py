"""Systems take turns, round after round, so that whatever else the machine does hits all of them alike.

In a round every system is started anew, in a process of its own; then each task is done by one system after the other.
Every round begins with another system. Knows neither systems nor tasks. Called by the benchmarks.

Figures of several rounds as one: their median and how far they spread; and the ratio of two systems, by round.

A ratio is taken inside each round, where both systems met the same machine. Knows nothing of what was measured.

Keeps systems and what loads them on CPUs of their own. Linux only; knows nothing of what runs there.

Called by the benchmarks that measure servers.

Whether the libraries that a benchmark imports later are installed, and what brings those that are not.

Imports none of them. Called by the commands that measure.
"""

import os
import statistics
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Protocol, Self, TypeVar

from pydantic import Field

from benchmarks.harness.process import Assignment, Launch, Loaded, SystemProcess, Turn

# Smaller figures are shown with a digit behind the point.
FINE_BELOW = 100


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of the figures of all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Self:
        """Returns the spread of the figures, at least one."""
        return cls(statistics.median(figures), min(figures), max(figures))

    def format(self, form: str) -> str:
        """Returns median, smallest and largest, each in a form of `str.format`: as in `237 (125-241)`."""
        return f"{form.format(self.median)} ({form.format(self.low)}-{form.format(self.high)})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Returns how many times theirs ours is.

    Args:
        ours: figures of one system, round by round.
        theirs: those of another one, from the same rounds.
    """
    return Spread.of([our / their for our, their in zip(ours, theirs, strict=True)])


def format_spread(figures: Sequence[float], base: Sequence[float] | None) -> str:
    """Returns the median of figures and how many times those of a base they are.

    Args:
        figures: round by round.
        base: those of what this is compared with, from the same rounds; None: with nothing.

    Returns:
        As in `3,402, 1.66x (1.61-1.70)`: median, median of the ratios, their smallest and their largest.
    """
    return format_figures(figures, None if base is None else ratio(figures, base))


def format_figures(figures: Sequence[float], times: Spread | None) -> str:
    """Returns the median of figures, and a ratio behind it if there is one."""
    middle = Spread.of(figures).median
    median = f"{middle:.1f}" if middle < FINE_BELOW else f"{middle:,.0f}"
    return median if times is None else f"{median}, {format_ratio(times)}"


def format_range(figures: Sequence[float], form: str) -> str:
    """Returns figures, round by round, as their spread; one figure as it is."""
    return form.format(figures[0]) if len(figures) == 1 else Spread.of(figures).format(form)


def format_ratio(times: Spread) -> str:
    """Returns a ratio as in `1.66x (1.61-1.70)`: median, smallest and largest of the rounds."""
    return f"{times.median:.2f}x ({times.low:.2f}-{times.high:.2f})"


# The type of an option that names CPUs, counted from 0.
Cpus = tuple[Annotated[int, Field(ge=0)], ...]


class AffinityError(Exception):
    """This process may not run on a CPU; the message names those on which it may."""


@contextmanager
def running_on(cpus: Collection[int]) -> Iterator[None]:
    """Keeps this thread, and what it starts, on some CPUs until the block ends.

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
    """Goes to some CPUs and comes back, so that wrong ones are told before anything is measured.

    Raises:
        AffinityError: if this process may not run there.
    """
    with running_on(cpus):
        return


def _move(cpus: Collection[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise AffinityError(f"CPUs {sorted(cpus)}: {error.strerror}, expected some that there are") from error
    # Of several CPUs, the kernel takes those that there are and says nothing of the others.
    missing = set(cpus) - os.sched_getaffinity(0)
    if missing:
        raise AffinityError(f"CPUs {sorted(missing)}: expected some that there are, and that this process may use")


def missing_library(extras: Mapping[str, str]) -> str | None:
    """Returns what to tell about the first library that is not installed; None if there is none.

    Args:
        extras: the extra of the project that brings a library, by the library's name.
    """
    for library, extra in extras.items():
        if find_spec(library) is None:
            return f"{library} is not installed: pip install '.[{extra}]'"
    return None


AnyPlayer = TypeVar("AnyPlayer")
AnyName = TypeVar("AnyName", bound=Hashable)
AnyTurn = TypeVar("AnyTurn")


class Progress(Protocol):
    """A progress bar, of which `tqdm` is one."""

    def update(self, n: float = 1) -> object:
        """Tells that `n` more steps are done."""


@dataclass(frozen=True, slots=True)
class Player:
    """A system and what it is told to do.

    Attributes:
        launch: how it is started.
        tasks: by name, the same names for all players; the last one should need the most memory.
    """

    launch: Launch
    tasks: Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """What one system did in one round.

    Attributes:
        load_seconds: from its options to its first turn.
        peak_bytes: the most memory that its process held.
        tokens_per_second: target tokens per second, by the name of the task.
        seconds: how long each turn took.
    """

    load_seconds: float
    peak_bytes: int
    tokens_per_second: dict[str, float]
    seconds: dict[str, float]


def in_turn(players: Sequence[AnyPlayer], number: int) -> list[AnyPlayer]:
    """Returns the order of a round, by its number: every round begins with another player."""
    first = number % len(players)
    return [*players[first:], *players[:first]]


async def take_turns(
    players: Sequence[AnyName],
    rounds: int,
    take_turn: Callable[[AnyName], Awaitable[AnyTurn]],
    advance: Callable[[], object],
) -> dict[AnyName, list[AnyTurn]]:
    """Has each player take its turn in every round, and returns what they did, round by round.

    Args:
        players: in the order of the first round.
        rounds: so many.
        take_turn: what a player does in a round.
        advance: is called after each turn.
    """
    turns: dict[AnyName, list[AnyTurn]] = {player: [] for player in players}
    for number in range(rounds):
        for player in in_turn(players, number):
            turns[player].append(await take_turn(player))
            advance()
    return turns


def steps_of(systems: int, tasks: int, rounds: int) -> int:
    """Returns how many steps `play` tells a progress bar."""
    return rounds * systems * (1 + tasks)


def play(
    players: Sequence[Player], *, rounds: int, seconds: float | None, progress: Progress
) -> dict[str, list[Round]]:
    """Measures systems.

    Args:
        players: all systems, and what each does.
        rounds: so many.
        seconds: the least length of a turn, about; None: every task is done once.
        progress: is told each start and each turn.

    Returns:
        For each system by its name what it did, round by round.

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
