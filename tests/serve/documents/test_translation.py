"""Segments are translated once each, and long ones in parts."""

import asyncio
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.serve.documents.document import Segment
from dragoman.serve.documents.inline import Inline, Item, ItemKind
from dragoman.serve.documents.translation import (
    PART_CHARACTERS,
    PART_SENTENCES,
    DistinctSegments,
    split_text,
    translate_segments,
)
from dragoman.serve.protect.markup.xml import check_xml

pytestmark = pytest.mark.anyio
LONG = "A man runs. " * 200


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["A man runs. ", "one ", "。", "x" * 400, "\n\n", "why? ", "é"]), max_size=60))
@example([LONG])
@example(["x" * 5000])
@example(["word " * 1000])
@example(["word  " * 30_000])
@example(["x" * 200_000])
@example(["A man runs. " * 20_000])
@example(["one" + " " * 200_000 + "why? one"])
def test_parts_are_short_and_together_the_text(pieces: list[str]) -> None:
    text = "".join(pieces).strip()
    parts = list(split_text(text))
    assert "".join(part for part, _ in parts) == text
    for part, is_text in parts:
        if is_text:
            assert len(part) <= PART_CHARACTERS
            assert part == part.strip()
            assert len(re.findall(r"[.?]\s|。", part)) <= PART_SENTENCES
        else:
            assert not part.strip()


@pytest.mark.parametrize("piece", ["word ", "x", "\u4e00"])
def test_the_first_part_of_a_long_text_takes_as_long_as_that_of_a_short_one(piece: str) -> None:
    def seconds(count: int) -> float:
        text = piece * count
        times = []
        for _ in range(5):
            begun_seconds = time.process_time()
            next(split_text(text))
            times.append(time.process_time() - begun_seconds)
        return min(times)

    assert seconds(5_000_000) < 10 * seconds(100_000)


class Shouted:
    """A document of given segments."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments

    def write(self, translations: Sequence[str]) -> bytes:
        return "|".join(translations).encode()


async def test_a_segment_is_translated_once_and_a_long_one_in_parts() -> None:
    requested = list[str]()
    reports = list[None]()

    async def translate(segments: Sequence[Segment]) -> list[str]:
        requested.extend(segment.text for segment in segments)
        return [segment.text.upper() for segment in segments]

    segments = [Segment("one"), Segment(LONG.strip()), Segment("one"), Segment(LONG, "xml")]
    distinct = DistinctSegments(Shouted(segments))
    translations = await translate_segments(distinct.segments, translate, 3, lambda: reports.append(None))
    assert distinct.write(translations).decode() == "|".join(part.text.upper() for part in segments)
    assert distinct.characters == sum(len(part.text) for part in segments)
    assert (requested.count("one"), len(reports)) == (1, distinct.parts)
    assert distinct.parts > len(segments)
    assert max(map(len, requested)) <= PART_CHARACTERS


TEXTS = st.text("ab. \0<\u3002\f", max_size=8) | st.sampled_from(["A man runs. ", "x" * 700, " ", LONG])
ITEMS = st.tuples(st.sampled_from(ItemKind), TEXTS).map(lambda item: Item(*item, "ab"))


@settings(max_examples=50)
@given(st.lists(ITEMS, max_size=100))
@example([Item(ItemKind.TEXT, "x"), Item(ItemKind.POINT, "y")] * 200)
@example([Item(ItemKind.OPEN, "("), Item(ItemKind.TEXT, "a " * 2000), Item(ItemKind.CLOSE, ")")] * 2)
@example([Item(ItemKind.KEPT, "y", "&" * 150)] * 20 + [Item(ItemKind.TEXT, "a")])
async def test_parts_of_a_text_with_tags_have_both_tags_of_each_element(items: list[Item]) -> None:
    inline = Inline.of(items)
    requested = list[str]()

    async def translate(segments: Sequence[Segment]) -> list[str]:
        requested.extend(segment.text for segment in segments)
        return [segment.text for segment in segments]

    (translation,) = await translate_segments([inline.segment], translate, 1, int)
    assert translation == inline.segment.text
    assert "".join(item.raw for item in inline.read(translation)) == "".join(item.raw for item in inline.items)
    if inline.segment.format == "xml":
        assert max(map(len, requested), default=0) <= PART_CHARACTERS
        for text in requested:
            check_xml(text)


async def test_other_tasks_run_between_translations_that_wait_for_nothing() -> None:
    iterations = 0

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async def translate(segments: Sequence[Segment]) -> list[str]:
        return [segment.text for segment in segments]

    counting = asyncio.create_task(count_iterations())
    await translate_segments([*map(Segment, map(str, range(100))), Segment("A man runs. " * 1000)], translate, 1, int)
    counting.cancel()
    assert iterations >= 100 + 12_000 / PART_CHARACTERS
