"""The sequences of one request, between the event loop and the engines: submitted, awaited, listened to, cancelled.

Engines call from threads of their own; whatever they say is left in a place that is bounded, and the event loop is
woken once for all of it. Used by the translator and by the warm-up. Knows neither texts nor any protocol.

Where requests get their places: those of streams wait until there are some, while others are refused at once.

A stream holds its client back by not reading on; refusing what was read would only make the client send it again. So
that streams never take all the room there is, every request of one but the first leaves some of the queue free; the
first competes with everybody else, so that no stream starves either. Called by `serve.translation.translator`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from serve.engine.prefill import longest_first
from serve.errors import DeadlineExceededError, QueueFullError, ServiceError
from serve.observability.traces import current_trace
from serve.scheduler.admission import Reservation
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.translation.request import FairnessKey

# Room is made by whatever ends; this is about the time of a few steps of a model.
PAUSE_SECONDS = 0.01


@dataclass(slots=True, eq=False)
class _StreamState:
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


class StreamAdmission:
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
        self._states = WeakKeyDictionary[FairnessKey, _StreamState]()

    async def enter(
        self, rows: int, fairness_key: FairnessKey | None, deadline_seconds: float, priority: int
    ) -> Reservation:
        """Returns places for a request, which is inside until they are given back; who has no flow does not wait.

        Raises:
            DeadlineExceededError: if there was no room in time.
            ServiceError: if it is not let in for another reason.
        """
        if fairness_key is None:
            return self._scheduler.reserve(rows, deadline_seconds, priority)
        state = self._states.setdefault(fairness_key, _StreamState())
        reservation = self._scheduler.reserve(0, deadline_seconds, priority, patient=True)
        await self._wait(reservation, rows, state, deadline_seconds)
        state.inside += 1
        reservation.on_exit = state.leave
        return reservation

    async def widen(
        self, reservation: Reservation, rows: int, fairness_key: FairnessKey | None, deadline_seconds: float
    ) -> None:
        """Keeps more places for a request that is inside.

        Raises:
            ServiceError: as `enter`.
        """
        if fairness_key is None:
            reservation.resize(rows)
            return
        # Who waits for room must not hold any: two of them could wait for each other.
        state = self._states[fairness_key]
        reservation.resize(0)
        state.leave()
        try:
            await self._wait(reservation, rows, state, deadline_seconds)
        finally:
            state.inside += 1

    async def _wait(self, reservation: Reservation, rows: int, state: _StreamState, deadline_seconds: float) -> None:
        try:
            # One request of each flow stands in line, and goes to its end after a try in vain: flows take turns
            # whatever they have outside, and one that has to leave room holds up none that may take the last.
            async with asyncio.timeout_at(deadline_seconds), state.turn:
                while not await self._try(reservation, rows, state):
                    pass
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before there was room") from None

    async def _try(self, reservation: Reservation, rows: int, state: _StreamState) -> bool:
        async with self._line:
            try:
                reservation.resize(rows, self._spare_rows if state.inside else 0)
            except QueueFullError:
                await asyncio.sleep(PAUSE_SECONDS)
                return False
            return True


# Nobody reads a hundred words in a second.
PACE_SECONDS = 0.01


class LoopNotifier:
    """Wakes the event loop for new tokens: once for those of a whole step, and then not again for a moment.

    Waking takes a system call, and what it leads to keeps the interpreter busy; a small model, whose steps are shorter
    than that moment, would get slower for rows that nobody listens to.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: set[asyncio.Event] = set()
        self._notifying = False

    def notify(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        """Sets an event of the loop soon; may be called from any thread."""
        with self._lock:
            self._due.add(event)
            silent, self._notifying = not self._notifying, True
        if silent:
            call_soon(loop, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            due, self._due = self._due, set()
            self._notifying = bool(due)
        for event in due:
            event.set()
        if due:
            loop.call_later(PACE_SECONDS, self._wake, loop)


class Submission:
    """One sequence for each wish, all or none; a context manager, which submits them and cancels what is unfinished.

    Attributes:
        sequences: in the order of the wishes.
        tokens: of each sequence that is streamed, those so far; but for the last, which comes with its end.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        specs: Iterable[SequenceSpec],
        *,
        deadline_seconds: float | None,
        notifier: LoopNotifier | None = None,
        reservation: Reservation | None = None,
        priority: int = 0,
        fairness_key: object | None = None,
        patient: bool = False,
    ) -> None:
        """Makes the sequences. Must be called inside the event loop.

        Args:
            scheduler: takes them.
            specs: what they are made of.
            deadline_seconds: when the client stops waiting (monotonic clock); None: never.
            notifier: rings for every token of sequences that have a single row; what ends is news, too. None: all that
                counts is when all have ended.
            reservation: the rows that are kept for them.
            priority: what waits with a lower one starts later.
            fairness_key: whose turn they take; None: nobody else's.
            patient: whether they may wait for longer than the queue's timeout.
        """
        self._scheduler = scheduler
        self._deadline_seconds = deadline_seconds
        self._notifier = notifier
        self._reservation = reservation
        self._patient = patient
        self._trace = current_trace()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._updates: set[int] = set()
        self._ended: set[int] = set()
        self._error: ServiceError | None = None
        specs = tuple(specs)
        self.tokens: tuple[list[int], ...] = tuple([] for _ in specs)
        fairness_key = object() if fairness_key is None else fairness_key
        self.sequences = tuple(
            DecodingSequence(
                *spec,
                deadline_seconds,
                self._end_listener(place),
                None if notifier is None or spec.options.rows > 1 else self._token_listener(place, notifier),
                priority=priority,
                fairness_key=fairness_key,
            )
            for place, spec in enumerate(specs)
        )

    def __enter__(self) -> Self:
        """Submits the sequences; if nobody hears of them before all have ended, the longest first.

        Raises:
            ServiceError: if the scheduler takes none.
        """
        ordered = longest_first(self.sequences) if self._notifier is None else self.sequences
        self._scheduler.submit(ordered, self._reservation, patient=self._patient)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels what is not finished: engines let go of it within one step."""
        if self._trace is not None:
            self._trace.add_sequences(self.sequences)
        # What is too late engines let go of by themselves, and count as that.
        if isinstance(error, DeadlineExceededError):
            return
        for place, sequence in enumerate(self.sequences):
            if place not in self._ended:
                self._scheduler.cancel(sequence)

    @property
    def done(self) -> bool:
        """Whether every sequence has its translation."""
        return len(self._ended) == len(self.sequences)

    async def finish(self) -> None:
        """Waits until every sequence has its translation.

        Raises:
            ServiceError: the first one that any of them ended with.
        """
        while not self.done:
            await self.change()

    async def change(self) -> None:
        """Waits until every sequence has its translation; if they are streamed, until there is any news.

        Raises:
            ServiceError: the first one that any of them ended with.
        """
        try:
            # The engine keeps the deadline too, but an engine that hangs must not make the client wait longer.
            async with asyncio.timeout_at(self._deadline_seconds):
                await self._changed.wait()
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the translation was complete") from None
        self._changed.clear()
        if self._error is not None:
            raise self._error

    def updates(self) -> Iterator[tuple[int, bool]]:
        """Yields the place of every sequence with a new token or its translation, and whether it has the latter."""
        while self._updates:
            place = self._updates.pop()
            yield place, place in self._ended

    def _token_listener(self, place: int, notifier: LoopNotifier) -> Callable[[int], None]:
        tokens, updates = self.tokens[place], self._updates

        def on_token(token_id: int) -> None:
            tokens.append(token_id)
            updates.add(place)
            if len(tokens) == 1:
                # The one that somebody waits for.
                call_soon(self._loop, self._changed.set)
            else:
                notifier.notify(self._loop, self._changed)

        return on_token

    def _end_listener(self, place: int) -> Callable[[DecodingSequence], None]:
        return lambda sequence: call_soon(self._loop, self._end, place, sequence)

    def _end(self, place: int, sequence: DecodingSequence) -> None:
        if sequence.error is None:
            self._ended.add(place)
            self._updates.add(place)
        else:
            self._error = self._error or sequence.error
        if self._notifier is not None or self.done or self._error is not None:
            self._changed.set()


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Calls a function in the event loop, from an engine: it must not fail because the loop has ended meanwhile."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


async def run_sequences(
    scheduler: Scheduler,
    specs: Iterable[SequenceSpec],
    *,
    deadline_seconds: float | None,
) -> tuple[DecodingSequence, ...]:
    """Runs one sequence for each wish, all or none, and returns them finished, however long they wait in the queue.

    The call is one flow.

    Args:
        scheduler: takes the sequences.
        specs: what they are made of.
        deadline_seconds: when the client stops waiting (monotonic clock); None: never.

    Raises:
        ServiceError: the first one that any of the sequences ended with; the others are cancelled.
    """
    with Submission(scheduler, specs, deadline_seconds=deadline_seconds, patient=True) as submission:
        await submission.finish()
    return submission.sequences
