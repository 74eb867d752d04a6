"""Segments are translated once each, and long ones in parts."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serve.documents.document import Segment
from serve.documents.translation import PART_CHARACTERS, PART_SENTENCES, split_text, translate_segments

pytestmark = pytest.mark.anyio
LONG = "A man runs. " * 200


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["A man runs. ", "one ", "。", "x" * 400, "\n\n", "why? ", "é"]), max_size=60))
@example([LONG])
@example(["x" * 5000])
@example(["word " * 1000])
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


async def test_a_segment_is_translated_once_and_a_long_one_in_parts() -> None:
    asked = list[str]()
    reports = list[None]()

    async def translate(segment: Segment) -> str:
        asked.append(segment.text)
        return segment.text.upper()

    segments = [Segment("one"), Segment(LONG.strip()), Segment("one"), Segment(LONG, "xml")]
    translations = await translate_segments(segments, translate, 3, lambda: reports.append(None))
    assert translations == [each.text.upper() for each in segments]
    assert (asked.count("one"), asked.count(LONG), len(reports)) == (1, 1, 3)
    assert max(len(text) for text in asked if text != LONG) <= PART_CHARACTERS
