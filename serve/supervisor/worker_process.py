"""A forked worker as the supervisor sees it."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import structlog

from dragoman.serve.host.process_link import ProcessLink
from dragoman.serve.host.system import available_cpus, use_cpus
from dragoman.serve.observability.log_writer import LOG_WRITER
from dragoman.serve.worker import WorkerSlot, WorkerState


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


# Signals with handlers in the supervisor.
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)

log = structlog.get_logger("dragoman")


@dataclass(eq=False, slots=True)
class WorkerProcess:
    """A worker, running or ended.

    Attributes:
        replaced: whether another worker has taken its place.
        status: the exit status, negative for a signal; None while it runs.
        failure: why it cannot serve, if that is known.
        silent: whether its event loop stood still.
        serving_since_seconds: when it first served; None: not yet.
        serving: set when it listens and is ready for the first time.
        ended: set when it has ended.
    """

    number: int
    process_id: int
    end: socket.socket
    link: ProcessLink
    state: WorkerState = field(default_factory=WorkerState)
    replaced: bool = False
    status: int | None = None
    failure: str | None = None
    silent: bool = False
    serving_since_seconds: float | None = None
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal if the worker runs."""
        if self.status is None:
            os.kill(self.process_id, number)

    def note(self, state: WorkerState) -> None:
        """Takes note of what the worker reports."""
        self.state = state
        if state.listening and state.ready and self.serving_since_seconds is None:
            self.serving_since_seconds = time.monotonic()
            self.serving.set()

    def served_seconds(self) -> float:
        """Returns for how long the worker has served."""
        return 0.0 if self.serving_since_seconds is None else time.monotonic() - self.serving_since_seconds

    async def wait_serving(self) -> bool:
        """Waits until the worker serves or has ended; returns whether it serves."""
        waits = [asyncio.ensure_future(item.wait()) for item in (self.serving, self.ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self.serving.is_set() and not self.ended.is_set()


def fork_worker(
    work: Callable[[WorkerSlot], int],
    slot: WorkerSlot,
    end: socket.socket,
    *,
    cpus: tuple[Collection[int], int],
    inherited: Collection[socket.socket],
    answer: Callable[[WorkerProcess, str, Any], Awaitable[Any]],
) -> WorkerProcess:
    """Forks a process that works in a slot, and returns it; in the new process, does not return.

    Args:
        work: runs in the new process and returns its exit status.
        slot: of the worker, with its end of the link.
        end: the supervisor's end of the link.
        cpus: of the worker, and how many it may use at once.
        inherited: sockets of the supervisor that the worker closes.
        answer: answers the questions of the worker.
    """
    # Until the handlers are those of the worker, a signal would reach the supervisor's event loop.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    process_id = os.fork()
    if process_id == 0:
        _run_worker(work, slot, cpus, (end, *inherited))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
    slot.link.close()
    worker: WorkerProcess

    async def reply(name: str, value: Any) -> Any:
        return await answer(worker, name, value)

    worker = WorkerProcess(slot.number, process_id, end, ProcessLink(end, reply))
    return worker


def _run_worker(
    work: Callable[[WorkerSlot], int],
    slot: WorkerSlot,
    cpus: tuple[Collection[int], int],
    inherited: Collection[socket.socket],
) -> None:
    """Leaves the supervisor's event loop, whose frames stay below on the stack, and never returns to it."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for item in inherited:
            item.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        asyncio._set_running_loop(None)  # noqa: SLF001 - documented for event loops; Python 3.12 does it itself
        use_cpus(*cpus)
        LOG_WRITER.restart()
        status = work(slot)
    except BaseException:
        log.exception("worker_failed")
        LOG_WRITER.drain(1.0)
    finally:
        os._exit(status)
