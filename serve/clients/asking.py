"""What callers of the translation clients may say about one call, and how much time it has.

Knows no protocol.
"""

import time
from collections.abc import Sequence
from typing import Protocol, TypedDict

from serve.clients.errors import too_late
from serve.clients.wanted import Wanted


class HasTimeRemaining(Protocol):
    """A call that is being served, and in whose name another service is asked: every context of a gRPC handler."""

    def time_remaining(self) -> float | None:
        """Returns the time to its deadline, in seconds; None: it has none."""


class Timing(TypedDict, total=False):
    """How long a call may take; the shortest counts, and if none is given, the client's default.

    Keys:
        timeout_seconds: from now on, retries included.
        deadline_seconds: until then, on the clock of `time.monotonic`.
        context: of a call in whose name this one is made; it has no more time than that.
    """

    timeout_seconds: float
    deadline_seconds: float
    context: HasTimeRemaining


class Asking(Wanted, Timing, total=False):
    """What is absent is as in a request without it.

    Keys:
        target_prefix: what each translation has to start with, one for each text; an empty one asks nothing.
    """

    target_prefix: Sequence[str]


def choose_deadline(timing: Timing, default_timeout_seconds: float | None) -> float | None:
    """Returns when a call that begins now has to be over, on the clock of `time.monotonic`; None: never."""
    now_seconds = time.monotonic()
    given = [timing["deadline_seconds"]] if "deadline_seconds" in timing else []
    timeouts = [timing["timeout_seconds"]] if "timeout_seconds" in timing else []
    if "context" in timing and (remaining_seconds := timing["context"].time_remaining()) is not None:
        timeouts.append(remaining_seconds)
    given += [now_seconds + seconds for seconds in timeouts]
    if not given and default_timeout_seconds is not None:
        given = [now_seconds + default_timeout_seconds]
    return min(given, default=None)


def time_left(deadline_seconds: float | None) -> float | None:
    """Returns how much time is left to a deadline, in seconds.

    Raises:
        TooLateError: if it is none: such a call need not be made.
    """
    if deadline_seconds is None:
        return None
    seconds = deadline_seconds - time.monotonic()
    if seconds <= 0:
        raise too_late()
    return seconds
