"""The stages that `dragoman bench service` samples."""

import ctypes
import signal
import sys
from asyncio import Future
from collections.abc import Awaitable, Generator, Iterator
from pkgutil import resolve_name
from types import FrameType, coroutine
from unittest.mock import MagicMock

import pytest

from benchmarks.stages import EVENT_LOOP, STAGES, interrupted, running_stage, stage_of
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.translation.cache import ResultCache

# Unlike `signal.raise_signal`, it leaves the signal to the code that runs next.
RAISE = getattr(ctypes.CDLL(None), "raise")


@pytest.mark.parametrize("place", [place for places in STAGES.values() for place in places])
def test_every_place_of_a_stage_exists(place: str) -> None:
    assert resolve_name(f"dragoman.{place}")


@pytest.fixture(name="found")
def _found() -> Iterator[list[FrameType | None]]:
    """The frame that each signal of the test interrupted."""
    frames: list[FrameType | None] = []
    before = signal.signal(signal.SIGURG, lambda _, frame: frames.append(interrupted(frame)))
    yield frames
    signal.signal(signal.SIGURG, before)


def test_a_signal_in_c_code_belongs_to_the_function_that_called_it(found: list[FrameType | None]) -> None:
    max(map(RAISE, [signal.SIGURG]), key=lambda _: 0)  # the lambda handles the signal
    assert found == [sys._getframe()]


@coroutine
def pause() -> Generator[None]:
    yield


async def pause_and_call(awaited: Awaitable[None]) -> None:
    await awaited
    sys._getframe()


@pytest.mark.parametrize("generator", [True, False])
def test_a_signal_before_a_coroutine_goes_on_belongs_to_the_event_loop(
    found: list[FrameType | None], *, generator: bool
) -> None:
    future = Future[None](loop=MagicMock())
    pausing = pause_and_call(pause() if generator else future)
    pausing.send(None)
    future.set_result(None)
    with pytest.raises(StopIteration):
        max(map(RAISE, [signal.SIGURG]), key=pausing.send)  # resumes it without Python code between
    assert found == [None]
    assert running_stage(None) == EVENT_LOOP


def test_a_function_without_a_stage_has_that_of_its_caller() -> None:
    assert stage_of(ResultCache.find.__code__, ResultCache.__module__) == "look up"
    assert stage_of(Bundle.open.__code__, Bundle.__module__) is None
