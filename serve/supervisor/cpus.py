"""Divides the CPUs among processes."""

import os
from collections.abc import Sequence
from itertools import pairwise

from dragoman.serve.host.system import available_cpus


def divide(cpus: Sequence[int], count: int) -> list[frozenset[int]]:
    """Returns CPUs for each of `count` processes: neighbors, none twice if there are enough."""
    if count > len(cpus):
        return [frozenset((cpus[number % len(cpus)],)) for number in range(count)]
    bounds = [number * len(cpus) // count for number in range(count + 1)]
    return [frozenset(cpus[first:end]) for first, end in pairwise(bounds)]


def share_of(number: int, count: int) -> tuple[frozenset[int], int]:
    """Returns the CPUs of a process, and how many of them it may use at once.

    With a quota below the number of CPUs, every process may run on all of them: other containers may have the same.
    """
    cpus = sorted(os.sched_getaffinity(0))
    allowed = available_cpus()
    if allowed < len(cpus):
        return frozenset(cpus), max(1, len(divide(range(allowed), count)[number]))
    share = divide(cpus, count)[number]
    return share, len(share)
