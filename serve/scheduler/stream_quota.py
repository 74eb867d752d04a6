"""The quota of streams: their requests wait for room, and leave a part of the queue free for other requests.

Waiting creates backpressure: the stream reads no further request. A refused request would only be sent again. Every
request of a stream but the first leaves `spare_rows` free: streams never fill the queue. The first competes with all
other requests: no stream starves. Not thread-safe: used in the event loop's thread.
"""

import asyncio
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from dragoman.serve.errors import DeadlineExceededError, QueueFullError
from dragoman.serve.scheduler.request_scheduler import RequestScheduler, Reservation
from dragoman.serve.scheduler.sequence import FairnessKey

# About the duration of a few steps; finished sequences make room.
PAUSE_SECONDS = 0.01


@dataclass(slots=True, eq=False)
class _StreamState:
    """The requests of one stream.

    Attributes:
        lock: held by the request that is admitted next.
        inside: number of admitted requests, waiting or running.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    inside: int = 0

    def leave(self) -> None:
        """Removes a request."""
        self.inside -= 1


class StreamQuota:
    """Reserves rows of one scheduler for the requests of streams."""

    def __init__(self, scheduler: RequestScheduler, spare_rows: int) -> None:
        """Starts without streams, which leave `spare_rows` free while another request of the same stream is inside."""
        self._scheduler = scheduler
        self._spare_rows = spare_rows
        self._line = asyncio.Lock()
        self._queued = 0  # requests that wait for room
        self._states = WeakKeyDictionary[FairnessKey, _StreamState]()

    async def reserve(self, rows: int, stream: FairnessKey, deadline_seconds: float, priority: int) -> Reservation:
        """Waits for room and returns the reservation; the request counts as inside until the reservation ends.

        Raises DeadlineExceededError if there is no room before the deadline; ServiceError as `Scheduler.reserve`,
        except `QueueFullError`.
        """
        state = self._state(stream)
        reservation = self._scheduler.reserve(0, deadline_seconds, priority, patient=True)
        if self._queued or not self._fits(reservation, rows, state):
            await self._wait(reservation, rows, state, deadline_seconds)
        state.inside += 1
        reservation.on_exit = state.leave
        return reservation

    def reserve_now(self, rows: int, stream: FairnessKey, deadline_seconds: float, priority: int) -> Reservation:
        """Reserves rows for several requests of a stream together, none of which counts as its first.

        Raises QueueFullError if they must wait for room, or others wait; ServiceError as `reserve`.
        """
        if self._queued:
            raise QueueFullError("other requests wait for room")
        reservation = self._scheduler.reserve(0, deadline_seconds, priority, patient=True)
        self.widen_now(reservation, rows)
        state = self._state(stream)
        state.inside += 1
        reservation.on_exit = state.leave
        return reservation

    def widen_now(self, reservation: Reservation, rows: int) -> None:
        """Changes the rows of requests that reserve together; raises QueueFullError if they must wait for room."""
        reservation.resize(rows, self._spare_rows)

    async def widen(self, reservation: Reservation, rows: int, stream: FairnessKey, deadline_seconds: float) -> None:
        """Waits for more rows for a request that is inside; raises ServiceError as `reserve`."""
        # A request that waits for room holds none: otherwise two of them could deadlock.
        state = self._states[stream]
        reservation.resize(0)
        state.leave()
        try:
            await self._wait(reservation, rows, state, deadline_seconds)
        finally:
            state.inside += 1

    def _state(self, stream: FairnessKey) -> _StreamState:
        state = self._states.get(stream)
        if state is None:
            state = self._states[stream] = _StreamState()
        return state

    async def _wait(self, reservation: Reservation, rows: int, state: _StreamState, deadline_seconds: float) -> None:
        self._queued += 1
        try:
            # One request per stream queues for the lock and moves to its end after a failed try. So streams take turns
            # however many requests they have, and a request that must leave room does not block one that need not.
            async with asyncio.timeout_at(deadline_seconds), state.lock:
                while not await self._try(reservation, rows, state):
                    pass
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before there was room") from None
        finally:
            self._queued -= 1

    async def _try(self, reservation: Reservation, rows: int, state: _StreamState) -> bool:
        async with self._line:
            fits = self._fits(reservation, rows, state)
            if not fits:
                await asyncio.sleep(PAUSE_SECONDS)
            return fits

    def _fits(self, reservation: Reservation, rows: int, state: _StreamState) -> bool:
        """Reserves the rows if there is room for them; returns whether there is."""
        try:
            reservation.resize(rows, self._spare_rows if state.inside else 0)
        except QueueFullError:
            return False
        return True
