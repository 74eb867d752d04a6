"""Continuous batching with a fake model: the batch changes no answer, and a failure ends only its own sequences."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from structlog.testing import capture_logs

from dragoman.serve.engine.engine import UNHEALTHY_FAILURES
from dragoman.serve.engine.running import PADDING_TOKENS
from dragoman.serve.errors import CancelledError, DeadlineExceededError, InternalError
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.options import SearchOptions
from tests.support.benches import MakeBench, each_engine
from tests.support.engines import MAX_TARGET_TOKENS, STEP_TIMEOUT_SECONDS, Bench, answer, assert_alone
from tests.support.fakes import ENDLESS_ID, FIRST_ID, POISON_ID, translate
from tests.support.native_build import needs_compiler
from tests.support.native_loop import NativeBench
from tests.support.promises import Measured

# A source whose translation is empty.
EMPTY = next((token,) for token in range(FIRST_ID, 1000) if translate((token,), 1)[2] is FinishReason.EOS)
sources = st.lists(st.integers(FIRST_ID, 50) | st.just(ENDLESS_ID), min_size=1, max_size=6).map(tuple)


@each_engine
@pytest.mark.promise("R2")
@given(
    slots=st.integers(1, 5),
    prefill_token_budget=st.integers(1, 20),
    arrivals=st.lists(st.tuples(st.integers(0, 40), sources, st.integers(1, MAX_TARGET_TOKENS)), max_size=16),
)
def test_every_answer_is_bitwise_that_of_the_sequence_alone(
    make_bench: MakeBench, slots: int, prefill_token_budget: int, arrivals: list[tuple[int, tuple[int, ...], int]]
) -> None:
    bench = make_bench(slots, prefill_token_budget=prefill_token_budget)
    sequences = []
    steps = 0
    for arrival, source_ids, limit in sorted(arrivals):
        bench.step(arrival - steps)
        steps = arrival
        sequences.append(bench.submit(*source_ids, limit=limit))
    bench.run()
    assert_alone(*sequences)
    assert len(bench.finished) == len(sequences)
    # The budget does not count padding.
    for rows, tokens in bench.model.prefills:
        assert rows == 1 or tokens <= prefill_token_budget + rows * PADDING_TOKENS / 2


@each_engine
@pytest.mark.promise("R2")
def test_sequences_join_and_leave_at_any_step(make_bench: MakeBench, measured: Measured) -> None:
    offsets = range(MAX_TARGET_TOKENS + 1)
    for offset in offsets:
        bench = make_bench(slots=3)
        first = bench.submit(7, ENDLESS_ID)
        second = bench.submit(8, ENDLESS_ID, limit=max(1, offset))
        bench.step(offset)
        third = bench.submit(9, 9, ENDLESS_ID, limit=7)
        bench.run()
        assert_alone(first, second, third)
        assert bench.sample("sequences_running") == bench.sample("rows_running") == 0
    measured("R2", f"0 of {3 * len(offsets)} answers differ, one sequence joining and one leaving at each of the steps")


@each_engine
@pytest.mark.promise("R5")
def test_a_short_sequence_leaves_after_its_own_steps_in_any_batch(make_bench: MakeBench, measured: Measured) -> None:
    bench = make_bench(slots=4)
    for token in (7, 8, 9):
        bench.submit(token, ENDLESS_ID)
    bench.step(3)
    short = bench.submit(10, ENDLESS_ID, limit=5)
    bench.step(5)
    assert_alone(short)
    assert bench.finished == [short]
    bench.run()
    measured("R5", f"5 tokens in 5 steps, next to three texts of {MAX_TARGET_TOKENS}")


@each_engine
@pytest.mark.promise("R6")
@settings(max_examples=25)
@given(slots=st.integers(1, 4), arrivals=st.lists(st.tuples(st.integers(0, 3), sources), max_size=20))
def test_no_slot_is_idle_while_a_sequence_waits(
    make_bench: MakeBench, slots: int, arrivals: list[tuple[int, tuple[int, ...]]]
) -> None:
    bench = make_bench(slots)
    for pause, source_ids in arrivals:
        bench.submit(*source_ids)
        for _ in range(pause):
            bench.step()
            assert not bench.scheduler.waiting or bench.model.steps[-1] == slots
    while not bench.scheduler.idle:
        bench.step()
        assert not bench.scheduler.waiting or bench.model.steps[-1] == slots


@settings(max_examples=20)
@given(beam_sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), data=st.data())
def test_a_batch_that_fails_to_encode_fails_no_other_batch(beam_sizes: list[int], data: st.DataObject) -> None:
    """The lengths differ so much that sources are encoded one by one, and failing rows lie between the others."""
    failing = data.draw(st.sets(st.sampled_from(range(len(beam_sizes)))))
    bench = Bench(slots=16)
    running = bench.submit(7, ENDLESS_ID)
    bench.step(2)
    encode = bench.model.encode

    def encode_some(
        source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        if int(source_lengths[0]) // PADDING_TOKENS in failing:
            raise RuntimeError("out of memory")
        encode(source_ids, source_lengths, rows)

    bench.model.encode = encode_some  # type: ignore[method-assign]
    sources = [(8,) * (1 + number * (PADDING_TOKENS + 1)) for number in range(len(beam_sizes))]
    options = [SearchOptions(max_target_tokens=9, beam_size=beam_size) for beam_size in beam_sizes]
    with capture_logs():
        joining = [bench.submit(*ids, options=chosen) for ids, chosen in zip(sources, options, strict=True)]
        bench.step()
    bench.run()
    assert_alone(running)
    for number, sequence in enumerate(joining):
        if number in failing:
            assert isinstance(sequence.error, InternalError)
        else:
            other = Bench()
            expected = other.submit(*sequence.source_ids, options=sequence.options)
            other.run()
            assert answer(sequence) == answer(expected)


@each_engine
def test_hypotheses_of_beams_that_do_not_exist_yet_are_not_computed(make_bench: MakeBench) -> None:
    bench = make_bench(slots=12)
    bench.submit(7, ENDLESS_ID)
    for _ in range(2):
        bench.submit(8, options=SearchOptions(max_target_tokens=5, beam_size=4))
    bench.step(2)
    assert bench.model.steps == [3, 9]


@each_engine
@pytest.mark.promise("R29")
def test_a_failing_decoder_fails_only_what_runs_and_hides_the_cause(make_bench: MakeBench) -> None:
    bench = make_bench(slots=2)
    running = [bench.submit(7, ENDLESS_ID), bench.submit(8, ENDLESS_ID)]
    waiting = bench.submit(9, ENDLESS_ID)
    bench.step(3)
    bench.model.decode_error = RuntimeError("secret path")
    with capture_logs() as logs:
        bench.step()
    for sequence in running:
        assert isinstance(sequence.error, InternalError)
        assert "secret" not in str(sequence.error)
    assert [entry["log_level"] for entry in logs] == ["error"]
    bench.model.decode_error = None
    bench.run()
    assert_alone(waiting)


@each_engine
@pytest.mark.parametrize("broken", ["encode_error", "decode_error"])
def test_failures_in_a_row_make_the_engine_unhealthy_until_a_step_succeeds(make_bench: MakeBench, broken: str) -> None:
    bench = make_bench()
    setattr(bench.model, broken, RuntimeError("device lost"))
    with capture_logs():
        for _ in range(UNHEALTHY_FAILURES):
            assert bench.engine.healthy
            bench.submit(7)
            bench.step()
    assert (bench.engine.healthy, bench.engine.failure_count) == (False, 1)
    setattr(bench.model, broken, None)
    bench.submit(7)
    bench.step()
    assert (bench.engine.healthy, bench.engine.failure_count) == (True, 1)


@each_engine
def test_a_step_that_takes_too_long_hangs_until_it_ends(make_bench: MakeBench) -> None:
    bench = make_bench()
    seen = []

    def look(duration_seconds: float) -> None:
        bench.clock.seconds += duration_seconds
        seen.append((bench.engine.hanging, bench.engine.healthy))

    bench.submit(7, ENDLESS_ID)
    for duration_seconds in (STEP_TIMEOUT_SECONDS, STEP_TIMEOUT_SECONDS + 1):
        bench.model.on_step = partial(look, duration_seconds)
        bench.step()
    assert seen == [(False, True), (True, False)]
    assert (bench.engine.hanging, bench.engine.healthy) == (False, True)


@each_engine
@pytest.mark.parametrize("late", [True, False])
def test_an_abandoned_sequence_leaves_within_one_step(make_bench: MakeBench, *, late: bool) -> None:
    bench = make_bench(slots=2)
    running, leaving, following = (bench.submit(token, ENDLESS_ID, deadline_seconds=9.0 + token) for token in (3, 1, 2))
    bench.step()
    if late:
        bench.clock.seconds = 10.0
    else:
        bench.scheduler.cancel(leaving)
    bench.step()
    assert bench.finished == [leaving]
    assert isinstance(leaving.error, DeadlineExceededError if late else CancelledError)
    bench.step()
    assert bench.model.steps == [2] * 3
    bench.run()
    assert_alone(running, following)


@each_engine
@pytest.mark.promise("R16")
def test_what_expires_or_is_cancelled_in_the_queue_leaves_in_one_step_and_is_not_encoded(make_bench: MakeBench) -> None:
    bench = make_bench(slots=1)
    running = bench.submit(7, ENDLESS_ID)
    expired, cancelled = bench.submit(8, deadline_seconds=1.0), bench.submit(9)
    bench.step()
    bench.clock.seconds = 1.0
    bench.scheduler.cancel(cancelled)
    bench.step()
    assert [type(item.error) for item in (expired, cancelled)] == [DeadlineExceededError, CancelledError]
    bench.run()
    assert bench.model.prefills == [(1, 2)]
    assert_alone(running)


@each_engine
def test_a_request_encodes_equal_sources_once(make_bench: MakeBench) -> None:
    """As those of several targets, whose languages are prefixes of the translations."""
    limits = [SearchOptions(max_target_tokens=3, target_prefix=(token,)) for token in (3, 4, 5)]
    bench = make_bench(slots=8)
    shared = [bench.submit(7, ENDLESS_ID, options=options) for options in (*limits, limits[0]._replace(beam_size=2))]
    other = bench.submit(7, ENDLESS_ID, limit=4, fairness_key="another request")
    bench.run()
    assert bench.model.prefills == [(2, 4)]
    assert_alone(other)
    for sequence in shared:
        own = make_bench(slots=2)
        expected = own.submit(7, ENDLESS_ID, options=sequence.options)
        own.run()
        assert answer(sequence) == answer(expected)


@each_engine
def test_an_encoded_source_stays_until_the_last_of_its_sequences_ends(make_bench: MakeBench) -> None:
    bench = make_bench(slots=3)
    shared = [bench.submit(7, ENDLESS_ID, limit=limit) for limit in (1, 9)]
    bench.step(2)
    others = [bench.submit(token, ENDLESS_ID, limit=5) for token in (8, 9, 10)]
    bench.run()
    assert_alone(*shared, *others)


@needs_compiler
def test_a_sequence_that_joins_reads_the_source_that_its_request_has_encoded() -> None:
    bench = NativeBench(slots=3)
    sequences = []
    for limit in (2, 3, 4):
        sequences.append(bench.submit(7, ENDLESS_ID, limit=limit))
        bench.step()
    bench.run()
    assert bench.model.prefills == [(1, 2)]
    assert bench.sample("engine_step_sequences_sum", phase="encode") == 1
    assert_alone(*sequences)


@each_engine
@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_first_token_comes_with_the_first_step_however_short_the_text(make_bench: MakeBench, beam_size: int) -> None:
    bench = make_bench(slots=24)
    options = SearchOptions(max_target_tokens=3, beam_size=beam_size)
    sequences = [bench.submit(token_id, options=options) for token_id in range(FIRST_ID, FIRST_ID + 12)]
    for seconds in range(1, 5):
        bench.clock.seconds = seconds
        bench.step()
    assert {len(sequence.best.target_ids) for sequence in sequences} >= {0, 3}
    assert {sequence.first_token_seconds for sequence in sequences} == {1}


def test_runs_of_the_model_and_padding_are_counted() -> None:
    bench = Bench()
    bench.submit(7, ENDLESS_ID, limit=3)
    bench.submit(7, 8, 9, 10, ENDLESS_ID, limit=3)
    bench.run()
    assert bench.sample("padding_tokens_total", side="source") == 3
    assert bench.sample("engine_steps_total", phase="encode") == 1
    assert bench.sample("engine_steps_total", phase="decode") == 3
    assert bench.sample("engine_step_sequences_sum", phase="decode") == 6
    assert bench.sample("sequences_finished_total", reason="length") == 2


@each_engine
def test_tokens_of_a_cancelled_sequence_are_counted_as_wasted(make_bench: MakeBench) -> None:
    bench = make_bench()
    sequence = bench.submit(7, ENDLESS_ID)
    bench.step(3)
    bench.scheduler.cancel(sequence)
    bench.step()
    assert bench.sample("wasted_tokens_total", cause="cancelled") == 4
    assert bench.sample("sequences_finished_total", reason="cancelled") == 1
    assert bench.sample("sequences_running") == 0


@each_engine
def test_time_to_first_token_and_time_per_token_are_measured_without_failures(make_bench: MakeBench) -> None:
    bench = make_bench(slots=1)

    def pass_time() -> None:
        bench.clock.seconds += 2.0

    bench.model.on_step = pass_time
    bench.submit(ENDLESS_ID, limit=3)
    bench.submit(ENDLESS_ID, limit=1)
    bench.submit(ENDLESS_ID, POISON_ID)
    bench.scheduler.cancel(bench.submit(ENDLESS_ID))
    with capture_logs():
        bench.run()
    assert bench.sample("time_to_first_token_seconds_count") == 2
    assert bench.sample("time_to_first_token_seconds_sum") == 2.0 + (3 * 2.0 + 2.0)
    # The second sequence has only one token.
    assert bench.sample("time_per_output_token_seconds_count") == 1
    assert bench.sample("time_per_output_token_seconds_sum") == 2.0


@each_engine
@given(
    slots=st.integers(1, 5),
    specs=st.lists(st.tuples(sources, st.integers(1, MAX_TARGET_TOKENS), st.booleans()), max_size=10),
)
@settings(max_examples=25)
def test_listeners_get_every_token_but_the_last(
    make_bench: MakeBench, slots: int, specs: list[tuple[tuple[int, ...], int, bool]]
) -> None:
    """The last token is the end token, or reaches the limit; neighbors come and go meanwhile."""
    bench = make_bench(slots)
    sent: list[list[int]] = [[] for _ in specs]
    sequences = [
        bench.submit(*source_ids, limit=limit, on_token=tokens.append if listens else None)
        for (source_ids, limit, listens), tokens in zip(specs, sent, strict=True)
    ]
    bench.run()
    for sequence, tokens, (_, _, listens) in zip(sequences, sent, specs, strict=True):
        target_ids, _, reason = answer(sequence)
        expected = target_ids if reason is FinishReason.EOS else target_ids[:-1]
        assert tuple(tokens) == (expected if listens else ())


@each_engine
def test_a_listener_gets_a_token_in_the_step_that_chooses_it(make_bench: MakeBench) -> None:
    bench = make_bench()
    sent: list[int] = []
    bench.submit(ENDLESS_ID, on_token=sent.append)
    for step in range(1, 6):
        bench.step()
        assert len(sent) == step
