"""Systems take turns, round after round, so that whatever else the machine does hits all of them alike.

In a round every system is started anew, in a process of its own; then each task is done by one system after the other.
Every round begins with another system. Knows neither systems nor tasks. Called by the benchmarks.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from loadtest.system_process import Launch, SystemProcess
from loadtest.worker import Assignment, Turn


class Progress(Protocol):
    """A progress bar, of which `tqdm` is one."""

    def update(self, n: float = 1) -> object:
        """Tells that `n` more steps are done."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one system did in one round.

    Attributes:
        load_seconds: from its options to its first turn.
        peak_bytes: the most memory that its process held.
        tokens_per_second: target tokens per second, by the name of the task.
    """

    load_seconds: float
    peak_bytes: int
    tokens_per_second: dict[str, float]


def steps_of(systems: int, tasks: int, rounds: int) -> int:
    """Returns how many steps `play` tells a progress bar."""
    return rounds * systems * (1 + tasks)


def play(
    launches: Sequence[Launch], tasks: Mapping[str, dict[str, Any]], *, rounds: int, seconds: float, progress: Progress
) -> dict[str, list[Round]]:
    """Measures systems.

    Args:
        launches: one for each system.
        tasks: by name; the last one should need the most memory.
        rounds: so many.
        seconds: the least length of a turn, about.
        progress: is told each start and each turn.

    Returns:
        For each system by its name what it did, round by round.

    Raises:
        SystemFailedError: if one fails.
    """
    played: dict[str, list[Round]] = {launch.name: [] for launch in launches}
    for number in range(rounds):
        first = number % len(launches)
        order = [*launches[first:], *launches[:first]]
        for name, result in _play_round(order, tasks, seconds, progress).items():
            played[name].append(result)
    return played


def _play_round(
    order: Sequence[Launch], tasks: Mapping[str, dict[str, Any]], seconds: float, progress: Progress
) -> dict[str, Round]:
    turns: dict[str, dict[str, Turn]] = {launch.name: {} for launch in order}
    with ExitStack() as stack:
        systems = {}
        for launch in order:
            systems[launch.name] = stack.enter_context(SystemProcess.run(launch))
            progress.update()
        for task, arguments in tasks.items():
            for name, system in systems.items():
                turns[name][task] = system.take_turn(Assignment(arguments, seconds))
                progress.update()
    return {
        name: Round(
            system.loaded.seconds,
            max(turn.peak_bytes for turn in turns[name].values()),
            {task: turn.tokens_per_second for task, turn in turns[name].items()},
        )
        for name, system in systems.items()
    }
