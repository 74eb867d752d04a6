"""Where requests get their places: those of streams wait until there are some, while others are refused at once.

A stream holds its client back by not reading on; refusing what was read would only make the client send it again. So
that streams never take all the room there is, every request of one but the first leaves some of the queue free; the
first competes with everybody else, so that no stream starves either. Called by `serve.translation.translator`.
"""

import asyncio
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from serve.errors import DeadlineExceededError, QueueFullError
from serve.scheduler.reservation import Reservation
from serve.scheduler.scheduler import Scheduler
from serve.translation.flow import Flow

# Room is made by whatever ends; this is about the time of a few steps of a model.
PAUSE_SECONDS = 0.01


@dataclass(slots=True, eq=False)
class _Visitors:
    """The requests of one stream.

    Attributes:
        turn: held by the one of them that is next to come in.
        inside: how many of them wait for a slot or have one.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    inside: int = 0

    def leave(self) -> None:
        """Counts one of them out."""
        self.inside -= 1


class Doorway:
    """The way into the queue of one model. Belongs to the event loop's thread."""

    def __init__(self, scheduler: Scheduler, spare_rows: int) -> None:
        """Starts empty.

        Args:
            scheduler: has the places.
            spare_rows: how many rows of the queue a stream leaves free if it is inside already.
        """
        self._scheduler = scheduler
        self._spare_rows = spare_rows
        self._line = asyncio.Lock()
        self._visitors = WeakKeyDictionary[Flow, _Visitors]()

    async def enter(self, rows: int, flow: Flow | None, deadline_seconds: float, priority: int) -> Reservation:
        """Returns places for a request, which is inside until they are given back; who has no flow does not wait.

        Raises:
            DeadlineExceededError: if there was no room in time.
            ServiceError: if it is not let in for another reason.
        """
        if flow is None:
            return self._scheduler.reserve(rows, deadline_seconds, priority)
        visitors = self._visitors.setdefault(flow, _Visitors())
        reservation = self._scheduler.reserve(0, deadline_seconds, priority, patient=True)
        await self._wait(reservation, rows, visitors, deadline_seconds)
        visitors.inside += 1
        reservation.on_exit = visitors.leave
        return reservation

    async def widen(self, reservation: Reservation, rows: int, flow: Flow | None, deadline_seconds: float) -> None:
        """Keeps more places for a request that is inside.

        Raises:
            ServiceError: as `enter`.
        """
        if flow is None:
            reservation.resize(rows)
            return
        # Who waits for room must not hold any: two of them could wait for each other.
        visitors = self._visitors[flow]
        reservation.resize(0)
        visitors.leave()
        try:
            await self._wait(reservation, rows, visitors, deadline_seconds)
        finally:
            visitors.inside += 1

    async def _wait(self, reservation: Reservation, rows: int, visitors: _Visitors, deadline_seconds: float) -> None:
        try:
            # One request of each flow stands in line, and goes to its end after a try in vain: flows take turns
            # whatever they have outside, and one that has to leave room holds up none that may take the last.
            async with asyncio.timeout_at(deadline_seconds), visitors.turn:
                while not await self._try(reservation, rows, visitors):
                    pass
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before there was room") from None

    async def _try(self, reservation: Reservation, rows: int, visitors: _Visitors) -> bool:
        async with self._line:
            try:
                reservation.resize(rows, self._spare_rows if visitors.inside else 0)
            except QueueFullError:
                await asyncio.sleep(PAUSE_SECONDS)
                return False
            return True
