"""Rounds in which systems take turns, so that other load on the machine affects all of them alike.

Every round begins with another system. `take_turns` is the order alone. `play` measures systems in processes: in each
round every system starts in a new process; then all do each task, one after the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from tqdm import tqdm

from benchmarks.harness.process import Launch, SystemProcess, Turn

AnySystem = TypeVar("AnySystem")


def in_turn(systems: Sequence[AnySystem], number: int) -> list[AnySystem]:
    """Returns the order of a round: round `number` begins with system `number` modulo their count."""
    first = number % len(systems)
    return [*systems[first:], *systems[:first]]


def take_turns(systems: Sequence[AnySystem], rounds: int, label: str) -> Iterator[AnySystem]:
    """Yields each system once per round, and shows a labeled progress bar."""
    with tqdm(total=rounds * len(systems), desc=label, unit=" turns", disable=None) as progress:
        for number in range(rounds):
            for system in in_turn(systems, number):
                yield system
                progress.update()


@dataclass(frozen=True, slots=True)
class Player:
    """A system and its tasks by name, the same names for all players. The last task should need the most memory."""

    launch: Launch
    tasks: Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one system in one round, by task; `peak_bytes` is that of its process."""

    load_seconds: float
    turns: dict[str, Turn]

    @property
    def peak_bytes(self) -> int:
        """Peak resident memory after all tasks."""
        return max(turn.peak_bytes for turn in self.turns.values())


def play(players: Sequence[Player], rounds: int, label: str) -> dict[str, list[Round]]:
    """Measures systems in processes; returns the rounds of each, by the name of its launch.

    Raises:
        SystemFailedError: if one fails.
    """
    tasks = list(players[0].tasks)
    played: dict[str, list[Round]] = {player.launch.name: [] for player in players}
    total = rounds * len(players) * (1 + len(tasks))
    with tqdm(total=total, desc=label, unit=" turns", disable=None) as progress:
        for number in range(rounds):
            order = in_turn(players, number)
            turns: dict[str, dict[str, Turn]] = {player.launch.name: {} for player in order}
            with ExitStack() as stack:
                systems = []
                for player in order:
                    systems.append(stack.enter_context(SystemProcess.run(player.launch)))
                    progress.update()
                for task in tasks:
                    for player, system in zip(order, systems, strict=True):
                        turns[player.launch.name][task] = system.take_turn(player.tasks[task])
                        progress.update()
            for player, system in zip(order, systems, strict=True):
                played[player.launch.name].append(Round(system.loaded.seconds, turns[player.launch.name]))
    return played
