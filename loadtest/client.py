"""What the generator asks of a client: to send a request and to tell what became of it, whatever that is.

An outcome is named after the gRPC status, or after the HTTP status and the server's reason: `RESOURCE_EXHAUSTED`,
`429 queue_full`. No client retries, because a retried request would be two.
"""

from dataclasses import dataclass
from typing import Protocol

from loadtest.request import LoadRequest

OK = "ok"
# The client went away, as it was meant to.
GONE = "gone"
WRONG_COUNT = "answer holds another number of translations"
NO_RESULT = "the stream ended without a result"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        outcome: OK, or the status and reason of the failure.
        first_seconds: when the first part of a streamed answer was there, by the event loop's clock; None: nothing
            was streamed.
    """

    outcome: str
    first_seconds: float | None = None


class Client(Protocol):
    """Sends one request and waits for its answer."""

    async def send(self, request: LoadRequest) -> Answer:
        """Returns what became of it; raises nothing that a server or network can cause."""


def outcome_of(translations: int, request: LoadRequest) -> str:
    """Returns OK if there are as many translations as texts."""
    return OK if translations == len(request.texts) else WRONG_COUNT
