"""Rounds in which systems take turns, so that other load on the machine affects all of them alike.

Every round begins with another system. `measure_rounds` measures variants in this process, `play` systems in processes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

from tqdm import tqdm

from benchmarks.harness.process import Launch, Measurement, run_system

Variant = TypeVar("Variant")
Result = TypeVar("Result")


def rotated(systems: Sequence[Variant], number: int) -> list[Variant]:
    """Returns the order of a round: round `number` begins with system `number` modulo their count."""
    first = number % len(systems)
    return [*systems[first:], *systems[:first]]


def measure_rounds(
    variants: Iterable[Variant], rounds: int, label: str, measure: Callable[[Variant], Result]
) -> dict[str, list[Result]]:
    """Measures each variant once per round, and shows a labeled progress bar; returns the results by name."""
    names = {str(variant): variant for variant in variants}
    found: dict[str, list[Result]] = {name: [] for name in names}
    order = [name for number in range(rounds) for name in rotated(list(names), number)]
    for name in tqdm(order, label, unit=" runs", disable=None):
        found[name].append(measure(names[name]))
    return found


class Round(NamedTuple):
    """The results of one system in one round, by task."""

    load_seconds: float
    measurements: dict[str, Measurement]

    @property
    def peak_bytes(self) -> int:
        """Peak resident memory after all tasks."""
        return max(measurement.peak_bytes for measurement in self.measurements.values())


def play(launches: Sequence[Launch], rounds: int, label: str) -> dict[str, list[Round]]:
    """Returns the rounds of each system by name; in a round, new processes do each task one after the other."""
    played: dict[str, list[Round]] = {launch.name: [] for launch in launches}
    tasks = list(launches[0].tasks)
    with tqdm(total=rounds * len(launches) * (1 + len(tasks)), desc=label, unit=" runs", disable=None) as progress:
        for number in range(rounds):
            with ExitStack() as stack:
                order = [(item, stack.enter_context(run_system(item))) for item in rotated(launches, number)]
                for launch, system in order:
                    played[launch.name].append(Round(system.ask(launch.options), {}))
                    progress.update()
                for task in tasks:
                    for launch, system in order:
                        played[launch.name][-1].measurements[task] = Measurement(*system.ask(launch.tasks[task]))
                        progress.update()
    return played
