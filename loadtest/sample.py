"""What became of one request of a load, and when. Made by the generator, counted by `loadtest.tally`."""

from dataclasses import dataclass

from loadtest.client import OK
from loadtest.request import LoadRequest


@dataclass(frozen=True, slots=True)
class Sample:
    """An ended request; times are seconds from the start of the run.

    Attributes:
        request: what was sent.
        intended_seconds: when it should have been sent; in a closed loop, when it was.
        sent_seconds: when it was sent.
        ended_seconds: when its answer, or the failure, was there.
        outcome: OK, GONE, or the status and reason of the failure.
        first_seconds: when the first part of a streamed answer was there; None: nothing was streamed.
    """

    request: LoadRequest
    intended_seconds: float
    sent_seconds: float
    ended_seconds: float
    outcome: str
    first_seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it was answered as it should."""
        return self.outcome == OK

    @property
    def latency_seconds(self) -> float:
        """What a user who arrived on time has waited."""
        return self.ended_seconds - self.intended_seconds

    @property
    def first_token_seconds(self) -> float | None:
        """What that user has waited for the first part; None: nothing was streamed."""
        return None if self.first_seconds is None else self.first_seconds - self.intended_seconds

    @property
    def lag_seconds(self) -> float:
        """How late the generator was; not the server's doing."""
        return self.sent_seconds - self.intended_seconds
