"""The scheduler compared with a simple reference, and its guarantees one by one."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from serve.errors import (
    CancelledError,
    DeadlineExceededError,
    DeadlineUnmeetableError,
    DrainingError,
    InternalError,
    QueueFullError,
    QueueTimeoutError,
)
from serve.observability.metrics import Metrics
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceState
from serve.search.hypothesis import FinishReason, Hypothesis
from serve.search.options import SearchOptions
from tests.support.fakes import FakeClock
from tests.support.scheduler_reference import ReferenceScheduler, rows_of, tokens_of

# Minimum of accepted sequences per run of the state machine; a shorter run shows too little.
ENOUGH = 20


def ignore(_sequence: DecodingSequence) -> None:
    """Ignores the end of a sequence."""


def make_sequence(
    source_tokens: int = 1,
    deadline_seconds: float | None = None,
    on_finish: Callable[[DecodingSequence], None] = ignore,
    *,
    rows: int = 1,
    priority: int = 0,
    fairness_key: object = None,
) -> DecodingSequence:
    options = SearchOptions(max_target_tokens=8, beam_size=rows)
    return DecodingSequence(
        tuple(range(source_tokens)), options, deadline_seconds, on_finish, priority=priority, fairness_key=fairness_key
    )


def make_scheduler(
    slots: int = 4,
    queue_limit: int = 4,
    prefill_token_budget: int = 100,
    clock: FakeClock | None = None,
    *,
    engines: int = 1,
    running_token_budget: int | None = None,
    queue_timeout_seconds: float | None = None,
) -> Scheduler:
    return Scheduler(
        slots,
        queue_limit,
        prefill_token_budget,
        Metrics(CollectorRegistry(), model="tiny"),
        clock or FakeClock(),
        engines=engines,
        running_token_budget=running_token_budget,
        queue_timeout_seconds=queue_timeout_seconds,
    )


def line_of(scheduler: Scheduler) -> list[tuple[DecodingSequence, int]]:
    """Returns the waiting sequences in order, with the rows that passed each."""
    places = (place for heap in scheduler._waiting._heaps.values() for place in heap)
    return [(place.sequence, place.passed_rows) for place in sorted(places)]


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of calls from two engines, compared with the reference."""

    ENGINES = 2
    ENGINE_ROWS = 3
    SLOTS = ENGINES * ENGINE_ROWS
    QUEUE_LIMIT = 12

    @initialize(prefill_token_budget=st.integers(1, 30), running_token_budget=st.none() | st.integers(20, 90))
    def start(self, prefill_token_budget: int, running_token_budget: int | None) -> None:
        """Makes both schedulers."""
        self.clock = FakeClock()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, model="tiny")
        self.scheduler = Scheduler(
            self.SLOTS,
            self.QUEUE_LIMIT,
            prefill_token_budget,
            self.metrics,
            self.clock,
            engines=self.ENGINES,
            running_token_budget=running_token_budget,
        )
        self.reference = ReferenceScheduler(
            self.ENGINES, self.ENGINE_ROWS, self.QUEUE_LIMIT, prefill_token_budget, running_token_budget
        )
        self.accepted: list[DecodingSequence] = []
        self.refused: list[DecodingSequence] = []
        self.told: list[DecodingSequence] = []
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
                tokens,
                None if patience is None else now + patience,
                self.told.append,
                rows=rows,
                priority=priority,
                fairness_key=fairness_key,
            )
            for tokens, patience, rows, priority, fairness_key in specs
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
    def admit(self, engine: int) -> None:
        """An engine gets the sequences of the reference; abandoned ones end with their reason."""
        gone = [sequence for sequence in self.reference.waiting if sequence.abandonment(self.clock.seconds)]
        self.reference.remove(gone)
        running_rows = rows_of(self.reference.running[engine])
        expected = self.reference.admit(engine)
        told_before = len(self.told)
        assert self.scheduler.admit(self.ENGINE_ROWS - running_rows, running_rows) == expected
        assert set(self.told[told_before:]) == set(gone)
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
        sequence.hypotheses = [] if fails else [Hypothesis((), 0.0, 0.0, FinishReason.EOS, ())]
        self.scheduler.finish(sequence, error)
        assert self.told[-1] is sequence
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
        # Not by name: a lookup reads every series, after every step of every run.
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
        assert sorted(map(id, self.told + occupied)) == sorted(map(id, self.accepted))
        assert all(sequence.state is SequenceState.FINISHED for sequence in self.told)
        assert all(sequence.state is SequenceState.WAITING for sequence in self.reference.waiting + self.refused)

    def teardown(self) -> None:
        """The metrics counted every end."""
        samples = next(
            metric.samples for metric in self.registry.collect() if metric.name == "dragoman_sequences_finished"
        )
        assert sum(sample.value for sample in samples if sample.name.endswith("_total")) == len(self.told)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


