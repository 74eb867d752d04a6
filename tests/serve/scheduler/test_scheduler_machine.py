"""The scheduler under any order of calls: compared with a simple reference, without idle rows, starvation or losses."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from dragoman.serve.errors import CancelledError, DeadlineExceededError, DrainingError, InternalError, QueueFullError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceState
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from tests.support.fakes import FakeClock
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.native_build import needs_compiler
from tests.support.scheduler_reference import ReferenceScheduler, rows_of, tokens_of
from tests.support.schedulers import (
    AnyScheduler,
    MakeScheduler,
    Stepped,
    each_scheduler,
    line_of,
    make_native_scheduler,
    make_python_scheduler,
    make_sequence,
)

# Minimum of accepted sequences per run of the state machine; a shorter run shows too little.
ENOUGH = 20
# Rows, fairness key and deadline.
Arrival = tuple[int, str, float | None]


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of calls from two engines, compared with the reference."""

    ENGINES = 2
    ENGINE_ROWS = 3
    SLOTS = ENGINES * ENGINE_ROWS
    QUEUE_LIMIT = 12

    # Returns the scheduler to test.
    make: Callable[..., AnyScheduler] = staticmethod(make_python_scheduler)

    @initialize(prefill_token_budget=st.integers(1, 30), running_token_budget=st.none() | st.integers(20, 90))
    def start(self, prefill_token_budget: int, running_token_budget: int | None) -> None:
        """Makes both schedulers."""
        self.clock = FakeClock()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, model="tiny")
        self.scheduler = self.make(
            self.SLOTS,
            self.QUEUE_LIMIT,
            prefill_token_budget,
            self.clock,
            metrics=self.metrics,
            engines=self.ENGINES,
            running_token_budget=running_token_budget,
        )
        self.reference = ReferenceScheduler(
            self.ENGINES, self.ENGINE_ROWS, self.QUEUE_LIMIT, prefill_token_budget, running_token_budget
        )
        self.accepted: list[DecodingSequence] = []
        self.refused: list[DecodingSequence] = []
        self.ended: list[DecodingSequence] = []
        self.draining = False

    @rule(
        specs=st.lists(
            st.tuples(
                st.integers(1, 14),
                st.none() | st.integers(1, 9),
                st.sampled_from([1, 1, 2, ENGINE_ROWS]),
                st.integers(0, 1),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=SLOTS,
        )
    )
    def submit(self, specs: list[tuple[int, int | None, int, int, int]]) -> None:
        """All new sequences are accepted if their rows fit, otherwise none."""
        now = self.clock.seconds
        new = [
            make_sequence(
                tokens, patience and now + patience, self.ended.extend, rows=rows, priority=priority, fairness_key=key
            )
            for tokens, patience, rows, priority, key in specs
        ]
        if self.reference.fits(new) and not self.draining:
            self.scheduler.submit(new)
            for sequence in new:
                self.reference.submit(sequence)
            self.accepted += new
            return
        with pytest.raises(DrainingError if self.draining else QueueFullError):
            self.scheduler.submit(new)
        self.refused += new

    @rule(engine=st.integers(0, ENGINES - 1))
    def schedule(self, engine: int) -> None:
        """An engine gets the sequences of the reference; abandoned ones end with their reason."""
        gone = [sequence for sequence in self.reference.waiting if sequence.abandonment(self.clock.seconds)]
        self.reference.remove(gone)
        running_rows = rows_of(self.reference.running[engine])
        expected = self.reference.schedule(engine)
        ended_before = len(self.ended)
        assert self.scheduler.schedule(self.ENGINE_ROWS - running_rows, running_rows) == expected
        assert set(self.ended[ended_before:]) == set(gone)
        for sequence in gone:
            assert isinstance(sequence.error, CancelledError if sequence.cancelled else DeadlineExceededError)
        for sequence in expected:
            assert (sequence.state, sequence.started_seconds) == (SequenceState.RUNNING, self.clock.seconds)

    @precondition(lambda self: self.reference.all_running)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, *, fails: bool) -> None:
        """Any running sequence may end next, with or without an error; its callback runs at once."""
        engine = data.draw(st.sampled_from([engine for engine in self.reference.running if engine]))
        sequence = engine.pop(data.draw(st.integers(0, len(engine) - 1)))
        error = InternalError("broken") if fails else None
        sequence.hypotheses = (Hypothesis((), 0.0, 0.0, FinishReason.EOS, ()),)
        self.scheduler.finish(sequence, error)
        assert self.ended[-1] is sequence
        assert len(sequence.hypotheses) == (0 if fails else 1)
        assert sequence.error is error

    @precondition(lambda self: self.reference.line)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """The client of a waiting sequence disconnects."""
        self.scheduler.cancel(data.draw(st.sampled_from(self.reference.waiting)))

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        """Time advances toward the deadlines."""
        self.clock.seconds += seconds

    @precondition(lambda self: len(self.accepted) > ENOUGH)
    @rule()
    def drain(self) -> None:
        """No sequence is accepted from here on."""
        self.scheduler.drain()
        self.draining = True

    @precondition(lambda self: len(self.accepted) > ENOUGH)
    @rule()
    def fail_all(self) -> None:
        """All waiting sequences end with the same error."""
        error = InternalError("broken")
        self.scheduler.fail_all(error)
        assert all(sequence.error is error for sequence in self.reference.waiting)
        self.reference.remove(self.reference.waiting)

    @invariant()
    def counts_are_exact_and_bounded(self) -> None:
        """Counts and gauges equal those of the reference."""
        waiting, running = self.reference.waiting, self.reference.all_running
        assert (self.scheduler.waiting, self.scheduler.running) == (len(waiting), len(running))
        assert rows_of(waiting) + rows_of(running) <= self.SLOTS + self.QUEUE_LIMIT
        assert self.scheduler.idle == (not waiting and not running)
        # A lookup by name would read every series, after every step of every run.
        gauges = [gauge._value.get() for gauge in self.metrics._load_gauges]
        assert gauges == [len(waiting), len(running), rows_of(running)]

    @invariant()
    def the_line_is_in_order(self) -> None:
        """The order of starts equals that of the reference."""
        line = sorted(self.reference.line, key=lambda waiter: waiter.order)
        assert line_of(self.scheduler) == [(waiter.sequence, waiter.passed_rows) for waiter in line]

    @invariant()
    def budgets_are_kept(self) -> None:
        """No engine exceeds its slots, and only a sequence alone exceeds the token budget."""
        assert all(rows_of(engine) <= self.ENGINE_ROWS for engine in self.reference.running)
        budget, running = self.reference.running_token_budget, self.reference.all_running
        assert budget is None or len(running) <= 1 or tokens_of(running) <= budget

    @invariant()
    def every_accepted_sequence_is_finished_once_or_still_held(self) -> None:
        """No sequence is lost or finished twice."""
        occupied = self.reference.waiting + self.reference.all_running
        assert sorted(map(id, self.ended + occupied)) == sorted(map(id, self.accepted))
        assert all(sequence.state is SequenceState.FINISHED for sequence in self.ended)
        assert all(sequence.state is SequenceState.WAITING for sequence in self.reference.waiting + self.refused)

    def teardown(self) -> None:
        """The metrics counted every end."""
        samples = next(item.samples for item in self.registry.collect() if item.name == "dragoman_sequences_finished")
        assert sum(sample.value for sample in samples if sample.name.endswith("_total")) == len(self.ended)


