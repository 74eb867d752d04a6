"""Load shedding: rejects requests before they are read while the server is overloaded.

The queue of a model rejects requests too, but only after they are read, checked and split. Under overload that work
delays accepted requests past their deadlines, until no response is in time. Overload means late requests while the CPUs
are busy.

New requests come before the work of earlier ones, and the work of several requests begins together. A request takes
several iterations of the event loop to arrive, each of which also has a part of the work. So a busy loop would leave
new calls in gRPC's queue until their deadlines, and nothing rejects them there. Work that begins together shares
iterations, and rows of the engine's batch.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Self

import structlog

from dragoman.serve.errors import DeadlineExceededError, QueueFullError
from dragoman.serve.host.system import available_cpus
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.request_metrics import Method


class Processor:
    """Measures CPU utilization. Belongs to one thread, whose time also counts by itself."""

    def __init__(self) -> None:
        self._cpus = available_cpus()
        self._last = self._read()

    def busy_share(self) -> float:
        """Returns the utilization since the last call, 0 to 1: the larger of process time per CPU and thread time."""
        before, self._last = self._last, self._read()
        seconds, process_seconds, thread_seconds = (new - old for new, old in zip(self._last, before, strict=True))
        return max(process_seconds / self._cpus, thread_seconds) / seconds if seconds else 0.0

    def _read(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), time.thread_time()


# A late request indicates overload only at this CPU utilization or above.
BUSY_SHARE = 0.8
# If SEVERAL_LATE of the last ENDINGS requests are late, then for STRAINED_SECONDS requests are accepted only up to one
# per slot, plus a few that wait. A queue that never empties adds latency without throughput.
ENDINGS = 32
SEVERAL_LATE = 3
STRAINED_SECONDS = 10.0
SLOTS_PER_WAITING = 8

# Key of the request state: the request's `InFlight`.
IN_FLIGHT = "in_flight"

REFUSAL = "the server is overloaded; retry later"

log = structlog.get_logger("dragoman")


# A caller counts as coming for this long after its last request.
COMING_SECONDS = 10.0


class CallerShares:
    """The slots that each caller has. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._taken = dict[str, int]()
        self._last_caller = ""
        self._last_seconds = self._last_of_another_seconds = -math.inf

    def note(self, caller: str, now_seconds: float) -> None:
        """Notes that a caller has come."""
        if caller != self._last_caller:
            self._last_of_another_seconds = self._last_seconds
            self._last_caller = caller
        self._last_seconds = now_seconds

    def allow(self, caller: str, capacity: int) -> bool:
        """Returns whether the caller that came last may have one more of all slots: half of them, or any if alone."""
        alone = self._last_seconds >= self._last_of_another_seconds + COMING_SECONDS
        return alone or self._taken.get(caller, 0) < capacity // 2

    def take(self, caller: str) -> None:
        """Gives a slot to a caller."""
        self._taken[caller] = self._taken.get(caller, 0) + 1

    def free(self, caller: str) -> None:
        """Takes a slot back."""
        if left := self._taken.pop(caller) - 1:
            self._taken[caller] = left


