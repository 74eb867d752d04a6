"""The order in which sequences start, and the alarm: the event loop is woken once for many, and never too late."""

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
from serve.scheduler.sequence import Wish
from serve.search.options import SearchOptions
from serve.translation.submission import PACE_SECONDS, Alarm, Submission


@dataclass
class FakeLoop:
    """An event loop that does what is due when a test says so."""

    soon: list[Callable[[], None]] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)

    def call_soon_threadsafe(self, function: Callable[..., None], *arguments: Any) -> None:
        self.soon.append(lambda: function(*arguments))

    def call_later(self, delay_seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        assert delay_seconds == PACE_SECONDS
        self.later.append(lambda: function(*arguments))

    def wake(self) -> None:
        """Does what was asked for soon."""
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self) -> None:
        """Lets a moment pass."""
        calls, self.later = self.later, []
        for call in calls:
            call()


def ring(alarm: Alarm, loop: FakeLoop, events: Sequence[asyncio.Event]) -> None:
    anything: Any = loop
    for event in events:
        alarm.ring(anything, event)


def test_for_all_tokens_of_a_step_the_loop_is_woken_once() -> None:
    alarm, loop, events = Alarm(), FakeLoop(), [asyncio.Event() for _ in range(3)]
    ring(alarm, loop, [*events, *events])
    assert len(loop.soon) == 1
    loop.wake()
    assert all(event.is_set() for event in events)


def test_what_rings_in_the_moment_after_comes_at_its_end() -> None:
    alarm, loop, event = Alarm(), FakeLoop(), asyncio.Event()
    ring(alarm, loop, [event])
    loop.wake()
    event.clear()
    ring(alarm, loop, [event])
    assert not loop.soon
    loop.wait()
    assert event.is_set()


def test_after_a_silent_moment_the_loop_is_woken_at_once() -> None:
    alarm, loop, event = Alarm(), FakeLoop(), asyncio.Event()
    ring(alarm, loop, [event])
    loop.wake()
    loop.wait()
    assert not loop.later
    ring(alarm, loop, [event])
    assert len(loop.soon) == 1


@given(st.lists(st.sampled_from(["ring", "wake", "wait"]), max_size=40))
def test_whoever_rings_is_heard_in_any_order_of_things(order: list[str]) -> None:
    alarm, loop, event = Alarm(), FakeLoop(), asyncio.Event()
    for what in [*order, "wake", "wait", "wait"]:
        if what == "ring":
            event.clear()
            ring(alarm, loop, [event])
        elif what == "wake":
            loop.wake()
        else:
            loop.wait()
        assert len(loop.soon) + len(loop.later) <= 1
    assert event.is_set() == ("ring" in order)


def test_a_loop_that_has_ended_troubles_no_engine() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Alarm().ring(loop, asyncio.Event())
    with pytest.raises(RuntimeError):
        loop.call_soon_threadsafe(print)


@pytest.mark.parametrize(("alarm", "started"), [(None, [4, 3, 1]), (Alarm(), [3, 1, 4])])
def test_the_longest_starts_first_unless_somebody_listens(alarm: Alarm | None, started: list[int]) -> None:
    scheduler = Scheduler(3, 0, 100, Metrics(CollectorRegistry(), model="tiny"))
    wishes = [Wish((9,) * length, SearchOptions(max_target_tokens=1)) for length in (3, 1, 4)]

    async def submit() -> None:
        with Submission(scheduler, wishes, deadline_seconds=None, alarm=alarm) as submission:
            admitted = scheduler.admit(3, 0)
            assert [len(sequence.source_ids) for sequence in admitted] == started
            assert [len(sequence.source_ids) for sequence in submission.sequences] == [3, 1, 4]

    asyncio.run(submit())