class NativeSchedulerMachine(SchedulerMachine):
    """The same for the native scheduler."""

    make = staticmethod(make_native_scheduler)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=25, stateful_step_count=50)
TestNativeSchedulerMachine = needs_compiler(NativeSchedulerMachine.TestCase)
TestNativeSchedulerMachine.settings = settings(max_examples=25, stateful_step_count=50)


@each_scheduler
@given(
    engines=st.integers(1, 3),
    turns=st.lists(
        st.tuples(st.lists(st.integers(1, 4), max_size=6), st.lists(st.integers(0, 2), max_size=4)), max_size=30
    ),
)
def test_no_row_idles_that_something_fits(
    make_scheduler: MakeScheduler, engines: int, turns: list[tuple[list[int], list[int]]]
) -> None:
    """If no engine gets more, no waiting sequence fits anywhere, unless rows are kept for the head of the queue."""
    scheduler = make_scheduler(slots=4 * engines, queue_limit=1000, engines=engines)
    stepped = Stepped(scheduler, engine_rows=4, engines=engines)
    for new, ended in turns:
        scheduler.submit([make_sequence(rows=rows, fairness_key=object()) for rows in new])
        for engine in ended:
            if engine < engines and stepped.running[engine]:
                stepped.finish(engine)
        while sum(len(stepped.schedule(engine)) for engine in range(engines)):
            pass
        line = [(sequence.options.rows, passed_rows) for sequence, passed_rows in line_of(scheduler)]
        for engine in range(engines):
            fitting = [rows for rows, _ in line if rows <= stepped.free_rows(engine)]
            if fitting:
                first_rows, passed_rows = line[0]
                assert first_rows > stepped.free_rows(engine)
                assert passed_rows + fitting[0] > 4