@dataclass
class Stepped:
    """Engines that a test steps by hand: each step admits, and a test ends any sequence."""

    scheduler: Scheduler
    engine_rows: int
    engines: int = 1

    def __post_init__(self) -> None:
        self.running: list[list[DecodingSequence]] = [[] for _ in range(self.engines)]

    def free_rows(self, engine: int = 0) -> int:
        """Returns the free rows of an engine."""
        return self.engine_rows - rows_of(self.running[engine])

    def admit(self, engine: int = 0) -> list[DecodingSequence]:
        """Calls `admit` for an engine."""
        free_rows = self.free_rows(engine)
        admitted = self.scheduler.admit(free_rows, self.engine_rows - free_rows)
        self.running[engine] += admitted
        return admitted

    def finish(self, engine: int = 0, index: int = 0) -> None:
        """Ends a running sequence."""
        self.scheduler.finish(self.running[engine].pop(index), InternalError("broken"))


def test_spare_rows_lower_the_bound_of_a_request() -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(0) as reservation:
        reservation.resize(2, spare_rows=2)
        with pytest.raises(QueueFullError):
            reservation.resize(3, spare_rows=2)
        reservation.resize(3, spare_rows=1)


def test_one_row_over_the_bound_is_refused_with_the_numbers() -> None:
    scheduler = make_scheduler(slots=3, queue_limit=3)
    scheduler.submit([make_sequence(rows=3), make_sequence()])
    scheduler.admit(3, 0)
    with pytest.raises(QueueFullError, match=r"^3 more rows .* 3 rows run and 1 wait, expected at most 6 "):
        scheduler.submit([make_sequence(), make_sequence(rows=2)])
    assert (scheduler.waiting, scheduler.running) == (1, 1)
    scheduler.submit([make_sequence(), make_sequence()])


def test_reserved_rows_count_as_if_they_waited() -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(3):
        with pytest.raises(QueueFullError, match=r"^2 more rows .* 0 rows run and 3 wait, expected at most 4 "):
            scheduler.submit([make_sequence(), make_sequence()])
        with pytest.raises(QueueFullError):
            scheduler.reserve(2)
        scheduler.submit([make_sequence()])
    scheduler.submit([make_sequence() for _ in range(3)])


def test_what_was_reserved_is_there_however_full_the_queue_is() -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(3) as reservation:
        scheduler.submit([make_sequence()])
        scheduler.submit([make_sequence(rows=2), make_sequence()], reservation)
        assert reservation.rows == 0
        with pytest.raises(QueueFullError):
            scheduler.reserve(1)


def test_a_reservation_grows_if_there_is_room_and_shrinks_always() -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(1) as first, scheduler.reserve(1) as second:
        first.resize(3)
        with pytest.raises(QueueFullError):
            second.resize(2)
        first.resize(1)
        second.resize(2)
        assert (first.rows, second.rows) == (1, 2)


def test_nothing_is_reserved_after_draining_nor_for_a_deadline_that_has_passed() -> None:
    clock = FakeClock()
    scheduler = make_scheduler(clock=clock)
    with pytest.raises(DeadlineExceededError):
        scheduler.reserve(1, clock())
    scheduler.drain()
    with pytest.raises(DrainingError):
        scheduler.reserve(1)


