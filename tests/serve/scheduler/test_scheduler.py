"""The guarantees of the scheduler one by one; `test_scheduler_machine` has those for any order of calls."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry

from dragoman.serve import errors
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from tests.support.fakes import FakeClock
from tests.support.live import WAIT_SECONDS
from tests.support.schedulers import (
    AnyScheduler,
    MakeScheduler,
    Stepped,
    each_scheduler,
    make_python_scheduler,
    make_sequence,
)


@each_scheduler
def test_one_row_over_the_bound_of_running_and_waiting_rows_is_refused(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=3, queue_limit=3)
    scheduler.submit([make_sequence(rows=3), make_sequence()])
    scheduler.schedule(3, 0)
    with pytest.raises(errors.QueueFullError) as refused:
        scheduler.submit([make_sequence(), make_sequence(rows=2)])
    assert {"3", "1", "6"} <= set(str(refused.value).split()), "new and running rows, waiting rows, and the bound"
    assert (scheduler.waiting, scheduler.running) == (1, 1)
    scheduler.submit([make_sequence(), make_sequence()])


@each_scheduler
def test_reserved_rows_are_there_however_full_the_queue_is(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(3) as reservation:
        scheduler.submit([make_sequence()])
        for refused in (lambda: scheduler.reserve(1), lambda: scheduler.submit([make_sequence()])):
            with pytest.raises(errors.QueueFullError):
                refused()
        scheduler.submit([make_sequence(rows=2), make_sequence()], reservation)
        assert reservation.rows == 0
        with pytest.raises(errors.QueueFullError):
            scheduler.reserve(1)
    scheduler.fail_all(errors.InternalError("broken"))
    scheduler.reserve(4)


@each_scheduler
def test_a_submission_may_exceed_its_reservation_if_there_is_room(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(1) as reservation:
        with pytest.raises(errors.QueueFullError):
            scheduler.submit([make_sequence() for _ in range(5)], reservation)
        scheduler.submit([make_sequence() for _ in range(4)], reservation)


@each_scheduler
def test_a_reservation_grows_if_there_is_room_with_spare_rows_and_shrinks_always(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=2, queue_limit=2)
    with scheduler.reserve(1) as first, scheduler.reserve(1) as second:
        first.resize(3)
        with pytest.raises(errors.QueueFullError):
            second.resize(2)
        first.resize(1)
        with pytest.raises(errors.QueueFullError):
            second.resize(2, spare_rows=2)
        second.resize(2, spare_rows=1)
        second.resize(2, spare_rows=4)
        assert (first.rows, second.rows) == (1, 2)
    scheduler.reserve(4)


@each_scheduler
def test_nothing_is_reserved_after_draining_nor_for_a_deadline_that_has_passed(make_scheduler: MakeScheduler) -> None:
    clock = FakeClock()
    scheduler = make_scheduler(clock=clock)
    with pytest.raises(errors.DeadlineExceededError):
        scheduler.reserve(1, clock())
    scheduler.drain()
    with pytest.raises(errors.DrainingError):
        scheduler.reserve(1)


def busy_scheduler(
    make_scheduler: MakeScheduler, clock: FakeClock, queue_timeout_seconds: float | None = None, requests: int = 10
) -> AnyScheduler:
    """Returns a scheduler in which two rows become free per second, six wait, and a run takes up to 1 s."""
    scheduler = make_scheduler(slots=2, queue_limit=20, clock=clock, queue_timeout_seconds=queue_timeout_seconds)
    deadline_seconds = clock() + 2.5
    scheduler.submit([make_sequence(1, deadline_seconds, fairness_key=number % requests) for number in range(10)])
    for _ in range(2):
        for sequence in scheduler.schedule(2, 0):
            clock.seconds += 0.5
            scheduler.finish(sequence, errors.InternalError("broken"))
    assert scheduler.waiting == 6
    return scheduler


@each_scheduler
def test_a_deadline_is_unmeetable_if_the_queue_ahead_and_a_run_take_longer(make_scheduler: MakeScheduler) -> None:
    """A new request behind all others starts in 3 s and runs for 1 s."""
    clock = FakeClock()
    scheduler = busy_scheduler(make_scheduler, clock)
    with pytest.raises(errors.DeadlineUnmeetableError):
        scheduler.reserve(1, clock() + 3.9)
    scheduler.reserve(1, clock() + 4.1)
    scheduler.reserve(1, clock() + 3.9, priority=1)


@each_scheduler
def test_a_request_with_the_earliest_deadline_of_its_round_waits_for_none(make_scheduler: MakeScheduler) -> None:
    clock = FakeClock()
    scheduler = busy_scheduler(make_scheduler, clock, requests=1)
    with pytest.raises(errors.DeadlineUnmeetableError):
        scheduler.reserve(1, clock() + 1.4)
    scheduler.reserve(1, clock() + 0.4)


@each_scheduler
def test_a_wait_beyond_the_queue_timeout_is_refused_at_once_unless_patient(make_scheduler: MakeScheduler) -> None:
    scheduler = busy_scheduler(make_scheduler, FakeClock(), queue_timeout_seconds=2.5)
    with pytest.raises(errors.QueueTimeoutError):
        scheduler.reserve(1)
    scheduler.reserve(1, patient=True)


@each_scheduler
def test_the_queue_timeout_ends_what_waits_but_neither_what_runs_nor_is_patient(make_scheduler: MakeScheduler) -> None:
    clock = FakeClock()
    scheduler = make_scheduler(slots=1, clock=clock, queue_timeout_seconds=1.0)
    running, patient, impatient = make_sequence(), make_sequence(), make_sequence()
    scheduler.submit([running])
    assert scheduler.schedule(1, 0) == [running]
    scheduler.submit([patient], patient=True)
    scheduler.submit([impatient])
    clock.seconds += 1.0
    assert scheduler.schedule(0, 1) == []
    assert running.abandonment(clock()) is None
    assert isinstance(impatient.error, errors.QueueTimeoutError)
    assert scheduler.schedule(1, 0) == [patient]


@each_scheduler
def test_a_reservation_that_is_given_back_twice_is_over_once(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=2)
    over: list[int] = []
    with scheduler.reserve(2) as reservation:
        reservation.on_exit = lambda: over.append(1)
        with reservation:
            pass
    assert over == [1]


@each_scheduler
def test_a_sequence_wider_than_an_engine_is_refused(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=7, engines=2)
    assert scheduler.slots == 6
    with pytest.raises(ValueError, match="4 rows"):
        scheduler.submit([make_sequence(), make_sequence(rows=4)])
    assert scheduler.idle
    scheduler.submit([make_sequence(rows=3)])
    assert len(scheduler.schedule(3, 0)) == 1


@each_scheduler
@pytest.mark.promise("R8")
def test_concurrent_submissions_never_exceed_the_bound(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(slots=5, queue_limit=20)
    barrier = threading.Barrier(8)

    def submit(number: int) -> bool:
        if number < barrier.parties:
            barrier.wait()
        try:
            scheduler.submit([make_sequence(), make_sequence()])
        except errors.QueueFullError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(submit, range(160)))
    assert (outcomes.count(True), outcomes.count(False)) == (12, 148)
    assert scheduler.waiting == 24


def test_times_and_ends_of_sequences_are_measured() -> None:
    clock, registry = FakeClock(1.0), CollectorRegistry()
    scheduler = Scheduler(4, 4, 100, Metrics(registry, model="tiny"), clock)
    translated, cancelled, expired = (make_sequence(1, deadline_seconds) for deadline_seconds in (None, None, 5.0))
    scheduler.submit([translated, cancelled, expired])
    clock.seconds = 2.5
    assert scheduler.oldest_seconds == 1.5
    scheduler.schedule(3, 0)
    assert scheduler.oldest_seconds == 0
    translated.encoded_seconds = 3.0
    translated.hypotheses = (Hypothesis((4,), 0.0, 0.0, FinishReason.EOS, ()),)
    cancelled.decoded_tokens, expired.decoded_tokens = 2, 3
    clock.seconds = 4.0
    scheduler.cancel(cancelled)
    clock.seconds = 7.0
    scheduler.finish(translated)
    for sequence in (cancelled, expired):
        scheduler.finish(sequence, sequence.abandonment(clock()))
    assert (translated.submitted_seconds, translated.started_seconds, translated.finished_seconds) == (1.0, 2.5, 7.0)

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"dragoman_{name}", {"model": "tiny", **labels})

    assert sample("request_queue_seconds_sum") == 3 * 1.5
    assert (sample("request_encode_seconds_sum"), sample("request_decode_seconds_sum")) == (0.5, 4.0)
    for reason in ("eos", "cancelled", "deadline_exceeded"):
        assert sample("sequences_finished_total", reason=reason) == 1
    assert sample("wasted_tokens_total", cause="cancelled") == 2
    assert sample("wasted_tokens_total", cause="deadline_exceeded") == 3
    assert sample("cancel_release_seconds_sum", cause="cancelled") == 3.0
    assert sample("cancel_release_seconds_sum", cause="deadline_exceeded") == 2.0


@each_scheduler
def test_a_callback_may_wait_for_another_thread_that_calls_the_scheduler(make_scheduler: MakeScheduler) -> None:
    """Callbacks run outside the lock: a callback that waits for a submission of another thread does not deadlock."""
    scheduler = make_scheduler()
    queued = threading.Event()

    def submit() -> None:
        scheduler.submit([make_sequence()])
        queued.set()

    def submit_elsewhere(_ended: list[DecodingSequence]) -> None:
        threading.Thread(target=submit).start()
        assert queued.wait(WAIT_SECONDS)

    sequence = make_sequence(on_finish=submit_elsewhere)
    sequence.cancelled = True
    scheduler.submit([sequence])
    scheduler.schedule(1, 0)
    assert scheduler.waiting == 1


def test_an_idle_engine_sleeps_while_another_uses_up_the_token_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does not poll for a sequence that it cannot get."""
    scheduler = make_python_scheduler(slots=8, engines=2, running_token_budget=10)
    engines = Stepped(scheduler, engine_rows=4, engines=2)
    scheduler.submit([make_sequence(), make_sequence()])
    engines.schedule(0)
    asleep = threading.Event()
    sleep = scheduler._changed.wait

    def tell_and_sleep(timeout: float | None = None) -> bool:
        asleep.set()
        return sleep(timeout)

    monkeypatch.setattr(scheduler._changed, "wait", tell_and_sleep)
    assert scheduler.wait()
    assert engines.schedule(1) == []
    thread = threading.Thread(target=scheduler.wait)
    thread.start()
    assert asleep.wait(WAIT_SECONDS)
    engines.finish(0)
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert len(engines.schedule(1)) == 1