@each_scheduler
@settings(max_examples=40)
@given(
    engines=st.integers(1, 2),
    before=st.lists(st.integers(1, 4), max_size=2),
    rows=st.integers(1, 4),
    fairness_key=st.sampled_from(["busy", "own"]),
    load=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["busy", "new"]), st.none() | st.just(0.5)), min_size=1),
)
def test_nothing_starves(
    make_scheduler: MakeScheduler, *, engines: int, before: list[int], rows: int, fairness_key: str, load: list[Arrival]
) -> None:
    """Under endless load, every sequence starts after a bounded number of others.

    With C scheduled rows, fewer than C rounds lie between the current one and that of the sequence. Each new round
    finds at most C sequences ahead, and at most an engine's number of rows passes each of those.
    """
    engine_rows, queue_limit = 4, 8
    capacity = engines * engine_rows + queue_limit
    scheduler = make_scheduler(engines * engine_rows, queue_limit, engines=engines)
    stepped = Stepped(scheduler, engine_rows, engines)
    watched = make_sequence(rows=rows, fairness_key=fairness_key)
    scheduler.submit([*(make_sequence(rows=width, fairness_key="busy") for width in before), watched])
    endless = cycle(load)
    started = 0
    while watched.state is SequenceState.WAITING:
        with suppress(QueueFullError):
            while True:
                width, name, deadline_seconds = next(endless)
                new_flow = object() if name == "new" else name
                scheduler.submit([make_sequence(1, deadline_seconds, rows=width, fairness_key=new_flow)])
        for engine in range(engines):
            started += len(stepped.schedule(engine))
            stepped.finish(engine)
        assert started <= capacity * (capacity + 1) * (1 + engine_rows)


@each_scheduler
def test_two_engines_and_many_callers_lose_nothing(make_scheduler: MakeScheduler) -> None:
    """Threads submit, cancel, schedule and finish in any order: each accepted sequence is finished once."""
    scheduler = make_scheduler(slots=8, queue_limit=1000, engines=2, running_token_budget=60)
    finished: list[DecodingSequence] = []

    def make(number: int) -> DecodingSequence:
        return make_sequence(1 + number % 5, None, finished.extend, rows=1 + number % 4, fairness_key=number)

    requests = [[make(number) for _ in range(5)] for number in range(60)]

    def submit(first: int) -> None:
        for request in requests[first::3]:
            scheduler.submit(request)
            scheduler.cancel(request[-1])

    def run() -> None:
        running: list[DecodingSequence] = []
        while running or scheduler.wait():
            rows = rows_of(running)
            running += scheduler.schedule(4 - rows, rows)
            if running:
                scheduler.finish(running.pop(0), InternalError("broken"))

    with ThreadPoolExecutor(5) as pool:
        engines = [pool.submit(run) for _ in range(2)]
        list(pool.map(submit, range(3)))
        eventually(lambda: len(finished) >= 300)
        scheduler.drain()
        for engine in engines:
            engine.result(WAIT_SECONDS)
    assert scheduler.idle
    assert set(finished) == {sequence for request in requests for sequence in request}
    assert len(finished) == 300