class LoadShedder:
    """Limits the requests in flight under overload. Belongs to the event loop's thread.

    Attributes:
        busy: whether the CPUs were busy at the last look.
    """

    def __init__(
        self,
        rows: Callable[[], tuple[int, int]],
        busy_share: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the shedder.

        Args:
            rows: returns how many run at most, and how many run or wait.
            busy_share: returns the CPU utilization since its last call, 0 to 1.
        """
        self._rows = rows
        self._busy_share = busy_share
        self._clock = clock
        self.busy = False
        self._capacities = self._count_capacities()
        self._inside = 0
        self._shares = CallerShares()
        self._refused = 0
        self._late = deque[bool](maxlen=ENDINGS)
        self._in_time_seconds = deque[float](maxlen=ENDINGS)
        self._strained_until_seconds = -math.inf

    def has_room(self, caller: str, remaining_seconds: float | None = None) -> bool:
        """Returns whether one more request of a caller is accepted now, with this time until its deadline."""
        now_seconds = self._clock()
        self._shares.note(caller, now_seconds)
        usual, without_queue = self._capacities
        capacity = without_queue if now_seconds < self._strained_until_seconds else usual
        if self._inside >= capacity:
            return False
        if self.busy and remaining_seconds is not None and remaining_seconds < self._min_seconds():
            return False
        return self._inside < without_queue or self._shares.allow(caller, capacity)

    def refuse(self) -> QueueFullError:
        """Counts a rejected request and returns its error."""
        self._refused += 1
        return QueueFullError(REFUSAL)

    def enter(self, record: RequestRecord, method: Method) -> "InFlight":
        """Accepts a request for the duration of a block. The method `other` needs no engine and is not counted.

        Raises QueueFullError if the request is not accepted.
        """
        in_flight = InFlight(self, record, counted=method != "other")
        in_flight.enter()
        return in_flight

    def expect(self, record: RequestRecord, method: Method, *, arrived: bool) -> "InFlight":
        """Returns the entry of a request whose body is not read; the request is not in flight until it enters.

        `arrived`: the body has arrived, so that the request enters at once.

        Raises QueueFullError if the body has not arrived and the request would not be accepted now.
        """
        in_flight = InFlight(self, record, counted=method != "other")
        if in_flight.counted and not arrived and not self.has_room(in_flight.caller):
            raise self.refuse()
        return in_flight

    def take(self, caller: str) -> float:
        """Counts a request in flight and returns the time; raises QueueFullError if there is no room for its caller."""
        if not self.has_room(caller):
            raise self.refuse()
        self._inside += 1
        self._shares.take(caller)
        return self._clock()

    def release(self, caller: str) -> None:
        """Ends the count of a request."""
        self._inside -= 1
        self._shares.free(caller)

    def watch(self) -> None:
        """Updates what the limits depend on, and logs the number of rejected requests. Must be called periodically."""
        self.busy = self._busy_share() >= BUSY_SHARE
        self._capacities = self._count_capacities()
        if self._refused:
            log.warning("requests_shed", requests=self._refused, inside=self._inside)
            self._refused = 0

    def _count_capacities(self) -> tuple[int, int]:
        """Returns the maximum of requests, usually and if strained.

        There is one per row, and a few are being read or written.
        """
        slots, capacity_rows = self._rows()
        few = max(1, slots // SLOTS_PER_WAITING)
        return capacity_rows + few, slots + few

    def _min_seconds(self) -> float:
        """Returns a time that three of four requests exceeded lately. With less, a request would probably be late."""
        durations = sorted(self._in_time_seconds)
        return durations[len(durations) // 4] if durations else 0.0

    def record_end(self, since_seconds: float, *, late: bool) -> None:
        """Takes note of the end of a request that was in flight since a time."""
        if not late:
            self._late.append(False)
            self._in_time_seconds.append(self._clock() - since_seconds)
        elif self.busy:  # otherwise the deadline was too short, and other requests are not at risk
            self._late.append(True)
            if sum(self._late) >= SEVERAL_LATE:
                self._strained_until_seconds = self._clock() + STRAINED_SECONDS


class InFlight:
    """The slot of one request among those in flight, for the duration of a block.

    A class, because a generator would take twice the time, for every request.

    Attributes:
        counted: whether the request needs a slot.
        inside: whether it has one.
    """

    def __init__(self, load_shedder: LoadShedder, record: RequestRecord, *, counted: bool) -> None:
        self._load_shedder = load_shedder
        self._record = record
        self.caller = record.caller
        self.counted = counted
        self.inside = False
        self._since_seconds = 0.0
        self._at_end: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        at_end, self._at_end = self._at_end, None  # it may hold this object
        if at_end is not None:
            at_end()
        if not self.inside:
            return
        if error is None:
            self._load_shedder.record_end(self._since_seconds, late=_missed_deadline(self._record))
        elif isinstance(error, DeadlineExceededError) or (
            isinstance(error, asyncio.CancelledError) and _missed_deadline(self._record)
        ):
            self._load_shedder.record_end(self._since_seconds, late=True)
        self.leave()

    def enter(self) -> None:
        """Takes the slot once the request is complete; raises QueueFullError if there is none."""
        if self.counted and not self.inside:
            self._since_seconds = self._load_shedder.take(self.caller)
            self.inside = True

    def at_end(self, function: Callable[[], object]) -> None:
        """Calls a function at the end of the block, in place of the function before."""
        self._at_end = function

    def leave(self) -> None:
        """Frees the slot, at the end or while the client does not read its answer; a request takes no second one."""
        if self.inside:
            self._load_shedder.release(self.caller)
            self.inside = False


def _missed_deadline(record: RequestRecord) -> bool:
    return record.outcome == DeadlineExceededError.reason


# Iterations of the event loop from a call or message in gRPC's core to a request that is read: the event of the call,
# its task, the event of its message, and the task again.
GRPC_ITERATIONS = 4
# Time before, in which other calls arrive and an event loop without work sleeps.
GRPC_SECONDS = 0.0002
# Iterations from bytes in a socket to a request that is read: the transport's, the start of its task, and its run.
HTTP_ITERATIONS = 3
# A flood of rejected calls must not stop the work.
MAX_SECONDS = 0.02


class Arrivals:
    """Counts the requests of one interface that arrive, and lets them come first. Belongs to the event loop."""

    def __init__(self, iterations: int, busy: Callable[[], bool], pause_seconds: float = 0.0) -> None:
        """Starts without requests; `busy` returns whether the server is.

        A request arrives within `iterations` of the event loop, the first of which includes a pause.
        """
        self._iterations = iterations
        self._pause_seconds = pause_seconds
        self._busy = busy
        self._count = 0
        # The first request that waits ends the waits of the others.
        self._waits = False
        self._others: list[asyncio.Future[None]] = []

    def note(self) -> None:
        """Counts a request, or a message of a stream."""
        self._count += 1

    async def come_first(self) -> None:
        """Waits, if the server is busy, until no more arrive or `MAX_SECONDS` are over; all waits end together."""
        if not self._busy():
            return
        if self._waits:
            # A future for each: an `asyncio.Event` would take longer.
            self._others.append(asyncio.get_running_loop().create_future())
            await self._others[-1]
            return
        self._waits = True
        try:
            await self._wait()
        finally:
            self._waits, others, self._others = False, self._others, []
            for other in others:
                if not other.done():
                    other.set_result(None)

    async def _wait(self) -> None:
        loop, seen = asyncio.get_running_loop(), -1
        until_seconds = loop.time() + MAX_SECONDS
        while seen != self._count and loop.time() < until_seconds:
            seen = self._count
            await asyncio.sleep(self._pause_seconds)
            for _ in range(1, self._iterations):
                await asyncio.sleep(0)
