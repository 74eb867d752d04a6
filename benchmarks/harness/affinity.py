"""Keeps systems and what loads them on CPUs of their own. Linux only; knows nothing of what runs there.

Called by the benchmarks that measure servers.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

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
