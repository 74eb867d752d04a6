"""Submissions: the sequences of one request between the event loop and the engines.

Engines call from their own threads: they store tokens and wake the event loop once for all of them. A native loop
delivers results in the event loop itself. Independent of texts and protocols.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from dragoman.serve.engine.prefill import longest_first
from dragoman.serve.errors import DeadlineExceededError, ServiceError
from dragoman.serve.observability.traces import Trace, current_trace
from dragoman.serve.scheduler.admission import Reservation
from dragoman.serve.scheduler.request_scheduler import PACE_SECONDS, RequestScheduler
from dragoman.serve.scheduler.sequence import EXPIRED, DecodingSequence, SequenceSpec


class LoopNotifier:
    """Wakes the event loop for new tokens: once for all tokens of a step, and at most once per `PACE_SECONDS`.

    A wake-up takes a system call, and the work that follows holds the interpreter. Without the pause, a small model
    with short steps would slow down, also for rows that are not streamed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: set[asyncio.Event] = set()
        self._notifying = False

    def notify(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        """Sets an event of the loop soon. Thread-safe."""
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
    """The sequences of one request; a context manager that submits all or none, and cancels unfinished ones.

    Attributes:
        sequences: in the order of the specs. When one has ended, its hypotheses lack the start tokens.
        tokens: tokens so far of each streamed sequence, without start tokens and without the last one, which comes with
            its end.
    """

    def __init__(
        self,
        scheduler: RequestScheduler,
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
            specs: one per sequence.
            deadline_seconds: on the clock of `time.monotonic`; None: none.
            notifier: streams the sequences: `change` returns after tokens of sequences with a single row, and after
                each end. None: `change` returns when all have ended.
            reservation: rows reserved for the sequences.
            priority: a higher one starts earlier.
            fairness_key: shared turn in fair queuing; None: a key of its own.
            patient: exempts the sequences from the queue timeout.
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
                partial(call_soon, self._loop, self._end, index),
                None if notifier is None or spec.options.rows > 1 else self._token_listener(index, spec, notifier),
                priority=priority,
                fairness_key=fairness_key,
            )
            for index, spec in enumerate(specs)
        )

    def __enter__(self) -> Self:
        """Submits the sequences; if they are not streamed, the longest first.

        Raises:
            ServiceError: if the scheduler refuses them.
        """
        if self.sequences:
            ordered = longest_first(self.sequences) if self._notifier is None else self.sequences
            self._scheduler.submit(ordered, self._reservation, patient=self._patient)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels unfinished sequences; engines release them within one step."""
        if self._trace is not None:
            _trace_phases(self._trace, self.sequences)
        # Engines release expired sequences by themselves and count them as expired.
        if isinstance(error, DeadlineExceededError):
            return
        for index, sequence in enumerate(self.sequences):
            if index not in self._ended:
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
        """Waits until every sequence has its translation; if they are streamed, until any update.

        Raises:
            ServiceError: the first one that any of them ended with.
        """
        # The engine checks the deadline too, but a hanging engine must not block the client.
        timer = None if self._deadline_seconds is None else self._loop.call_at(self._deadline_seconds, self._expire)
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._changed.clear()
        if self._error is not None:
            raise self._error

    def _expire(self) -> None:
        if not self._changed.is_set():
            self._error = self._error or DeadlineExceededError(EXPIRED)
            self._changed.set()

    def updates(self) -> Iterator[tuple[int, bool]]:
        """Yields the index of every sequence with a new token or its translation, and whether it is complete."""
        while self._updates:
            index = self._updates.pop()
            yield index, index in self._ended

    def _token_listener(self, index: int, spec: SequenceSpec, notifier: LoopNotifier) -> Callable[[int], None]:
        tokens, updates = self.tokens[index], self._updates
        left = spec.options.start_tokens

        def on_token(token_id: int) -> None:
            nonlocal left
            if left:
                left -= 1
                return
            tokens.append(token_id)
            updates.add(index)
            if len(tokens) == 1 or self._scheduler.paced:
                # The first token skips the pause of the notifier.
                call_soon(self._loop, self._changed.set)
            else:
                notifier.notify(self._loop, self._changed)

        return on_token

    def _end(self, index: int, sequence: DecodingSequence) -> None:
        if sequence.error is None:
            if start_tokens := sequence.options.start_tokens:
                sequence.hypotheses = [hypothesis.without_start(start_tokens) for hypothesis in sequence.hypotheses]
            self._ended.add(index)
            self._updates.add(index)
        else:
            self._error = self._error or sequence.error
        if self._notifier is not None or self.done or self._error is not None:
            self._changed.set()


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
    with Submission(scheduler, specs, deadline_seconds=deadline_seconds, patient=True) as submission:
        await submission.finish()
    return submission.sequences


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
