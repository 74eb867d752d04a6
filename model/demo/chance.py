"""Random choices for the demo grammar, the same on every machine and in every Python version.

Built on `Random.random()` alone, the one method whose sequence Python promises to keep for a seed. Called by every
module that chooses between rules or words.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def spread(weights: Mapping[T, int]) -> tuple[T, ...]:
    """Lays out options so that a plain pick takes each as often as its weight says."""
    return tuple(option for option, weight in weights.items() for _ in range(weight))


class Chance:
    """A source of choices that repeats itself for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        """Takes one of the options, each equally likely."""
        return options[int(self._random() * len(options))]

    def happens(self, probability: float) -> bool:
        """Returns True in the given share of calls."""
        return self._random() < probability
