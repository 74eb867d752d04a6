"""Large requests are split and tokenized in parts in a thread: they block neither the event loop nor each other."""

import asyncio
import math
import threading
import time
import unicodedata
from collections.abc import Callable, Sequence

import pytest

from dragoman.serve.errors import DeadlineExceededError
from dragoman.serve.translation import job, large_work
from dragoman.serve.translation.large_work import (
    CREDIT_SECONDS,
    PART_CHARACTERS,
    SMALL_TEXT_BYTES,
    STRETCH_SECONDS,
    LargeWorkThread,
    normalized_bytes,
)
from tests.support.fakes import FakeClock
from tests.support.live import WAIT_SECONDS
from tests.support.translators import LETTERS, NumberTokenizer, TranslatorBench

pytestmark = pytest.mark.anyio

# NFKC makes 33 bytes of its 3.
LIGATURE = "\ufdfa"
QUARTERS = ["5".ljust(SMALL_TEXT_BYTES // 4)] * 4
LARGE = "5" + " " * PART_CHARACTERS


class WatchedTokenizer(NumberTokenizer):
    """A tokenizer that calls a function with each text; every text is a single token."""

    def __init__(self, watch: Callable[[str], object]) -> None:
        self._watch = watch

    def encode(self, text: str) -> list[int]:
        self._watch(text)
        return [5]


@pytest.mark.parametrize(
    ("texts", "in_loop"),
    [
        *((small, True) for small in (["5 6", "7"], QUARTERS, ["\u00e4" * 2048], [LIGATURE * 124])),
        *((large, False) for large in ([*QUARTERS, "5"], [LARGE], [LARGE, "5"], ["\u00e4" * 2049], [LIGATURE * 125])),
    ],
)
async def test_texts_are_tokenized_in_the_event_loop_only_if_they_are_small(
    texts: Sequence[str], *, in_loop: bool
) -> None:
    """The bound is in bytes after normalization, as that is what takes time."""
    threads: set[bool] = set()
    with TranslatorBench(slots=8) as bench:
        loop_thread = threading.get_ident()
        bench.use(WatchedTokenizer(lambda _: threads.add(threading.get_ident() == loop_thread)))
        await bench.translate(*texts)
    assert threads == {in_loop}


async def test_a_small_request_does_not_wait_for_a_large_one(bench: TranslatorBench) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def block(text: str) -> None:
        if len(text) > 1:
            waiting.set()
            assert go_on.wait(WAIT_SECONDS)

    bench.use(WatchedTokenizer(block))
    large = bench.translate(LARGE)
    await asyncio.to_thread(waiting.wait, WAIT_SECONDS)
    await bench.translate("5")
    assert not large.done()
    go_on.set()
    await large


async def test_large_requests_alternate() -> None:
    order: list[str] = []
    both_wait = threading.Event()

    def note(text: str) -> None:
        assert both_wait.wait(WAIT_SECONDS)
        order.append(text.strip())

    with TranslatorBench(slots=8) as bench:
        bench.use(WatchedTokenizer(note))
        first, second = (bench.translate(*[f"{number}{LARGE[1:]}"] * 3) for number in (3, 4))
        await asyncio.sleep(0)
        both_wait.set()
        await asyncio.gather(first, second)
    assert order == [number.translate(LETTERS) for number in "343434"]


async def test_a_request_waits_for_the_thread_until_its_deadline(bench: TranslatorBench) -> None:
    go_on = threading.Event()
    bench.use(WatchedTokenizer(lambda _: go_on.wait(WAIT_SECONDS)))
    ahead = bench.translate(LARGE)
    with pytest.raises(DeadlineExceededError):
        await bench.translate(LARGE, deadline_seconds=time.monotonic() + 0.05)
    go_on.set()
    await ahead
    await bench.idle()


async def test_the_thread_works_an_eighth_of_the_time_after_its_credit_is_spent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    started: list[float] = []

    def pass_time(seconds: float) -> None:
        clock.seconds += seconds

    class FakeTime:
        monotonic = thread_time = clock
        sleep = pass_time

    def work() -> None:
        started.append(clock.seconds)
        pass_time(1.0)

    monkeypatch.setattr(large_work, "time", FakeTime)
    thread = LargeWorkThread()
    for _ in range(4):
        await thread.run(math.inf, work)
    assert started == pytest.approx([0.0, 8 - CREDIT_SECONDS, 16 - CREDIT_SECONDS, 24 - CREDIT_SECONDS])
    pass_time(100.0)
    await thread.run(math.inf, work)
    assert started[-1] == pytest.approx(started[-2] + 101.0)


async def test_other_tasks_run_while_a_long_response_is_built(
    bench: TranslatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    seen: set[int] = set()

    def decode_slowly(_: NumberTokenizer, ids: Sequence[int]) -> str:
        built.append(1)
        time.sleep(1.5 * STRETCH_SECONDS)
        return " ".join(map(str, ids))

    monkeypatch.setattr(large_work, "STRETCH_CHARACTERS", 1)
    monkeypatch.setattr(NumberTokenizer, "decode", decode_slowly)
    monkeypatch.setattr(job, "SMALL_TEXT_BYTES", 1)
    task = bench.translate("3", "4", "5", "6")
    while not task.done():
        seen.add(len(built))
        await asyncio.sleep(0)
    assert seen >= {1, 2, 3}


@pytest.mark.parametrize("text", ["", "abc", "\u00e4\u4e2d", "\ufb03", "\u00bd", LIGATURE, "a" + LIGATURE, "\u3316"])
def test_the_bound_of_normalized_bytes_holds(text: str) -> None:
    assert normalized_bytes(text) >= len(unicodedata.normalize("NFKC", text).encode())
