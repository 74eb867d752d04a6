"""One source text on its way through the engine, from admission to its last token.

Only the scheduler moves a sequence from one state to the next; the engine writes down what it translated. A sequence
knows neither its row nor its request.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from serve.errors import CancelledError, DeadlineExceededError, ServiceError
from serve.request import FinishReason


class SequenceState(Enum):
    """Where a sequence is."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """A sequence and what became of it.

    Attributes:
        source_ids: source tokens, the end token included.
        max_target_tokens: the longest translation, the end token excluded.
        deadline_seconds: when the client stops waiting (monotonic clock); None: never.
        on_finish: called once, from the engine's thread or the scheduler's caller; must not block or raise.
        target_ids: the translation, the end token excluded; what there is of it if the sequence ended in an error.
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        finish_reason: why the translation ended; None if there is an error instead.
        error: why there is no translation.
        cancelled: the client went away; set by any thread, honoured within one step.
        submitted_seconds, started_seconds, finished_seconds: admission, start of the encoder and end (monotonic clock).
    """

    source_ids: tuple[int, ...]
    max_target_tokens: int
    deadline_seconds: float | None
    on_finish: Callable[["Sequence"], None]
    state: SequenceState = SequenceState.WAITING
    target_ids: tuple[int, ...] = ()
    score: float = 0.0
    finish_reason: FinishReason | None = None
    error: ServiceError | None = None
    cancelled: bool = False
    submitted_seconds: float = 0.0
    started_seconds: float = 0.0
    finished_seconds: float = 0.0

    def abandonment(self, now_seconds: float) -> CancelledError | DeadlineExceededError | None:
        """Returns why nobody waits for this translation any more, or None if somebody does."""
        if self.cancelled:
            return CancelledError("the client went away")
        if self.deadline_seconds is not None and self.deadline_seconds <= now_seconds:
            return DeadlineExceededError("the deadline passed before the translation was complete")
        return None

    def finish(self, now_seconds: float, error: ServiceError | None = None) -> None:
        """Ends the sequence and tells its owner.

        Args:
            now_seconds: the time on the monotonic clock.
            error: why there is no translation; None if there is one.
        """
        self.state = SequenceState.FINISHED
        self.error = error
        self.finished_seconds = now_seconds
        self.on_finish(self)