def test_a_deadline_is_unmeetable_if_the_queue_ahead_takes_longer() -> None:
    """Two rows become free per second and six wait: a new request starts in 3 s and runs for 1 s."""
    clock = FakeClock()
    scheduler = make_scheduler(slots=2, queue_limit=20, clock=clock)
    scheduler.submit(
        [make_sequence(deadline_seconds=clock() + 2.5, fairness_key=fairness_key) for fairness_key in range(10)]
    )
    for _ in range(2):
        running = scheduler.admit(2, 0)
        clock.seconds += 0.5
        scheduler.finish(running[0], InternalError("broken"))
        clock.seconds += 0.5
        scheduler.finish(running[1], InternalError("broken"))
    assert scheduler.waiting == 6
    with pytest.raises(DeadlineUnmeetableError, match=r"about 3 s to wait .* and 1 s to translate, but 3\.9 s to"):
        scheduler.reserve(1, clock() + 3.9)
    scheduler.reserve(1, clock() + 4.1)


def test_a_newcomer_that_would_wait_longer_than_it_may_is_refused_at_once() -> None:
    clock = FakeClock()
    scheduler = make_scheduler(slots=2, queue_limit=20, clock=clock, queue_timeout_seconds=2.5)
    scheduler.submit([make_sequence(fairness_key=fairness_key) for fairness_key in range(8)])
    running = scheduler.admit(2, 0)
    for sequence in running:
        clock.seconds += 0.5
        scheduler.finish(sequence, InternalError("broken"))
    with pytest.raises(QueueTimeoutError, match=r"about 3 s to wait in the queue, expected at most 2.5 s"):
        scheduler.reserve(1)


def test_a_patient_sequence_is_exempt_from_the_queue_timeout() -> None:
    clock = FakeClock()
    scheduler = make_scheduler(slots=1, clock=clock, queue_timeout_seconds=1.0)
    patient, other = make_sequence(), make_sequence()
    scheduler.submit([make_sequence()])
    assert len(scheduler.admit(1, 0)) == 1
    scheduler.submit([patient], patient=True)
    scheduler.submit([other])
    clock.seconds += 2.0
    scheduler.admit(0, 1)
    assert isinstance(other.error, QueueTimeoutError)
    assert scheduler.admit(1, 0) == [patient]


def test_a_reservation_that_is_given_back_twice_is_over_once() -> None:
    scheduler = make_scheduler(slots=2)
    over: list[int] = []
    with scheduler.reserve(2) as reservation:
        reservation.on_exit = lambda: over.append(1)
        with reservation:
            pass
    assert over == [1]


def test_what_has_started_is_not_bound_by_the_queue_timeout() -> None:
    clock = FakeClock()
    scheduler = make_scheduler(slots=1, clock=clock, queue_timeout_seconds=1.0)
    first, second = make_sequence(), make_sequence()
    scheduler.submit([first, second])
    assert scheduler.admit(1, 0) == [first]
    clock.seconds += 1.0
    assert scheduler.admit(0, 1) == []
    assert first.abandonment(clock()) is None
    assert isinstance(second.error, QueueTimeoutError)


def test_a_sequence_wider_than_an_engine_is_refused() -> None:
    scheduler = make_scheduler(slots=6, engines=2)
    with pytest.raises(ValueError, match=r"^sequence: 4 rows, expected at most 3"):
        scheduler.submit([make_sequence(), make_sequence(rows=4)])
    assert scheduler.idle


