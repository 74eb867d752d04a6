"""Submissions: the sequences of one request between the event loop and the engines.

Engines call from their own threads: they store tokens and wake the event loop once for all of them. A native loop
delivers results in the event loop itself. Independent of texts and protocols.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from dragoman.serve.errors import DeadlineExceededError, ServiceError
from dragoman.serve.observability.traces import Trace, current_trace
from dragoman.serve.scheduler.request_scheduler import PACE_SECONDS, RequestScheduler, Reservation
from dragoman.serve.scheduler.sequence import (
    EXPIRED,
    NOT_SUBMITTED,
    DecodingSequence,
    SequenceGroup,
    SequenceSpec,
    SequenceState,
    longest_first,
)


class LoopNotifier:
    """Wakes the event loop for new tokens: once for all tokens of a step, and at most once per `PACE_SECONDS`.

    A wake-up takes a system call, and the work that follows holds the interpreter. Without the pause, a small model
    with short steps would slow down, also for rows that are not streamed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: set[Callable[[], object]] = set()
        self._notifying = False

    def notify(self, loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
        """Calls a function in the loop soon. Thread-safe."""
        with self._lock:
            self._due.add(function)
            silent, self._notifying = not self._notifying, True
        if silent:
            call_soon(loop, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            due, self._due = self._due, set()
            self._notifying = bool(due)
        for function in due:
            function()
        if due:
            loop.call_later(PACE_SECONDS, self._wake, loop)


class Submission:
    """The sequences of one request; a context manager that submits all or none, and cancels unfinished ones.

    Attributes:
        sequences: in their order. When one has ended, its hypotheses lack the start tokens.
        done: whether every sequence has its translation; if they are apart, or its error.
        tokens: tokens so far of each streamed sequence, without start tokens and without the last one, which comes with
            its end.
        apart: whether the sequences are of several requests.
    """

    apart = False

    def __init__(
        self,
        scheduler: RequestScheduler,
        sequences: Sequence[DecodingSequence],
        *,
        deadline_seconds: float | None,
        notifier: LoopNotifier | None = None,
        reservation: Reservation | None = None,
        priority: int = 0,
        fairness_key: object | None = None,
        patient: bool = False,
    ) -> None:
        """Takes sequences that were never submitted. Must be called inside the event loop.

        Args:
            deadline_seconds: on the clock of `time.monotonic`; None: none.
            notifier: streams the sequences: `change` returns after tokens of sequences with a single row, and after
                each end. None: `change` returns when all have ended.
            reservation: rows reserved for the sequences.
            priority: a higher one starts earlier.
            fairness_key: shared turn in fair queuing; None: a key of its own.
            patient: exempts the sequences from the queue timeout.
        """
        self._scheduler = scheduler
        self._notifier = notifier
        self._reservation = reservation
        self._patient = patient
        self._trace = current_trace()
        self._loop = asyncio.get_running_loop()
        # A future for each wait: an `asyncio.Event` would take longer.
        self._changed = self._loop.create_future()
        self._left = len(sequences)
        # Whether each sequence with news has ended.
        self._updates: dict[DecodingSequence, bool] = {}
        self._error: ServiceError | None = None
        key = object() if fairness_key is None else fairness_key
        each = self.apart or notifier is not None
        on_finish = partial(call_soon, self._loop, self._end)
        self._group = group = SequenceGroup(on_finish, deadline_seconds, priority, key, together=not each)
        self.sequences = sequences
        self.done = not sequences
        for sequence in sequences:
            sequence.group = group
        # Those whose updates are awaited one by one.
        self._indices = {sequence: index for index, sequence in enumerate(sequences)} if each else {}
        self.tokens: list[list[int]] = []
        if notifier is not None:
            self._listen(notifier)

    def __enter__(self) -> Self:
        """Submits the sequences; if all are awaited together, the longest first.

        Raises ServiceError if the scheduler refuses them.
        """
        if self.sequences:
            kept = bool(self._indices) or len(self.sequences) == 1
            ordered = self.sequences if kept else longest_first(self.sequences)
            self._scheduler.submit(ordered, self._reservation, patient=self._patient)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels unfinished sequences; engines release them within one step."""
        if self._trace is not None:
            _trace_phases(self._trace, self.sequences)
        self._group.on_finish = NOT_SUBMITTED.on_finish  # a reference cycle, which would wait for the garbage collector
        # Engines release expired sequences by themselves and count them as expired.
        if self.done or isinstance(error, DeadlineExceededError):
            return
        for sequence in self.sequences:
            if sequence.state is not SequenceState.FINISHED:
                self._scheduler.cancel(sequence)

    async def change(self) -> None:
        """Waits until every sequence has its translation; if they are streamed or apart, until any update.

        Raises:
            ServiceError: the first one that any of them ended with.
        """
        if self.done:
            return
        # The engine checks the deadline too, but a hanging engine must not block the client.
        deadline_seconds = self._group.deadline_seconds
        timer = None if deadline_seconds is None else self._loop.call_at(deadline_seconds, self._expire)
        try:
            await self._changed
        finally:
            if timer is not None:
                timer.cancel()
        if self._error is not None:
            raise self._error
        if not self.done:
            self._changed = self._loop.create_future()

    def _expire(self) -> None:
        if not self._changed.done():
            self._error = self._error or DeadlineExceededError(EXPIRED)
            self._note_change()

    def _note_change(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)

    def updates(self) -> Iterator[tuple[int, bool]]:
        """Yields the index of every sequence with a new token or its translation, and whether it is complete."""
        while self._updates:
            sequence, ended = self._updates.popitem()
            yield self._indices[sequence], ended

    def _listen(self, notifier: LoopNotifier) -> None:
        for index, sequence in enumerate(self.sequences):
            self.tokens.append([])
            if sequence.options.rows == 1:
                sequence.on_token = self._token_listener(sequence, self.tokens[index], notifier)

    def _token_listener(
        self, sequence: DecodingSequence, tokens: list[int], notifier: LoopNotifier
    ) -> Callable[[int], None]:
        left = sequence.options.start_tokens

        def on_token(token_id: int) -> None:
            nonlocal left
            if left:
                left -= 1
                return
            tokens.append(token_id)
            self._updates.setdefault(sequence, False)
            if len(tokens) == 1 or self._scheduler.paced:
                # The first token skips the pause of the notifier.
                call_soon(self._loop, self._note_change)
            else:
                notifier.notify(self._loop, self._note_change)

        return on_token

    def _end(self, sequences: list[DecodingSequence]) -> None:
        for sequence in sequences:
            if sequence.error is not None and not self.apart:
                self._error = self._error or sequence.error
                continue
            if start_tokens := sequence.options.start_tokens:
                sequence.hypotheses = tuple([item.without_start(start_tokens) for item in sequence.hypotheses])
            self._left -= 1
            if self._indices:
                self._updates[sequence] = True
        self.done = not self._left
        if self._indices or self.done or self._error is not None:
            self._note_change()


class SharedSubmission(Submission):
    """Sequences of several requests: `change` returns after each end, and raises the error of no sequence."""

    apart = True


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Calls a function in the event loop: now if it runs in this thread, else soon; not at all if it is closed."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        function(*arguments)
        return
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


async def run_sequences(
    scheduler: RequestScheduler, specs: Iterable[SequenceSpec], *, deadline_seconds: float | None
) -> tuple[DecodingSequence, ...]:
    """Runs one sequence per spec, all or none, and returns them finished. No queue timeout applies.

    Raises:
        ServiceError: the first one that any sequence ended with; the others are canceled.
    """
    sequences = tuple([DecodingSequence(*spec) for spec in specs])
    with Submission(scheduler, sequences, deadline_seconds=deadline_seconds, patient=True) as submission:
        await submission.change()
    return sequences


def _trace_phases(trace: Trace, sequences: Iterable[DecodingSequence]) -> None:
    """Adds the phases that sequences reached; an unfinished phase ends now, because the request leaves it."""
    now_seconds = time.monotonic()
    for sequence in sequences:
        facts = {"source_tokens": len(sequence.source_ids)}
        for name, start_seconds, end_seconds in _phases(sequence, now_seconds):
            counts = {"decoded_tokens": sequence.decoded_tokens} if name == "decode" else {}
            trace.add_phase(name, start_seconds, end_seconds, {**facts, **counts})


def _phases(sequence: DecodingSequence, now_seconds: float) -> Iterator[tuple[str, float, float]]:
    """Yields name, start and end of each phase that a sequence reached; time 0 means not reached."""
    times = (sequence.submitted_seconds, sequence.started_seconds, sequence.encoded_seconds)
    end_seconds = sequence.finished_seconds or now_seconds
    for name, start_seconds, following_seconds in zip(
        ("queue", "encode", "decode"), times, (*times[1:], 0.0), strict=True
    ):
        if start_seconds:
            yield name, start_seconds, following_seconds or end_seconds
