"""The order in which sequences start, and wake-ups of the event loop: one for many tokens, and never late."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.request_scheduler import PACE_SECONDS
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.submission import LoopNotifier, Submission


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
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self) -> None:
        """Advances the time by one pause."""
        calls, self.later = self.later, []
        for call in calls:
            call()


def notify(loop: FakeLoop, notifier: LoopNotifier, *events: asyncio.Event) -> None:
    for event in events:
        notifier.notify(cast("asyncio.AbstractEventLoop", loop), event.set)


def test_all_tokens_of_a_step_wake_the_loop_once() -> None:
    notifier, loop, events = LoopNotifier(), FakeLoop(), [asyncio.Event() for _ in range(3)]
    notify(loop, notifier, *events, *events)
    assert len(loop.soon) == 1
    loop.wake()
    assert all(event.is_set() for event in events)


@pytest.mark.parametrize("token_in_pause", [True, False])
def test_a_pause_with_tokens_ends_with_a_wake_up_and_one_without_ends_the_pacing(*, token_in_pause: bool) -> None:
    notifier, loop, event = LoopNotifier(), FakeLoop(), asyncio.Event()
    notify(loop, notifier, event)
    loop.wake()
    event.clear()
    if token_in_pause:
        notify(loop, notifier, event)
    assert not loop.soon
    loop.wait()
    assert (event.is_set(), len(loop.later)) == (token_in_pause, token_in_pause)
    notify(loop, notifier, event)
    assert len(loop.soon) == (not token_in_pause)


@given(st.lists(st.sampled_from(["token", "wake", "wait"]), max_size=40))
def test_no_notification_is_lost_in_any_order_of_events(order: list[str]) -> None:
    notifier, loop, event = LoopNotifier(), FakeLoop(), asyncio.Event()
    for what in [*order, "wake", "wait", "wait"]:
        if what == "token":
            event.clear()
            notify(loop, notifier, event)
        elif what == "wake":
            loop.wake()
        else:
            loop.wait()
        assert len(loop.soon) + len(loop.later) <= 1
    assert event.is_set() == ("token" in order)


def test_a_closed_loop_raises_no_error_in_an_engine() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    LoopNotifier().notify(loop, asyncio.Event().set)
    with pytest.raises(RuntimeError):
        loop.call_soon_threadsafe(print)


@pytest.mark.anyio
@pytest.mark.parametrize(("notifier", "started"), [(None, [4, 3, 1]), (LoopNotifier(), [3, 1, 4])])
async def test_the_longest_starts_first_unless_the_sequences_are_streamed(
    notifier: LoopNotifier | None, started: list[int]
) -> None:
    scheduler = Scheduler(3, 0, 100, Metrics(CollectorRegistry(), model="tiny"))
    sequences = [DecodingSequence((9,) * length, SearchOptions(max_target_tokens=1)) for length in (3, 1, 4)]

    with Submission(scheduler, sequences, deadline_seconds=None, notifier=notifier) as submission:
        assert [len(sequence.source_ids) for sequence in scheduler.schedule(3, 0)] == started
        assert [len(sequence.source_ids) for sequence in submission.sequences] == [3, 1, 4]
