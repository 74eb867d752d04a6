"""The order in which sequences start, and wake-ups of the event loop: one for many tokens, and never late."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from serve.observability.metrics import Metrics
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import SequenceSpec
from serve.search.options import SearchOptions
from serve.translation.submission import PACE_SECONDS, LoopNotifier, Submission


@dataclass
class FakeLoop:
    """An event loop that a test runs by hand."""

    soon: list[Callable[[], None]] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)

    def call_soon_threadsafe(self, function: Callable[..., None], *arguments: Any) -> None:
        self.soon.append(lambda: function(*arguments))

    def call_later(self, delay_seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        assert delay_seconds == PACE_SECONDS
        self.later.append(lambda: function(*arguments))

    def wake(self) -> None:
        """Runs the scheduled callbacks."""
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self) -> None:
        """Advances the time by one pause."""
        calls, self.later = self.later, []
        for call in calls:
            call()


def notify(notifier: LoopNotifier, loop: FakeLoop, events: Sequence[asyncio.Event]) -> None:
    anything: Any = loop
    for event in events:
        notifier.notify(anything, event)


def test_for_all_tokens_of_a_step_the_loop_is_woken_once() -> None:
    notifier, loop, events = LoopNotifier(), FakeLoop(), [asyncio.Event() for _ in range(3)]
    notify(notifier, loop, [*events, *events])
    assert len(loop.soon) == 1
    loop.wake()
    assert all(event.is_set() for event in events)


def test_tokens_during_the_pause_wake_the_loop_at_its_end() -> None:
    notifier, loop, event = LoopNotifier(), FakeLoop(), asyncio.Event()
    notify(notifier, loop, [event])
    loop.wake()
    event.clear()
    notify(notifier, loop, [event])
    assert not loop.soon
    loop.wait()
    assert event.is_set()


def test_after_a_pause_without_tokens_the_loop_is_woken_at_once() -> None:
    notifier, loop, event = LoopNotifier(), FakeLoop(), asyncio.Event()
    notify(notifier, loop, [event])
    loop.wake()
    loop.wait()
    assert not loop.later
    notify(notifier, loop, [event])
    assert len(loop.soon) == 1


@given(st.lists(st.sampled_from(["ring", "wake", "wait"]), max_size=40))
def test_no_notification_is_lost_in_any_order_of_events(order: list[str]) -> None:
    notifier, loop, event = LoopNotifier(), FakeLoop(), asyncio.Event()
    for what in [*order, "wake", "wait", "wait"]:
        if what == "ring":
            event.clear()
            notify(notifier, loop, [event])
        elif what == "wake":
            loop.wake()
        else:
            loop.wait()
        assert len(loop.soon) + len(loop.later) <= 1
    assert event.is_set() == ("ring" in order)


def test_a_closed_loop_raises_no_error_in_an_engine() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    LoopNotifier().notify(loop, asyncio.Event())
    with pytest.raises(RuntimeError):
        loop.call_soon_threadsafe(print)


@pytest.mark.parametrize(("notifier", "started"), [(None, [4, 3, 1]), (LoopNotifier(), [3, 1, 4])])
def test_the_longest_starts_first_unless_the_sequences_are_streamed(
    notifier: LoopNotifier | None, started: list[int]
) -> None:
    scheduler = Scheduler(3, 0, 100, Metrics(CollectorRegistry(), model="tiny"))
    specs = [SequenceSpec((9,) * length, SearchOptions(max_target_tokens=1)) for length in (3, 1, 4)]

    async def submit() -> None:
        with Submission(scheduler, specs, deadline_seconds=None, notifier=notifier) as submission:
            admitted = scheduler.admit(3, 0)
            assert [len(sequence.source_ids) for sequence in admitted] == started
            assert [len(sequence.source_ids) for sequence in submission.sequences] == [3, 1, 4]

    asyncio.run(submit())