def waiting_engine(scheduler: AnyScheduler) -> Callable[[], bool]:
    """Starts an idle engine; returns a function that returns the result of its `wait`."""
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(scheduler.wait()))
    thread.start()

    def result() -> bool:
        thread.join(WAIT_SECONDS)
        return woken[0]

    return result


@each_scheduler
def test_an_idle_engine_sleeps_until_a_sequence_waits_or_for_good_when_it_drains(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler()
    result = waiting_engine(scheduler)
    sequence = make_sequence()
    scheduler.submit([sequence])
    assert result()
    scheduler.drain()
    assert scheduler.wait()
    assert scheduler.schedule(1, 0) == [sequence]
    assert not waiting_engine(scheduler)()


@each_scheduler
@pytest.mark.parametrize("draining", [True, False])
def test_an_engine_that_got_nothing_is_woken_by_any_change(make_scheduler: MakeScheduler, *, draining: bool) -> None:
    scheduler = make_scheduler(running_token_budget=10)
    scheduler.submit([make_sequence(), make_sequence()])
    scheduler.schedule(4, 0)
    assert scheduler.schedule(4, 0) == []
    result = waiting_engine(scheduler)
    if draining:
        scheduler.drain()
    else:
        scheduler.submit([make_sequence()])
    assert result()
