"""Systems take turns, round after round, so that whatever else the machine does hits all of them alike.

In a round every system is started anew, in a process of its own; then each task is done by one system after the other.
Every round begins with another system. Knows neither systems nor tasks. Called by the benchmarks.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from benchmarks.harness.process import Assignment, Loaded, Turn
from benchmarks.harness.system_process import Launch, SystemProcess

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