@pytest.mark.promise("R8")
def test_concurrent_submissions_never_exceed_the_bound() -> None:
    scheduler = make_scheduler(slots=5, queue_limit=20)
    barrier = threading.Barrier(8)
    outcomes: list[bool] = []

    def submit_many() -> None:
        barrier.wait()
        for _ in range(20):
            try:
                scheduler.submit([make_sequence(), make_sequence()])
            except QueueFullError:
                outcomes.append(False)
            else:
                outcomes.append(True)

    threads = [threading.Thread(target=submit_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count(True), outcomes.count(False)) == (12, 148)
    assert scheduler.waiting == 24


def test_a_sequence_longer_than_the_prefill_budget_starts_alone() -> None:
    scheduler = make_scheduler(prefill_token_budget=10)
    long, short = make_sequence(11), make_sequence(1)
    scheduler.submit([long, short])
    assert scheduler.admit(4, 0) == [long]
    assert scheduler.admit(3, 1) == [short]


def test_the_prefill_budget_counts_source_tokens_without_padding() -> None:
    scheduler = make_scheduler(prefill_token_budget=10)
    sequences = [make_sequence(tokens) for tokens in (2, 7, 1, 1)]
    scheduler.submit(sequences)
    assert scheduler.admit(4, 0) == sequences[:3]


def test_nothing_shorter_passes_a_sequence_that_the_next_prefill_takes() -> None:
    scheduler = make_scheduler(prefill_token_budget=10)
    first, long, short = make_sequence(6), make_sequence(6), make_sequence(1)
    scheduler.submit([first, long, short])
    assert scheduler.admit(4, 0) == [first]
    assert scheduler.admit(3, 1) == [long, short]


def test_the_token_budget_bounds_what_runs_together_in_all_engines() -> None:
    """A sequence of one source token may hold nine tokens, in two rows eighteen."""
    scheduler = make_scheduler(slots=8, engines=2, running_token_budget=36)
    engines = Stepped(scheduler, engine_rows=4, engines=2)
    scheduler.submit([make_sequence(rows=2), make_sequence(), make_sequence(), make_sequence()])
    assert [len(engines.admit(0)), len(engines.admit(1)), len(engines.admit(0))] == [2, 1, 0]
    engines.finish(1)
    assert len(engines.admit(1)) == 1


def test_a_sequence_over_the_token_budget_runs_when_nothing_else_does() -> None:
    scheduler = make_scheduler(running_token_budget=20)
    engine = Stepped(scheduler, engine_rows=4)
    small, large, last = make_sequence(), make_sequence(13), make_sequence()
    scheduler.submit([small, large, last])
    assert engine.admit() == [small]
    engine.finish()
    assert engine.admit() == [large]
    assert engine.admit() == []
    engine.finish()
    assert engine.admit() == [last]


def test_an_idle_engine_gets_its_share_though_another_asks_first() -> None:
    scheduler = make_scheduler(slots=16, engines=2)
    engines = Stepped(scheduler, engine_rows=8, engines=2)
    scheduler.submit([make_sequence() for _ in range(7)])
    assert [len(engines.admit(0)), len(engines.admit(0)), len(engines.admit(1))] == [4, 0, 3]


def test_what_an_engine_runs_already_counts_for_its_share() -> None:
    scheduler = make_scheduler(slots=16, queue_limit=0, engines=2)
    engines = Stepped(scheduler, engine_rows=8, engines=2)
    scheduler.submit([make_sequence() for _ in range(4)])
    engines.admit(0)
    engines.admit(0)
    engines.admit(1)
    scheduler.submit([make_sequence() for _ in range(2)])
    engines.finish(1)
    assert [len(engines.admit(0)), len(engines.admit(1))] == [1, 1]


def test_an_engine_is_given_a_sequence_that_is_wider_than_its_share() -> None:
    scheduler = make_scheduler(slots=8, engines=2)
    engines = Stepped(scheduler, engine_rows=4, engines=2)
    scheduler.submit([make_sequence(rows=4)])
    assert len(engines.admit(0)) == 1


def test_an_engine_that_is_never_asked_holds_nothing_up() -> None:
    scheduler = make_scheduler(slots=8, engines=2)
    engines = Stepped(scheduler, engine_rows=4, engines=2)
    scheduler.submit([make_sequence() for _ in range(12)])
    steps = 0
    while not scheduler.idle:
        engines.admit(0)
        engines.finish(0)
        steps += 1
    assert steps == 12


@settings(deadline=None)
@given(
    engines=st.integers(1, 3),
    turns=st.lists(
        st.tuples(st.lists(st.integers(1, 4), max_size=6), st.lists(st.integers(0, 2), max_size=4)), max_size=30
    ),
)
def test_no_row_idles_that_something_fits(engines: int, turns: list[tuple[list[int], list[int]]]) -> None:
    """If no engine gets more, no waiting sequence fits anywhere, unless rows are kept for the head of the queue."""
    scheduler = make_scheduler(slots=4 * engines, queue_limit=1000, engines=engines)
    stepped = Stepped(scheduler, engine_rows=4, engines=engines)
    for new, ended in turns:
        scheduler.submit([make_sequence(rows=rows, fairness_key=object()) for rows in new])
        for engine in ended:
            if engine < engines and stepped.running[engine]:
                stepped.finish(engine)
        while sum(len(stepped.admit(engine)) for engine in range(engines)):
            pass
        line = [(sequence.options.rows, passed_rows) for sequence, passed_rows in line_of(scheduler)]
        for engine in range(engines):
            fitting = [rows for rows, _ in line if rows <= stepped.free_rows(engine)]
            if fitting:
                first_rows, passed_rows = line[0]
                assert first_rows > stepped.free_rows(engine)
                assert passed_rows + fitting[0] > 4


@settings(max_examples=40, deadline=None)
@given(
    engines=st.integers(1, 2),
    before=st.lists(st.integers(1, 4), max_size=2),
    rows=st.integers(1, 4),
    fairness_key=st.sampled_from(["busy", "own"]),
    stream=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["busy", "new"]), st.none() | st.just(0.5)), min_size=1
    ),
)
def test_nothing_starves(
    engines: int, before: list[int], rows: int, fairness_key: str, stream: list[tuple[int, str, float | None]]
) -> None:
    """Under endless load, every sequence starts after a bounded number of others.

    With C admitted rows, fewer than C rounds lie between the current one and that of the sequence. Each new round finds
    at most C sequences ahead, and at most an engine's number of rows passes each of those.
    """
    engine_rows, queue_limit = 4, 8
    capacity = engines * engine_rows + queue_limit
    scheduler = make_scheduler(engines * engine_rows, queue_limit, engines=engines)
    stepped = Stepped(scheduler, engine_rows, engines)
    watched = make_sequence(rows=rows, fairness_key=fairness_key)
    scheduler.submit([*(make_sequence(rows=width, fairness_key="busy") for width in before), watched])
    endless = cycle(stream)
    started = 0
    while watched.state is SequenceState.WAITING:
        with suppress(QueueFullError):
            while True:
                width, name, deadline_seconds = next(endless)
                new_flow = object() if name == "new" else name
                scheduler.submit([make_sequence(1, deadline_seconds, rows=width, fairness_key=new_flow)])
        for engine in range(engines):
            started += len(stepped.admit(engine))
            stepped.finish(engine)
        assert started <= capacity * (capacity + 1) * (1 + engine_rows)


