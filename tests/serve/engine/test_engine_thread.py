"""The thread of an engine: many callers, draining, stopping and hanging. Tests wait for events, never for time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from structlog.testing import capture_logs

from dragoman.serve.errors import DrainingError
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup
from dragoman.serve.search.options import SearchOptions
from tests.support.benches import MakeRunning, each_running_engine
from tests.support.engines import Bench, assert_alone
from tests.support.fakes import ENDLESS_ID, FIRST_ID, FakeModel
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.native_loop import NativeBench


def test_engines_that_share_a_scheduler_answer_callers_from_many_threads() -> None:
    bench = Bench(slots=6)
    engines = [bench.make_engine(FakeModel(3)) for _ in range(2)]
    generator = np.random.default_rng(1)
    specs = [tuple(generator.integers(FIRST_ID, 50, size=generator.integers(1, 6)).tolist()) for _ in range(120)]
    options = SearchOptions(max_target_tokens=20)
    sequences = [DecodingSequence(ids, options, SequenceGroup(bench.finished.extend)) for ids in specs]
    for engine in engines:
        engine.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sequence: bench.scheduler.submit([sequence]), sequences))
    eventually(lambda: len(bench.finished) == len(sequences))
    for engine in engines:
        engine.stop()
    assert_alone(*sequences)


@each_running_engine
def test_draining_loses_nothing(make_bench: MakeRunning) -> None:
    bench = make_bench(2)
    sequences = [bench.submit(token, ENDLESS_ID, limit=5) for token in range(FIRST_ID, 20)]
    bench.engine.start()
    bench.scheduler.drain()
    eventually(lambda: bench.scheduler.idle)
    bench.engine.stop()
    assert_alone(*sequences)
    with pytest.raises(DrainingError):
        bench.submit(7)


@each_running_engine
@pytest.mark.parametrize("phase", ["encode", "step"])
def test_stopping_a_hanging_engine_fails_sequences_and_abandons_its_thread(make_bench: MakeRunning, phase: str) -> None:
    """Sequences in the encoder have left the queue but had no step yet."""
    bench = make_bench(1)
    answers, stands, ends = threading.Event(), threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        stands.set()
        assert answers.wait(WAIT_SECONDS)
        ends.set()

    hooked = phase == "step" or isinstance(bench, NativeBench)
    setattr(bench.model, f"on_{phase}" if hooked else phase, hang)
    sequences = [bench.submit(7, ENDLESS_ID), bench.submit(8)]
    bench.engine.start()
    assert stands.wait(WAIT_SECONDS)
    with capture_logs() as logs:
        bench.engine.stop(0.01)
    assert [entry["event"] for entry in logs] == ["engine_hangs"]
    assert [type(sequence.error) for sequence in sequences] == [DrainingError] * 2
    assert (bench.scheduler.running, bench.scheduler.running_rows) == (0, 0), "the abandoned rows leave the gauges"
    answers.set()
    assert ends.wait(WAIT_SECONDS)
    bench.engine.stop()
    assert bench.scheduler.running == 0


@each_running_engine
def test_stopping_a_busy_engine_fails_every_sequence(make_bench: MakeRunning) -> None:
    bench = make_bench(2)
    started = threading.Event()
    bench.model.on_step = started.set
    sequences = [bench.submit(7, ENDLESS_ID) for _ in range(500)]
    bench.engine.start()
    assert started.wait(WAIT_SECONDS)
    bench.engine.stop()
    assert len(bench.finished) == len(sequences)
    assert {type(sequence.error) for sequence in sequences} <= {type(None), DrainingError}


def test_stopping_ends_the_thread_of_an_idle_engine() -> None:
    bench = Bench()
    bench.engine.start()
    assert "engine" in [thread.name for thread in threading.enumerate()]
    bench.engine.stop()
    assert "engine" not in [thread.name for thread in threading.enumerate()]
