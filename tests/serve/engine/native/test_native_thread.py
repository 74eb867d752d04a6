"""The threads of native engines: many callers, streams in the event loop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count

import numpy as np
import pytest
from structlog.testing import capture_logs

from dragoman.serve.errors import CancelledError, DeadlineExceededError, InternalError
from dragoman.serve.native.loop import LoopError
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, SequenceSpec
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.submission import LoopNotifier, Submission, run_sequences
from tests.support.benches import running_native
from tests.support.engines import MAX_TARGET_TOKENS, alone, answer, assert_alone
from tests.support.fakes import ENDLESS_ID, FIRST_ID, POISON_ID, VOCABULARY
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.native_build import needs_compiler
from tests.support.native_loop import NativeBench, library

pytestmark = [needs_compiler, pytest.mark.anyio]
GREEDY = SearchOptions(max_target_tokens=MAX_TARGET_TOKENS)
ENDLESS = SequenceSpec((7, ENDLESS_ID), GREEDY)


def endless(number: int = 1) -> list[DecodingSequence]:
    return [DecodingSequence(*ENDLESS) for _ in range(number)]


@asynccontextmanager
async def running(bench: NativeBench) -> AsyncIterator[None]:
    """Runs the engine, with results in the event loop."""
    bench.scheduler.watch(asyncio.get_running_loop())
    bench.engine.start()
    try:
        yield
    finally:
        await asyncio.to_thread(bench.engine.stop)
        bench.scheduler.close()


def specs_of(count: int, seed: int = 1) -> Iterator[SequenceSpec]:
    generator = np.random.default_rng(seed)
    for _ in range(count):
        length = generator.integers(1, 6)
        yield SequenceSpec(tuple(generator.integers(FIRST_ID, 50, length).tolist()), GREEDY)


def test_the_loop_has_the_clock_of_python() -> None:
    before, between, after = time.monotonic(), library().seconds, time.monotonic()
    assert before <= between <= after


async def test_requests_get_their_translations_in_the_event_loop() -> None:
    bench = running_native()
    async with running(bench):
        requests = [run_sequences(bench.scheduler, specs_of(5, seed), deadline_seconds=None) for seed in range(20)]
        for sequences in await asyncio.gather(*requests):
            assert_alone(*sequences)
    assert bench.sample("sequences_running") == 0
    assert bench.sample("request_queue_seconds_count") == 100


async def test_a_stream_yields_every_token_and_the_rest_with_its_end() -> None:
    bench = running_native()
    async with running(bench):
        seen = []
        with Submission(bench.scheduler, endless(), deadline_seconds=None, notifier=LoopNotifier()) as submission:
            while not submission.done:
                await submission.change()
                for place, ended in submission.updates():
                    seen.append((len(submission.tokens[place]), ended))
        target_ids = alone(ENDLESS.source_ids)[0]
        assert answer(submission.sequences[0])[0] == target_ids
        assert tuple(submission.tokens[0]) == target_ids[:-1]
        assert seen == sorted(seen)
        assert seen[-1] == (MAX_TARGET_TOKENS - 1, True)


def gate_at_third_step() -> tuple[threading.Event, Callable[[], None]]:
    """Returns a gate, and a function to call before each step, which waits at the third one until the gate opens."""
    gate, steps = threading.Event(), count(1)

    def wait() -> None:
        assert next(steps) != 3 or gate.wait(WAIT_SECONDS)

    return gate, wait


async def test_a_token_wakes_the_event_loop_though_no_other_result_follows() -> None:
    bench = running_native()
    gate, bench.model.on_step = gate_at_third_step()
    async with running(bench):
        late = time.monotonic() + WAIT_SECONDS
        with Submission(bench.scheduler, endless(), deadline_seconds=late, notifier=LoopNotifier()) as submission:
            while len(submission.tokens[0]) < 2:
                await submission.change()
            gate.set()
            while not submission.done:
                await submission.change()


async def test_sequences_that_are_awaited_together_wake_the_event_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = running_native(slots=8)
    deliver, deliveries = bench.scheduler._deliver_and_pause, list[bool]()
    monkeypatch.setattr(bench.scheduler, "_deliver_and_pause", lambda: deliveries.append(bool(deliver())))
    async with running(bench):
        sequences = await run_sequences(bench.scheduler, specs_of(6), deadline_seconds=None)
        assert len({sequence.finished_seconds for sequence in sequences}) > 1
        assert_alone(*sequences)
    assert len(deliveries) == 1


async def test_the_failure_of_a_sequence_arrives_though_others_run() -> None:
    bench = running_native(slots=8)
    gate, bench.model.on_step = gate_at_third_step()
    async with running(bench):
        with Submission(bench.scheduler, endless(3), deadline_seconds=None) as submission:
            bench.scheduler.cancel(submission.sequences[1])
            with pytest.raises(CancelledError):
                await submission.change()
            gate.set()


async def test_while_sequences_wait_several_results_come_with_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.serve.engine.native.scheduler.BUSY_PAUSE_SECONDS", 0.2)
    bench = running_native(slots=1)
    deliver, deliveries = bench.scheduler._deliver_and_pause, list[bool]()
    monkeypatch.setattr(bench.scheduler, "_deliver_and_pause", lambda: deliveries.append(bool(deliver())))
    async with running(bench):
        assert_alone(*await run_sequences(bench.scheduler, specs_of(20), deadline_seconds=None))
    assert len(deliveries) < 10


async def test_a_result_arrives_though_others_wait_and_none_follows() -> None:
    bench = running_native(slots=1)
    gate = threading.Event()
    encoded = 0

    def stand_at_the_second() -> None:
        nonlocal encoded
        encoded += 1
        if encoded == 1:
            eventually(lambda: bench.scheduler.waiting == 2)
        assert encoded != 2 or gate.wait(WAIT_SECONDS)

    bench.model.on_encode = stand_at_the_second
    async with running(bench):
        first, *others = [
            asyncio.create_task(run_sequences(bench.scheduler, [spec], deadline_seconds=None)) for spec in specs_of(3)
        ]
        await asyncio.wait_for(first, WAIT_SECONDS)
        assert not any(other.done() for other in others)
        gate.set()
        await asyncio.gather(*others)


async def test_a_request_that_is_cancelled_frees_its_rows() -> None:
    bench = running_native(slots=1)
    gate = threading.Event()
    bench.model.on_step = lambda: gate.wait(WAIT_SECONDS)
    async with running(bench):
        task = asyncio.create_task(run_sequences(bench.scheduler, [ENDLESS], deadline_seconds=None))
        await asyncio.to_thread(eventually, lambda: bench.scheduler.running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        await asyncio.to_thread(eventually, lambda: bench.scheduler.idle)
    assert bench.sample("sequences_finished_total", reason="cancelled") == 1


async def test_a_deadline_ends_a_request_and_a_broken_row_fails_alone() -> None:
    bench = running_native(slots=2)
    async with running(bench):
        soon = time.monotonic() + 0.05
        bench.model.on_step = lambda: time.sleep(0.01)
        poisoned = [SequenceSpec((POISON_ID, ENDLESS_ID), GREEDY)]
        with capture_logs():
            outcomes = await asyncio.gather(
                run_sequences(bench.scheduler, [ENDLESS], deadline_seconds=soon),
                run_sequences(bench.scheduler, poisoned, deadline_seconds=None),
                return_exceptions=True,
            )
        assert [type(outcome) for outcome in outcomes] == [DeadlineExceededError, InternalError]


def test_failures_and_cancellations_in_any_thread_lose_nothing() -> None:
    bench = running_native(slots=4)
    bench.engine.start()
    sequences = [DecodingSequence(*spec, SequenceGroup(bench.finished.extend)) for spec in specs_of(200)]

    def submit(sequence: DecodingSequence) -> None:
        bench.scheduler.submit([sequence])
        if len(sequence.source_ids) == 3:
            bench.scheduler.cancel(sequence)

    with capture_logs(), ThreadPoolExecutor(4) as pool:
        for fails in (False, True) * 10:
            bench.model.decode_error = RuntimeError() if fails else None
            list(pool.map(submit, sequences[: len(sequences) // 20]))
            del sequences[: len(sequences) // 20]
        bench.model.decode_error = None
        list(pool.map(submit, sequences))
        eventually(lambda: bench.scheduler.idle)
    bench.engine.stop()
    assert len(bench.finished) == 200
    assert {type(item.error) for item in bench.finished} <= {type(None), InternalError, CancelledError}


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(max_target_tokens=81),
        SearchOptions(max_target_tokens=5, suppressed_ids=(VOCABULARY,)),
        SearchOptions(max_target_tokens=5, target_prefix=(-1,)),
        SearchOptions(max_target_tokens=5, repetition_penalty=0.0),
    ],
)
def test_what_could_break_the_loop_is_refused(options: SearchOptions) -> None:
    bench = running_native()
    with pytest.raises(LoopError):
        bench.submit(7, options=options)
    assert bench.scheduler.idle
    assert bench.scheduler.waiting == 0