def test_a_sequence_expires_while_every_slot_is_taken() -> None:
    clock = FakeClock()
    scheduler = make_scheduler(clock=clock)
    sequence = make_sequence(deadline_seconds=5.0)
    scheduler.submit([sequence])
    clock.seconds = 4.9
    assert scheduler.admit(0, 4) == []
    assert sequence.error is None
    clock.seconds = 5.0
    assert scheduler.admit(0, 4) == []
    assert isinstance(sequence.error, DeadlineExceededError)


def test_the_times_of_a_sequence_come_from_the_clock() -> None:
    clock = FakeClock(1.0)
    scheduler = make_scheduler(clock=clock)
    sequence = make_sequence()
    scheduler.submit([sequence])
    clock.seconds = 2.5
    scheduler.admit(1, 0)
    clock.seconds = 4.0
    scheduler.finish(sequence, InternalError("broken"))
    assert (sequence.submitted_seconds, sequence.started_seconds, sequence.finished_seconds) == (1.0, 2.5, 4.0)


def test_a_callback_may_wait_for_another_thread_that_calls_the_scheduler() -> None:
    """Callbacks run outside the lock: a callback that waits for a submission of another thread does not deadlock."""
    scheduler = make_scheduler()
    queued = threading.Event()

    def submit() -> None:
        scheduler.submit([make_sequence()])
        queued.set()

    def submit_elsewhere(_sequence: DecodingSequence) -> None:
        threading.Thread(target=submit).start()
        assert queued.wait(10)

    sequence = make_sequence(on_finish=submit_elsewhere)
    sequence.cancelled = True
    scheduler.submit([sequence])
    scheduler.admit(1, 0)
    assert scheduler.waiting == 1


