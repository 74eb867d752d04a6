"""One source sequence from admission to its last token.

Only the scheduler changes the state of a sequence; the engine sets its results. A sequence is independent of its row
and its request.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from dragoman.serve.errors import CancelledError, DeadlineExceededError, QueueTimeoutError, ServiceError
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.search.options import SearchOptions

# Why a sequence ended without a translation, for the client.
CANCELLED = "the client disconnected"
EXPIRED = "the deadline passed before the translation was complete"
QUEUED_TOO_LONG = "no slot became free within the queue timeout; try again later"
SHUT_DOWN = "the server shut down before the translation was complete"
FAILED = "the translation failed inside the server"


class SequenceState(Enum):
    """The state of a sequence."""

    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


class FairnessKey:
    """Identifies a stream of requests by object identity; fair queuing treats a stream as one request."""


class SequenceSpec(NamedTuple):
    """The input of a sequence: source tokens, with prefix and suffix, and search options."""

    source_ids: tuple[int, ...]
    options: SearchOptions


@dataclass(slots=True, eq=False)
class SequenceGroup:
    """What the sequences of one submission have in common.

    Attributes:
        on_finish: called with sequences that ended together, each once; from the engine's thread or the scheduler's
            caller; must not block or raise.
        deadline_seconds: on the monotonic clock; None: none.
        priority: a higher one starts earlier.
        fairness_key: sequences of one key take turns with those of others; usually one key per request.
        submitted_seconds: when the scheduler accepted the sequences (monotonic clock); 0: not yet.
        start_by_seconds: latest start (monotonic clock); None: no limit.
        together: whether translations are of use only together, so that `on_finish` may wait for the last one.
    """

    on_finish: Callable[[list["DecodingSequence"]], object]
    deadline_seconds: float | None = None
    priority: int = 0
    fairness_key: Hashable = None
    submitted_seconds: float = 0.0
    start_by_seconds: float | None = None
    together: bool = False

    @property
    def latest_start_seconds(self) -> float:
        """The time after which a start is useless (monotonic clock); infinity: none."""
        return min(
            math.inf if self.deadline_seconds is None else self.deadline_seconds,
            math.inf if self.start_by_seconds is None else self.start_by_seconds,
        )


# Nothing waits for the end of its sequences.
NOT_SUBMITTED = SequenceGroup(len)
NO_OPTIONS = SearchOptions(0)


@dataclass(slots=True, eq=False)
class DecodingSequence:
    """A sequence and its results.

    Attributes:
        source_ids: source tokens, the end token included.
        group: that of its submission, once it is submitted.
        on_token: called with each chosen token except the last one, which comes with `on_finish`; from the engine's
            thread, must not block or raise. None: no calls. Only for a sequence of one row, because the tokens of
            competing rows change.
        hypotheses: finished translations, best first.
        decoded_tokens: computed target tokens in all rows of the sequence.
        error: why it has no translation; set before its state.
        cancelled: the client disconnected at `cancelled_seconds`; `Scheduler.cancel` sets both.
        started_seconds, encoded_seconds, first_token_seconds, finished_seconds: times of the states of the sequence
            (monotonic clock); 0: not yet.
    """

    source_ids: tuple[int, ...] = ()
    options: SearchOptions = NO_OPTIONS
    group: SequenceGroup = NOT_SUBMITTED
    on_token: Callable[[int], None] | None = None
    state: SequenceState = SequenceState.WAITING
    hypotheses: tuple[Hypothesis, ...] = ()
    decoded_tokens: int = 0
    error: ServiceError | None = None
    cancelled: bool = False
    cancelled_seconds: float = 0.0
    started_seconds: float = 0.0
    encoded_seconds: float = 0.0
    first_token_seconds: float = 0.0
    finished_seconds: float = 0.0

    @property
    def spec(self) -> SequenceSpec:
        """What determines its hypotheses."""
        return SequenceSpec(self.source_ids, self.options)

    @property
    def submitted_seconds(self) -> float:
        """When the scheduler accepted the sequence (monotonic clock); 0: not yet."""
        return self.group.submitted_seconds

    @property
    def best(self) -> Hypothesis:
        """The best translation of a finished sequence; raises IndexError if it has none."""
        return self.hypotheses[0]

    def abandonment(self, now_seconds: float) -> CancelledError | DeadlineExceededError | QueueTimeoutError | None:
        """Returns why the sequence must be dropped: canceled, expired or not started in time; None: it continues."""
        group = self.group
        if self.cancelled:
            return CancelledError(CANCELLED)
        if group.deadline_seconds is not None and group.deadline_seconds <= now_seconds:
            return DeadlineExceededError(EXPIRED)
        late = group.start_by_seconds is not None and group.start_by_seconds <= now_seconds
        if late and self.state is SequenceState.WAITING:
            return QueueTimeoutError(QUEUED_TOO_LONG)
        return None


def longest_first(sequences: Iterable[DecodingSequence]) -> list[DecodingSequence]:
    """Sorts longest first, which minimizes the makespan of sequences that are awaited together.

    Rows of similar length also need less padding and less memory.
    """
    return sorted(sequences, key=lambda sequence: -len(sequence.source_ids))
