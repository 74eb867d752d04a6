"""The scheduler against a model of itself, and its promises one by one."""

import threading
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from serve.errors import CancelledError, DeadlineExceededError, DrainingError, InternalError, QueueFullError
from serve.hypothesis import Hypothesis
from serve.metrics import Metrics
from serve.options import SearchOptions
from serve.request import FinishReason
from serve.scheduler import Scheduler
from serve.sequence import Sequence, SequenceState
from tests.fakes import FakeClock


def ignore(_sequence: Sequence) -> None:
    """Is told of an ending that the test does not look at."""


def make_sequence(
    source_tokens: int = 1,
    deadline_seconds: float | None = None,
    on_finish: Callable[[Sequence], None] = ignore,
) -> Sequence:
    return Sequence(tuple(range(source_tokens)), SearchOptions(max_target_tokens=8), deadline_seconds, on_finish)


def make_scheduler(
    slots: int = 4, queue_limit: int = 4, prefill_token_budget: int = 100, clock: FakeClock | None = None
) -> Scheduler:
    metrics = Metrics(CollectorRegistry(), model="tiny")
    return Scheduler(slots, queue_limit, prefill_token_budget, metrics, clock or FakeClock())


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of calls, compared with two plain lists."""

    SLOTS = 3
    QUEUE_LIMIT = 4
    BUDGET = 10

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, model="tiny")
        self.scheduler = Scheduler(self.SLOTS, self.QUEUE_LIMIT, self.BUDGET, metrics, self.clock)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.accepted: list[Sequence] = []
        self.refused: list[Sequence] = []
        self.told: list[Sequence] = []
        self.draining = False

    def expire(self) -> list[Sequence]:
        """Returns the sequences whose client has gone, and takes them off the list."""
        now = self.clock.seconds
        gone = [
            sequence
            for sequence in self.waiting
            if sequence.cancelled or (sequence.deadline_seconds is not None and sequence.deadline_seconds <= now)
        ]
        self.waiting = [sequence for sequence in self.waiting if sequence not in gone]
        return gone

    @rule(
        wishes=st.lists(
            st.tuples(st.integers(1, 14), st.none() | st.floats(0.0, 5.0)), min_size=1, max_size=SLOTS + QUEUE_LIMIT + 1
        )
    )
    def submit(self, wishes: list[tuple[int, float | None]]) -> None:
        """All of the new sequences are accepted if they fit, else none."""
        now = self.clock.seconds
        new = [
            make_sequence(tokens, None if patience is None else now + patience, self.told.append)
            for tokens, patience in wishes
        ]
        fits = len(self.waiting) + len(self.running) + len(new) <= self.SLOTS + self.QUEUE_LIMIT
        if fits and not self.draining:
            self.scheduler.submit(new)
            self.waiting += new
            self.accepted += new
            return
        with pytest.raises(DrainingError if self.draining else QueueFullError):
            self.scheduler.submit(new)
        self.refused += new

    @rule(free=st.integers(0, SLOTS))
    def admit(self, free: int) -> None:
        """The longest-waiting living sequences start, as many as slots and budget allow."""
        gone = self.expire()
        expected: list[Sequence] = []
        for sequence in self.waiting[: min(free, self.SLOTS - len(self.running))]:
            padded_tokens = (len(expected) + 1) * max(len(other.source_ids) for other in [*expected, sequence])
            if expected and padded_tokens > self.BUDGET:
                break
            expected.append(sequence)
        told_before = len(self.told)
        assert self.scheduler.admit(min(free, self.SLOTS - len(self.running))) == expected
        assert self.told[told_before:] == gone
        for sequence in gone:
            assert isinstance(sequence.error, CancelledError if sequence.cancelled else DeadlineExceededError)
        for sequence in expected:
            assert (sequence.state, sequence.started_seconds) == (SequenceState.RUNNING, self.clock.seconds)
        self.waiting = self.waiting[len(expected) :]
        self.running += expected

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, *, fails: bool) -> None:
        """Any running sequence may end next, well or badly; its owner is told at once."""
        sequence = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        error = InternalError("broken") if fails else None
        sequence.hypotheses = [] if fails else [Hypothesis((), 0.0, 0.0, FinishReason.EOS, ())]
        self.scheduler.finish(sequence, error)
        assert self.told[-1] is sequence
        assert sequence.error is error

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """The client of a waiting sequence goes away."""
        data.draw(st.sampled_from(self.waiting)).cancelled = True

    @rule(seconds=st.floats(0.0, 3.0))
    def pass_time(self, seconds: float) -> None:
        """Deadlines come nearer."""
        self.clock.seconds += seconds

    @rule()
    def drain(self) -> None:
        """Nothing is accepted from here on."""
        self.scheduler.drain()
        self.draining = True

    @rule()
    def fail_all(self) -> None:
        """Everything that waits ends with the same error."""
        error = InternalError("broken")
        self.scheduler.fail_all(error)
        assert all(sequence.error is error for sequence in self.waiting)
        self.waiting = []

    @invariant()
    def counts_are_exact_and_bounded(self) -> None:
        """The counts and their gauges are those of the lists."""
        counts = (self.scheduler.waiting, self.scheduler.running)
        assert counts == (len(self.waiting), len(self.running))
        assert sum(counts) <= self.SLOTS + self.QUEUE_LIMIT
        assert self.scheduler.idle == (not self.waiting and not self.running)
        for name, count in zip(("waiting", "running"), counts, strict=True):
            assert self.registry.get_sample_value(f"dragoman_sequences_{name}", {"model": "tiny"}) == count

    @invariant()
    def every_accepted_sequence_is_finished_once_or_still_held(self) -> None:
        """Nothing is lost and nobody is told twice."""
        held = self.waiting + self.running
        assert sorted(map(id, self.told + held)) == sorted(map(id, self.accepted))
        assert all(sequence.state is SequenceState.FINISHED for sequence in self.told)
        assert all(sequence.state is SequenceState.WAITING for sequence in self.waiting + self.refused)

    def teardown(self) -> None:
        """The metrics counted each ending."""
        samples = next(
            metric.samples for metric in self.registry.collect() if metric.name == "dragoman_sequences_finished"
        )
        assert sum(sample.value for sample in samples if sample.name.endswith("_total")) == len(self.told)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_one_sequence_over_the_bound_is_refused_with_the_numbers() -> None:
    scheduler = make_scheduler(slots=2, queue_limit=1)
    scheduler.submit([make_sequence(), make_sequence()])
    scheduler.admit(1)
    with pytest.raises(QueueFullError, match="2 texts do not fit: 1 run and 1 wait, expected at most 3 together"):
        scheduler.submit([make_sequence(), make_sequence()])
    assert (scheduler.waiting, scheduler.running) == (1, 1)


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


def test_a_sequence_longer_than_the_budget_is_admitted_alone() -> None:
    scheduler = make_scheduler(prefill_token_budget=10)
    long, short = make_sequence(11), make_sequence(1)
    scheduler.submit([long, short])
    assert scheduler.admit(4) == [long]
    assert scheduler.admit(3) == [short]


def test_the_budget_counts_padding() -> None:
    scheduler = make_scheduler(prefill_token_budget=10)
    first, long, last = make_sequence(2), make_sequence(5), make_sequence(1)
    scheduler.submit([first, long, last])
    assert scheduler.admit(4) == [first, long]


def test_a_sequence_expires_while_every_slot_is_taken() -> None:
    clock = FakeClock()
    scheduler = make_scheduler(clock=clock)
    sequence = make_sequence(deadline_seconds=5.0)
    scheduler.submit([sequence])
    clock.seconds = 4.9
    assert scheduler.admit(0) == []
    assert sequence.error is None
    clock.seconds = 5.0
    assert scheduler.admit(0) == []
    assert isinstance(sequence.error, DeadlineExceededError)


def test_the_times_of_a_sequence_come_from_the_clock() -> None:
    clock = FakeClock(1.0)
    scheduler = make_scheduler(clock=clock)
    sequence = make_sequence()
    scheduler.submit([sequence])
    clock.seconds = 2.5
    scheduler.admit(1)
    clock.seconds = 4.0
    scheduler.finish(sequence, InternalError("broken"))
    assert (sequence.submitted_seconds, sequence.started_seconds, sequence.finished_seconds) == (1.0, 2.5, 4.0)


def test_the_owner_may_call_the_scheduler_from_another_thread_while_it_is_told() -> None:
    """Callbacks run outside the lock: an owner that waits for another thread's submission does not deadlock."""
    scheduler = make_scheduler()
    queued = threading.Event()

    def submit() -> None:
        scheduler.submit([make_sequence()])
        queued.set()

    def submit_elsewhere(_sequence: Sequence) -> None:
        threading.Thread(target=submit).start()
        assert queued.wait(10)

    sequence = make_sequence(on_finish=submit_elsewhere)
    sequence.cancelled = True
    scheduler.submit([sequence])
    scheduler.admit(1)
    assert scheduler.waiting == 1


def test_an_idle_engine_sleeps_until_a_sequence_waits() -> None:
    scheduler = make_scheduler()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(scheduler.wait()))
    thread.start()
    scheduler.submit([make_sequence()])
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
    assert scheduler.admit(1) == [sequence]


def test_waiting_for_idleness_ends_with_the_last_sequence() -> None:
    scheduler = make_scheduler()
    sequence = make_sequence()
    scheduler.submit([sequence])
    assert not scheduler.wait_idle(0.0)
    scheduler.admit(1)
    assert not scheduler.wait_idle(0.0)
    idle: list[bool] = []
    thread = threading.Thread(target=lambda: idle.append(scheduler.wait_idle(10.0)))
    thread.start()
    scheduler.finish(sequence, InternalError("broken"))
    thread.join(10)
    assert idle == [True]