def test_prefetched_rows_are_assigned_after_the_free_ones() -> None:
    scheduler = make_scheduler()
    sequences = [make_sequence() for _ in range(7)]
    scheduler.submit(sequences)
    scheduler.admit(3, 0)
    assert scheduler.admit(1, 3, 2) == sequences[3:6]


@pytest.mark.parametrize("order", [(2, 1, 1), (1, 1, 2)])
def test_a_wide_sequence_is_never_prefetched_and_ends_prefetching(order: tuple[int, ...]) -> None:
    scheduler = make_scheduler()
    sequences = [make_sequence(rows=rows) for rows in order]
    scheduler.submit(sequences)
    assert scheduler.admit(2, 2, 2) == (sequences[:1] if order[0] > 1 else sequences[:2])


def test_an_idle_engine_sleeps_until_a_sequence_waits() -> None:
    scheduler = make_scheduler()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(scheduler.wait()))
    thread.start()
    scheduler.submit([make_sequence()])
    thread.join(10)
    assert woken == [True]


def test_an_idle_engine_sleeps_while_another_uses_up_the_token_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does not poll for a sequence that it cannot get."""
    scheduler = make_scheduler(slots=8, engines=2, running_token_budget=10)
    engines = Stepped(scheduler, engine_rows=4, engines=2)
    scheduler.submit([make_sequence(), make_sequence()])
    engines.admit(0)
    asleep = threading.Event()
    sleep = scheduler._changed.wait

    def tell_and_sleep(timeout: float | None = None) -> bool:
        asleep.set()
        return sleep(timeout)

    monkeypatch.setattr(scheduler._changed, "wait", tell_and_sleep)
    assert scheduler.wait()
    assert engines.admit(1) == []
    thread = threading.Thread(target=scheduler.wait)
    thread.start()
    assert asleep.wait(10)
    engines.finish(0)
    thread.join(10)
    assert not thread.is_alive()
    assert len(engines.admit(1)) == 1


@pytest.mark.parametrize("call", [Scheduler.drain, lambda scheduler: scheduler.submit([make_sequence()])])
def test_an_engine_that_got_nothing_is_woken_by_any_change(call: Callable[[Scheduler], None]) -> None:
    scheduler = make_scheduler(running_token_budget=10)
    scheduler.submit([make_sequence(), make_sequence()])
    scheduler.admit(4, 0)
    assert scheduler.admit(4, 0) == []
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(scheduler.wait()))
    thread.start()
    call(scheduler)
    thread.join(10)
    assert woken == [True]


def test_draining_wakes_an_idle_engine_for_good() -> None:
    scheduler = make_scheduler()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(scheduler.wait()))
    thread.start()
    scheduler.drain()
    thread.join(10)
    assert woken == [False]


def test_draining_keeps_what_waits() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence()
    scheduler.submit([sequence])
    scheduler.drain()
    assert scheduler.wait()
    assert scheduler.admit(1, 0) == [sequence]


def test_two_engines_and_many_callers_lose_nothing() -> None:
    """Threads submit, cancel, admit and finish in any order: each accepted sequence is finished once."""
    scheduler = make_scheduler(slots=8, queue_limit=1000, engines=2, running_token_budget=60)
    told = threading.Semaphore(0)
    finished: list[DecodingSequence] = []

    def on_finish(sequence: DecodingSequence) -> None:
        finished.append(sequence)
        told.release()

    requests = [
        [make_sequence(1 + number % 5, on_finish=on_finish, rows=1 + number % 4, fairness_key=number) for _ in range(5)]
        for number in range(60)
    ]

    def submit(first: int) -> None:
        for request in requests[first::3]:
            scheduler.submit(request)
            scheduler.cancel(request[-1])

    def run() -> None:
        running: list[DecodingSequence] = []
        while running or scheduler.wait():
            rows = rows_of(running)
            running += scheduler.admit(4 - rows, rows)
            if running:
                scheduler.finish(running.pop(0), InternalError("broken"))

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(3)]
    threads += [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        assert told.acquire(timeout=30)
    scheduler.drain()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert scheduler.idle
    assert set(finished) == {sequence for request in requests for sequence in request}
    assert len(finished) == 300
