"""Where requests come in: what would only keep others from being answered in time is refused before it is looked at.

The queue of a model refuses what does not fit or would wait too long, but by then a request was read, checked and
split. If many more come than can be answered, that work delays those that were let in until they come too late: their
work is lost, and in the end nobody is answered. Both interfaces ask here first; knows neither protocol.

How busy the CPUs are that this process may use; what overload is known by. Asked by `serve.api.load_shedding`.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import structlog

from serve.errors import DeadlineExceededError, QueueFullError
from serve.observability.logs import RequestRecord
from serve.observability.metrics import Method
from serve.scheduler.scheduler import Scheduler
from serve.system import available_cpus


class Processor:
    """How busy the CPUs are. Belongs to the thread whose time counts by itself."""

    def __init__(self) -> None:
        """Begins to measure."""
        self._cpus = available_cpus()
        self._last = self._read()

    def busy_share(self) -> float:
        """Returns how busy they were since the last call, 0 to 1: all CPUs of this process, or the thread's own one."""
        before, self._last = self._last, self._read()
        seconds, process_seconds, thread_seconds = (new - old for new, old in zip(self._last, before, strict=True))
        return max(process_seconds / self._cpus, thread_seconds) / seconds if seconds else 0.0

    def _read(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), time.thread_time()


# What comes too late while the CPUs are so busy came in too late, or too much came in before it.
BUSY_SHARE = 0.8
# If several of so many requests came too late, then for a while no more are let in than keep the engines busy: one for
# each slot, and a few that wait. A queue that never empties makes everybody wait, and nobody faster.
ENDINGS = 32
SEVERAL_LATE = 3
STRAINED_SECONDS = 10.0
SLOTS_PER_WAITING = 8
# If most of them did, nobody comes in for a moment. Who has waited unseen in the buffers of the network and has no time
# left is sent away by then; who comes next has some.
MOST_LATE = 17
SHUT_SECONDS = 0.1

REFUSAL = "as many requests are in hand as can be answered; try again later"

log = structlog.get_logger("dragoman")


class LoadShedder:
    """Counts requests in and out. Belongs to the event loop's thread."""

    def __init__(
        self,
        schedulers: Callable[[], Iterable[Scheduler]],
        busy_share: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Counts nobody yet.

        Args:
            schedulers: of the models that are served.
            busy_share: tells how busy the CPUs were since it was last asked, 0 to 1.
            clock: the time in seconds.
        """
        self._schedulers = schedulers
        self._busy_share = busy_share
        self._clock = clock
        self._busy = False
        self._inside = 0
        self._refused = 0
        self._late = deque[bool](maxlen=ENDINGS)
        self._strained_until_seconds = -math.inf
        self._shut_until_seconds = -math.inf

    @property
    def open(self) -> bool:
        """Whether one more may come in."""
        return self._clock() >= self._shut_until_seconds and self._inside < self._most()

    def refuse(self) -> QueueFullError:
        """Counts one that may not come in; returns what it is told."""
        self._refused += 1
        return QueueFullError(REFUSAL)

    @contextmanager
    def enter(self, record: RequestRecord, method: Method) -> Iterator[None]:
        """Lets a request in while the block runs.

        Args:
            record: says why it was cancelled or how its stream of events ended, neither of which is an error here.
            method: what it wants; what needs no engine passes uncounted.

        Raises:
            QueueFullError: if it may not come in.
        """
        if method == "other":
            yield
            return
        if not self.open:
            raise self.refuse()
        self._inside += 1
        try:
            yield
        except DeadlineExceededError:
            self._note_late()
            raise
        except asyncio.CancelledError:
            if _came_too_late(record):
                self._note_late()
            raise
        else:
            if _came_too_late(record):
                self._note_late()
            else:
                self._late.append(False)
        finally:
            self._inside -= 1

    def watch(self) -> None:
        """Looks how busy the CPUs were since the last call, and logs who was refused; to be called now and then."""
        self._busy = self._busy_share() >= BUSY_SHARE
        if self._refused:
            log.warning("refused before anything was read", requests=self._refused, inside=self._inside)
            self._refused = 0

    def _most(self) -> int:
        """Returns how many requests may be inside: one for each row, and a few that are being read or answered."""
        schedulers = tuple(self._schedulers())
        slots = sum(scheduler.slots for scheduler in schedulers)
        strained = self._clock() < self._strained_until_seconds
        rows = slots if strained else sum(scheduler.capacity_rows for scheduler in schedulers)
        return rows + max(1, slots // SLOTS_PER_WAITING)

    def _note_late(self) -> None:
        if not self._busy:  # the deadline was too short for whatever it was, and nobody else's is in danger
            return
        now_seconds = self._clock()
        self._late.append(True)
        late = sum(self._late)
        if late >= SEVERAL_LATE:
            self._strained_until_seconds = now_seconds + STRAINED_SECONDS
        if late >= MOST_LATE:
            self._late.clear()
            self._shut_until_seconds = now_seconds + SHUT_SECONDS


def _came_too_late(record: RequestRecord) -> bool:
    return record.outcome == DeadlineExceededError.reason
