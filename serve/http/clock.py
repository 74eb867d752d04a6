"""The times of one HTTP/1.1 connection: since when it waits for its client, and since when the client reads nothing."""

import asyncio

from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.http.parser import Part
from dragoman.serve.observability.instruments import CloseReason

# A client that reads less than this in one sweep does not read.
MIN_READ_BYTES = 1 << 10


class Clock:
    """Times within `HttpLimits`, on the clock of the event loop."""

    def __init__(self, limits: HttpLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._unsent_bytes = 0
        self._since_seconds = self._read_seconds = self._loop.time()

    def restart(self) -> None:
        """Begins a wait for the client."""
        self._since_seconds = self._loop.time()

    def note_unsent(self, unsent_bytes: int, now_seconds: float) -> bool:
        """Notes the size of the unread answers; returns whether the client has read since the last note.

        The waits for other things begin when the client has read everything.
        """
        before_bytes, self._unsent_bytes = self._unsent_bytes, unsent_bytes
        reads = unsent_bytes == 0 or before_bytes == 0 or unsent_bytes <= before_bytes - MIN_READ_BYTES
        if reads:
            self._read_seconds = now_seconds
        if unsent_bytes:
            self._since_seconds = now_seconds
        return reads

    def stalls(self, now_seconds: float) -> bool:
        """Returns whether the client has read nothing for too long."""
        return now_seconds - self._read_seconds > self._limits.send_seconds

    def exceeds(self, limit_seconds: float, now_seconds: float) -> bool:
        """Returns whether the wait takes longer than a limit."""
        return now_seconds - self._since_seconds > limit_seconds

    def limit(self, part: Part, *, first: bool) -> tuple[CloseReason, float]:
        """Returns how long a part of a request may take, and the reason to close the connection afterwards.

        Args:
            part: what the client has to send.
            first: whether it has not sent a complete header yet.
        """
        if part is Part.HEADER or first:
            return "header_timeout", self._limits.header_seconds
        if part is Part.BODY:  # of a request that is answered
            return "body_timeout", self._limits.body_seconds
        return "idle_timeout", self._limits.idle_seconds
