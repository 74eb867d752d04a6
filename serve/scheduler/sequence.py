"""One source text on its way through the engine, from admission to its last token.

Only the scheduler moves a sequence from one state to the next; the engine writes down what it translated. A sequence
knows neither its row nor its request.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from serve.errors import CancelledError, DeadlineExceededError, QueueTimeoutError, ServiceError
from serve.search.hypothesis import Hypothesis
from serve.search.options import SearchOptions


class SequenceState(Enum):
    """Where a sequence is."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


class SequenceSpec(NamedTuple):
    """What a sequence is made of: source tokens, prefix and suffix included, and how it is searched for."""

    source_ids: tuple[int, ...]
    options: SearchOptions


@dataclass(slots=True, eq=False)
class DecodingSequence:
    """A sequence and what became of it.

    Attributes:
        source_ids: source tokens, the end token included.
        options: how it is searched for.
        deadline_seconds: when the client stops waiting (monotonic clock); None: never.
        on_finish: called once, from the engine's thread or the scheduler's caller; must not block or raise.
        on_token: called with each token as soon as it is chosen, but not with the last one, which comes with
            `on_finish`; from the engine's thread, must not block or raise. None: nobody listens. Only for a sequence of
            one row, since the tokens of several change as long as they compete.
        priority: a higher one starts first.
        fairness_key: what shares the service fairly with others, most often a request; None shares with all other None.
        start_by_seconds: when it must have started (monotonic clock); None: whenever it can.
        hypotheses: the translations that are finished; in the end the best ones, best first.
        decoded_tokens: target tokens that were computed for it, in all of its rows.
        error: why there is no translation.
        cancelled: the client went away, at `cancelled_seconds`; `Scheduler.cancel` sets both.
        submitted_seconds, started_seconds, encoded_seconds, first_token_seconds, finished_seconds: when it was
            admitted, began to be encoded, was encoded, got its first token and ended (monotonic clock); 0: not yet.
    """

    source_ids: tuple[int, ...]
    options: SearchOptions
    deadline_seconds: float | None
    on_finish: Callable[["DecodingSequence"], None]
    on_token: Callable[[int], None] | None = None
    state: SequenceState = SequenceState.WAITING
    priority: int = 0
    fairness_key: Hashable = None
    start_by_seconds: float | None = None
    hypotheses: list[Hypothesis] = field(default_factory=list)
    decoded_tokens: int = 0
    error: ServiceError | None = None
    cancelled: bool = False
    cancelled_seconds: float = 0.0
    submitted_seconds: float = 0.0
    started_seconds: float = 0.0
    encoded_seconds: float = 0.0
    first_token_seconds: float = 0.0
    finished_seconds: float = 0.0

    @property
    def latest_start_seconds(self) -> float:
        """When it is of no use any more to start (monotonic clock); infinity: never."""
        return min(
            math.inf if self.deadline_seconds is None else self.deadline_seconds,
            math.inf if self.start_by_seconds is None else self.start_by_seconds,
        )

    @property
    def best(self) -> Hypothesis:
        """The best translation of a finished sequence.

        Raises:
            IndexError: if it has none.
        """
        return self.hypotheses[0]

    def abandonment(self, now_seconds: float) -> CancelledError | DeadlineExceededError | QueueTimeoutError | None:
        """Returns why nobody waits for this translation any more, or not for its start, or None if somebody does."""
        if self.cancelled:
            return CancelledError("the client went away")
        if self.deadline_seconds is not None and self.deadline_seconds <= now_seconds:
            return DeadlineExceededError("the deadline passed before the translation was complete")
        late = self.start_by_seconds is not None and self.start_by_seconds <= now_seconds
        if late and self.state is SequenceState.WAITING:
            return QueueTimeoutError("no slot became free in the time that requests may wait; try again later")
        return None

    def finish(self, now_seconds: float, error: ServiceError | None = None) -> None:
        """Ends the sequence and tells its owner.

        Args:
            now_seconds: the time on the monotonic clock.
            error: why there is no translation; None if there is one.
        """
        self.state = SequenceState.FINISHED
        self.error = error
        if error is not None:
            self.hypotheses.clear()
        self.finished_seconds = now_seconds
        self.on_finish(self)
