"""Reading lines from a descriptor, and the ordered map over lines."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, nullcontext
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.clients.lines import MAX_LINE_BYTES, LineError, Lines, read_lines, translate_lines
from dragoman.serve.local.chunks import map_in_order
from dragoman.serve.local.errors import TranslationError
from dragoman.serve.translation.fields import is_blank


async def collect_lines(descriptor: int) -> list[tuple[int, str]]:
    return [line async for lines in read_lines(descriptor) for line in enumerate(lines.texts, start=lines.number)]


def read_pipe(content: bytes) -> list[tuple[int, str]]:
    read_end, write_end = os.pipe()
    os.write(write_end, content)
    os.close(write_end)
    try:
        return asyncio.run(collect_lines(read_end))
    finally:
        os.close(read_end)


async def counted(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@given(st.lists(st.text(max_size=20).filter(lambda text: "\n" not in text), max_size=20))
def test_lines_are_those_between_line_feeds(texts: list[str]) -> None:
    expected = [(number, "" if is_blank(text) else text) for number, text in enumerate(texts, start=1)]
    assert read_pipe("".join(f"{text}\n" for text in texts).encode()) == expected


def test_the_last_line_may_lack_its_line_feed() -> None:
    assert read_pipe(b"one\ntwo") == [(1, "one"), (2, "two")]


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    """Epoll cannot watch a file. The file is larger than a chunk, so lines cross chunk borders."""
    texts = [str(number) for number in range(20_000)]
    path = tmp_path / "lines"
    path.write_text("\n".join(texts))
    with path.open("rb") as file:
        lines = asyncio.run(collect_lines(file.fileno()))
    assert [text for _, text in lines] == texts


@pytest.mark.anyio
async def test_a_line_arrives_before_the_next_is_written() -> None:
    read_end, write_end = os.pipe()
    answers = list[str]()
    os.write(write_end, b"1\n")
    async with aclosing(read_lines(read_end)) as read:
        async for lines in read:
            answers += lines.texts
            if lines.number == 3:
                break
            os.write(write_end, b"%d\n" % (lines.number + 1))
    os.close(read_end)
    os.close(write_end)
    assert answers == ["1", "2", "3"]


@pytest.mark.parametrize("second", [b"x" * (MAX_LINE_BYTES + 100_000), b"ab\xff\n"], ids=["endless", "not UTF-8"])
def test_an_invalid_line_is_named(tmp_path: Path, second: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + second)
    with path.open("rb") as file, pytest.raises(LineError, match=r"^line 2: "):
        asyncio.run(collect_lines(file.fileno()))


@given(st.lists(st.sampled_from(["one", "two", "", "refused"]), max_size=50), st.integers(1, 50))
def test_the_first_refused_line_is_named_after_the_output_of_those_before(texts: list[str], in_flight: int) -> None:
    async def translate(chunk: Sequence[str]) -> list[str]:
        assert 0 < len(chunk) <= in_flight
        if "refused" in chunk:
            raise TranslationError("a reason")
        return [text.upper() for text in chunk]

    async def read() -> AsyncIterator[Lines]:
        yield Lines(1, texts)

    async def collect() -> None:
        async for output in translate_lines(translate, read(), in_flight):
            written.append(output)

    written = list[str]()
    before = list(takewhile(lambda text: text != "refused", texts))
    refused = pytest.raises(LineError, match=f"^line {len(before) + 1}: a reason$")
    with refused if len(before) < len(texts) else nullcontext():
        asyncio.run(collect())
    assert "".join(written) == "".join(f"{text.upper()}\n" for text in before)


@given(order=st.integers(1, 12).flatmap(lambda count: st.permutations(range(count))), in_flight=st.integers(1, 5))
def test_results_have_the_order_of_the_inputs(order: Sequence[int], in_flight: int) -> None:
    """The call of rank r yields to the loop r times, so that calls finish in any order."""

    async def call(number: int) -> int:
        for _ in range(order[number]):
            await asyncio.sleep(0)
        return number

    async def collect() -> list[int]:
        return [result async for result in map_in_order(call, counted(len(order)), in_flight)]

    assert asyncio.run(collect()) == list(range(len(order)))


def test_no_more_calls_than_the_window_are_started() -> None:
    async def begun_when_first_result_waits() -> int:
        begun = 0
        gate = asyncio.Event()
        full = asyncio.Event()

        async def call(number: int) -> int:
            nonlocal begun
            begun += 1
            if begun == 4:
                full.set()
            await gate.wait()
            return number

        async with aclosing(map_in_order(call, counted(1000), in_flight=4)) as results:
            first = asyncio.ensure_future(anext(results))
            await full.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            count = begun
            gate.set()
            await first
        return count

    assert asyncio.run(begun_when_first_result_waits()) == 4


@pytest.mark.parametrize("in_input", [False, True])
def test_a_failure_is_raised_after_the_results_before_it(*, in_input: bool) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(2 if in_input else 10):
            yield number
        raise ValueError("of the input")

    async def call(number: int) -> int:
        if number == 2:
            raise ValueError("of a call")
        for _ in range(5):
            await asyncio.sleep(0)
        return number

    async def take_all() -> None:
        async for result in map_in_order(call, numbers(), in_flight=8):
            taken.append(result)  # noqa: PERF401 - a comprehension would lose the results at the failure

    taken: list[int] = []
    with pytest.raises(ValueError, match="of the input" if in_input else "of a call"):
        asyncio.run(take_all())
    assert taken == [0, 1]


def test_closing_cancels_running_calls() -> None:
    cancelled: list[int] = []

    async def call(number: int) -> int:
        if number == 0:
            return number
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    async def take_one() -> None:
        async with aclosing(map_in_order(call, counted(100), in_flight=3)) as results:
            await anext(results)
            await asyncio.sleep(0)

    asyncio.run(take_one())
    assert sorted(cancelled) == [1, 2]
